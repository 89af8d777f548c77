package protocoltrace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/spec"
)

// lineMax bounds a line of a trace, in bytes.
const lineMax = 1 << 20

// Writer writes a protocol trace: a line of JSON for each event. It is not safe for concurrent use.
type Writer struct {
	file  *os.File
	clock func() int64
	buf   []byte
	err   error
}

// Open opens a trace to append to, and creates it if there is none; only its owner may read it. clock is shared by all processes of the machine; its readings, in nanoseconds, order the steps
// of several traces. A line that a process had not finished when it was killed is ended first.
func Open(path string, clock func() int64) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, clock: clock}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		w.buf = append(w.buf, '\n') // readers skip empty lines
	}
	return w, nil
}

// Write adds an event. It is written with the next [Writer.Flush].
func (w *Writer) Write(e spec.Event) {
	if e.Kind == spec.BeginStep {
		e.Real = w.clock()
	}
	w.buf = append(appendEvent(w.buf, &e), '\n')
}

// Flush writes the events that were added. After an error it writes nothing more, and returns that error again.
func (w *Writer) Flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.file.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return w.err
}

// Observe returns an observer of a replica that starts with cfg. It writes the events of a step before what it has for other nodes, or for the disk, can leave the process: so a trace has what the traces
// of others rest on, however the process ends. What only clients see is written with the next tick, or once there is much of it. If events cannot be written, it calls failed once, and the process
// goes on.
func (w *Writer) Observe(cfg replica.Config, failed func(error)) replica.Observer {
	return &flusher{Observer: Observe(cfg, w.Write), w: w, failed: failed}
}

// flushMin is how many bytes are written even if only clients have seen the steps.
const flushMin = 64 << 10

// flusher writes the events of steps.
type flusher struct {
	replica.Observer
	w      *Writer
	ticked bool
	failed func(error)
}

func (f *flusher) Before(in *replica.Input) {
	f.ticked = in.Ticks > 0
	f.Observer.Before(in)
}

func (f *flusher) After(r *replica.Replica, e *replica.Effects) {
	before := f.w.err
	f.Observer.After(r, e)
	if !f.ticked && len(e.Send) == 0 && e.Write == nil && len(e.AskVoters) == 0 && len(e.TellOwners) == 0 && len(f.w.buf) < flushMin {
		return
	}
	if err := f.w.Flush(); err != nil && before == nil {
		f.failed(err)
	}
}

// Close flushes and closes the trace.
func (w *Writer) Close() error {
	err := w.Flush()
	if closing := w.file.Close(); err == nil {
		err = closing
	}
	return err
}

// reader reads events.
type reader struct {
	lines *bufio.Scanner
	count int
	// cut is a line that is no event. It is an error unless a process begins after it: then the former one was killed while it wrote.
	cut error
}

func newReader(in io.Reader) *reader {
	r := &reader{lines: bufio.NewScanner(in)}
	r.lines.Buffer(make([]byte, 64<<10), lineMax)
	return r
}

// isEvent reports whether an event has what the specification reads of its kind.
func isEvent(e *spec.Event) bool {
	switch e.Kind {
	case "":
		return false
	case spec.Entry:
		return e.Command != nil
	case spec.Restore:
		return e.Config != nil
	case spec.Met:
		return e.Hello != nil
	case spec.TellClock, spec.ToldClock, spec.Bounds:
		return e.Reading != nil
	case spec.Append:
		return !slices.ContainsFunc(e.Proposed, func(p spec.Proposal) bool { return p.Command == nil })
	case spec.Session:
		return e.Session != nil
	case spec.TellHeld, spec.TellFree:
		return e.Hold != nil
	case spec.AskSeal, spec.TellFenced, spec.Frontier:
		return e.Stamps != nil
	}
	return true
}

// next returns the next event, or io.EOF. What ends within a line counts as its end.
func (r *reader) next() (*spec.Event, error) {
	for r.lines.Scan() {
		r.count++
		if len(r.lines.Bytes()) == 0 {
			continue
		}
		e := &spec.Event{}
		if err := json.Unmarshal(r.lines.Bytes(), e); err != nil || !isEvent(e) {
			if r.cut == nil {
				r.cut = fmt.Errorf("line %d is no event", r.count)
				continue
			}
			return nil, r.cut
		}
		if r.cut != nil && e.Kind != spec.Start {
			return nil, r.cut
		}
		r.cut = nil
		return e, nil
	}
	if err := r.lines.Err(); err != nil {
		return nil, fmt.Errorf("after line %d: %w", r.count, err)
	}
	if r.cut != nil && r.count == 1 {
		return nil, r.cut // it has nothing else
	}
	return nil, io.EOF
}
