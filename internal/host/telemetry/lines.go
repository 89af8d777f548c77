package telemetry

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// linesBytesMax bounds the queued lines: some thousands.
	linesBytesMax = 1 << 20
	// pieceMax bounds one write, except for a single longer line. A
	// pipe writes that much atomically, with several writing processes too: PIPE_BUF of
	// pipe(7).
	pieceMax = 4096
	// linesKeepMax is the largest buffer that is kept for reuse.
	linesKeepMax = 64 << 10
	// linesCloseTime bounds how long [Log.Close] waits for a write that hangs.
	linesCloseTime = 5 * time.Second
)

var errLinesFull = errors.New("telemetry: the log is too slow: a line is dropped")

// lines is a writer of lines that never blocks: a goroutine writes the queued lines in order.
// Lines that do not fit in the queue are dropped and counted. All methods are safe for
// concurrent use.
type lines struct {
	to      io.Writer
	report  func(dropped int) // logs how many lines are missing
	wake    chan struct{}     // holds a token while lines may be queued
	written chan struct{}     // closed when run has ended

	mu      sync.Mutex
	waiting []byte
	closing bool // run ends when the queue is empty
	ended   bool
	dropped int // since the latest report
	total   uint64
}

// startLines returns lines that are written to w; [lines.close] ends them. After the first
// successful write after drops, report is called with their number, on the goroutine that
// writes to w.
func startLines(w io.Writer, report func(dropped int)) *lines {
	l := &lines{to: w, report: report, wake: make(chan struct{}, 1), written: make(chan struct{})}
	go l.run()
	return l
}

// Write takes one line, which ends in a newline. An error means that it was dropped.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.waiting)+len(line) > linesBytesMax {
		l.lose(1)
		return 0, errLinesFull
	}
	if len(l.waiting) == 0 {
		l.signal()
	}
	l.waiting = append(l.waiting, line...)
	return len(line), nil
}

// lose counts dropped lines. mu must be held.
func (l *lines) lose(n int) {
	l.dropped += n
	l.total += uint64(n)
}

// signal wakes run.
func (l *lines) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lines) run() {
	defer close(l.written)
	var chunk []byte
	for range l.wake {
		for {
			var more bool
			if chunk, more = l.take(chunk); !more {
				return
			}
			if len(chunk) == 0 {
				break
			}
			l.put(chunk)
		}
	}
}

// take returns all queued lines; spare becomes the buffer for new ones. more is false when
// the queue is empty and closed.
func (l *lines) take(spare []byte) (chunk []byte, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chunk = l.waiting
	if l.waiting = spare[:0]; cap(spare) > linesKeepMax {
		l.waiting = nil
	}
	l.ended = l.closing && len(chunk) == 0
	return chunk, !l.ended
}

// put writes lines, in pieces that the kernel writes atomically to a pipe, and reports drops.
func (l *lines) put(chunk []byte) {
	for len(chunk) > 0 {
		end := len(chunk)
		if end > pieceMax {
			if end = bytes.LastIndexByte(chunk[:pieceMax], '\n') + 1; end == 0 {
				if end = bytes.IndexByte(chunk, '\n') + 1; end == 0 { // a longer line
					end = len(chunk)
				}
			}
		}
		if _, err := l.to.Write(chunk[:end]); err != nil {
			l.mu.Lock()
			l.lose(bytes.Count(chunk[:end], []byte{'\n'}))
			l.mu.Unlock()
		} else if dropped := l.takeDropped(); dropped > 0 {
			l.report(dropped)
		}
		chunk = chunk[end:]
	}
}

// takeDropped returns how many lines were dropped since the previous call.
func (l *lines) takeDropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := l.dropped
	l.dropped = 0
	return dropped
}

// lost returns the total of dropped lines.
func (l *lines) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// queued returns how many bytes wait to be written, without those that are being written.
func (l *lines) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// close refuses further lines once the queue is empty. It reports whether that happened
// within five seconds.
func (l *lines) close() (written bool) {
	l.mu.Lock()
	l.closing = true
	l.signal()
	l.mu.Unlock()
	timer := time.NewTimer(linesCloseTime)
	defer timer.Stop()
	select {
	case <-l.written:
		return true
	case <-timer.C:
		return false
	}
}
