package eventlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/isotone/isotone/spec"
)

// Merge calls do with each event of several event logs, those of the processes of one machine, in the order in which they happened: that of their steps. Of several logs, each ends with an
// event of that ([spec.End]), and all are of the same run of the machine, whose clock begins again with the next one. It stops at the first error, of do or of a log, which has the name
// of the log if that is a file.
func Merge(logs []io.Reader, do func(spec.Event) error) error {
	sources := make([]*source, len(logs))
	for i, log := range logs {
		sources[i] = &source{lines: newReader(log), several: len(logs) > 1}
		if f, ok := log.(interface{ Name() string }); ok {
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
		if len(first.step) == 0 && len(logs) > 1 {
			if err := do(spec.Event{Kind: spec.End, Node: last.Node, Process: last.Process}); err != nil {
				return err
			}
		}
	}
}

// rebootGap is how far the clock of a machine has to go back, in nanoseconds, to tell that it was started again.
const rebootGap = 1e9

// source is an event log of which the next step is known.
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
	turned := false
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
		if turned && (e.Kind == spec.Turn || e.Kind == spec.Start) {
			s.next = e
			return nil
		}
		if e.Kind == spec.Turn && s.several && e.Real+rebootGap < s.at {
			return fmt.Errorf("%sline %d: the machine was started again before this step: hold what is before and after by itself, or each log by itself", s.name, s.lines.count)
		}
		if e.Kind == spec.Turn {
			turned, s.at = true, max(s.at, e.Real)
		}
		s.step = append(s.step, *e)
	}
}
