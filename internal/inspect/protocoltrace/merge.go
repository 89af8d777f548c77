package protocoltrace

import (
	"errors"
	"fmt"
	"io"

	"github.com/isotone/isotone/spec"
)

// Merge reads the traces of processes of one machine, and calls do with their events in the order in which the steps began. With several traces it adds [spec.End] where one of them ends,
// and refuses a trace that goes on after a restart of the machine, as the clock begins anew then. It stops at the first error: that of do, or one that names the line, and the file if it has a
// name.
func Merge(traces []io.Reader, do func(spec.Event) error) error {
	sources := make([]*source, len(traces))
	for i, trace := range traces {
		sources[i] = &source{lines: newReader(trace), several: len(traces) > 1}
		if f, ok := trace.(interface{ Name() string }); ok {
			sources[i].name = f.Name() + ": "
		}
		if err := sources[i].fill(); err != nil {
			return err
		}
	}
	for {
		var first *source
		for _, s := range sources {
			if len(s.step) > 0 && (first == nil || s.at < first.at) {
				first = s
			}
		}
		if first == nil {
			return nil
		}
		for _, e := range first.step {
			if err := do(e); err != nil {
				return err
			}
		}
		last := first.step[len(first.step)-1]
		if err := first.fill(); err != nil {
			return err
		}
		if len(first.step) == 0 && len(traces) > 1 {
			if err := do(spec.Event{Kind: spec.End, Node: last.Node, Process: last.Process}); err != nil {
				return err
			}
		}
	}
}

// Check merges the traces and checks their events against the specification. It calls seen with each event, unless it is nil, and returns the number of events. The error is a
// [*spec.Violation] if the specification refuses an event; else that of seen, or of [Merge].
func Check(traces []io.Reader, seen func(spec.Event) error) (uint64, error) {
	s := spec.New()
	err := Merge(traces, func(e spec.Event) error {
		if seen != nil {
			if err := seen(e); err != nil {
				return err
			}
		}
		if v := s.Step(e); v != nil {
			return v
		}
		return nil
	})
	return s.Events(), err
}

// rebootGap is how far the clock has to go back, in nanoseconds, for the machine to have been started again.
const rebootGap = 1e9

// source is a trace, and its next step.
type source struct {
	lines   *reader
	name    string
	several bool
	// step has the events of the next step, which began at. next is the event after them.
	step []spec.Event
	at   int64
	next *spec.Event
}

// fill reads the next step: that which begins a process belongs to its first one.
func (s *source) fill() error {
	s.step = s.step[:0]
	begun := false
	for {
		e := s.next
		s.next = nil
		if e == nil {
			var err error
			if e, err = s.lines.next(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s%w", s.name, err)
			}
		}
		if begun && (e.Kind == spec.BeginStep || e.Kind == spec.Start) {
			s.next = e
			return nil
		}
		if e.Kind == spec.BeginStep && s.several && e.Real+rebootGap < s.at {
			return fmt.Errorf("%sline %d: the machine was started again before this step, and its clock began anew: check each trace by itself", s.name, s.lines.count)
		}
		if e.Kind == spec.BeginStep {
			begun, s.at = true, max(s.at, e.Real)
		}
		s.step = append(s.step, *e)
	}
}
