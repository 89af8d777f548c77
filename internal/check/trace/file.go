package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/isotone/isotone/spec"
)

// lineMax bounds a line of a trace.
const lineMax = 1 << 20

// Line returns an event as a line of a trace: JSON, without the end of the line.
func Line(e spec.Event) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("trace: %v", err)) // it has numbers only
	}
	return b
}

// Writer writes events, a line each. It is not safe for concurrent use.
type Writer struct {
	out *bufio.Writer
	err error
}

// NewWriter returns a writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: bufio.NewWriterSize(out, 64<<10)} }

// Write writes an event. After an error it writes nothing more; see [Writer.Close].
func (w *Writer) Write(e spec.Event) {
	if w.err != nil {
		return
	}
	if _, w.err = w.out.Write(Line(e)); w.err == nil {
		w.err = w.out.WriteByte('\n')
	}
}

// Close writes what is left, and returns the first error.
func (w *Writer) Close() error {
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}

// Read calls do with each event of a trace, until that returns an error. Its own errors name the line.
func Read(in io.Reader, do func(spec.Event) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), lineMax)
	for n := 1; lines.Scan(); n++ {
		var e spec.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("line %d is no event of a trace: %w", n, err)
		}
		if err := do(e); err != nil {
			return err
		}
	}
	return lines.Err()
}
