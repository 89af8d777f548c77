package telemetry

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// linesBytesMax bounds the lines that wait to be written: some thousands.
	linesBytesMax = 1 << 20
	// pieceMax bounds what is written at once, but for a single line that is longer. A
	// pipe takes that much whole, also when several processes write to it: PIPE_BUF of
	// pipe(7).
	pieceMax = 4096
	// linesKeepMax is the largest buffer that is kept when it has been written.
	linesKeepMax = 64 << 10
	// linesCloseTime bounds how long [Log.Close] waits for a write that hangs.
	linesCloseTime = 5 * time.Second
)

var errLinesFull = errors.New("telemetry: the log is too slow: a line is dropped")

// lines is a writer of lines that never waits. A goroutine writes what has gathered, in
// the order in which it came; what there is no room for is dropped and
// counted. All methods are safe for concurrent use.
type lines struct {
	to      io.Writer
	confess func(dropped int) // writes to it how many lines are missing
	wake    chan struct{}     // has a token while there may be something to write
	written chan struct{}     // closed when, after close, all is

	mu      sync.Mutex
	waiting []byte
	closing bool // it ends when nothing waits
	ended   bool
	dropped int // since the latest confession
	total   uint64
}

// startLines returns lines that are written to w; [lines.close] ends them. When w takes
// something again after lines were dropped, confess writes to it how many, on the goroutine
// that writes to w.
func startLines(w io.Writer, confess func(dropped int)) *lines {
	l := &lines{to: w, confess: confess, wake: make(chan struct{}, 1), written: make(chan struct{})}
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
		l.rouse()
	}
	l.waiting = append(l.waiting, line...)
	return len(line), nil
}

// lose counts lines that nobody will see. By mu.
func (l *lines) lose(n int) {
	l.dropped += n
	l.total += uint64(n)
}

// rouse has run look for something to write.
func (l *lines) rouse() {
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

// take returns all that waits; what comes from now on is gathered in spare. more is false
// when nothing waits and nothing else will.
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

// put writes lines, in pieces that other processes cannot write into, and confesses.
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
		} else if dropped := l.confession(); dropped > 0 {
			l.confess(dropped)
		}
		chunk = chunk[end:]
	}
}

// confession returns how many lines were dropped since it was asked last.
func (l *lines) confession() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := l.dropped
	l.dropped = 0
	return dropped
}

// lost returns how many lines were dropped in all.
func (l *lines) lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// close returns when all that waits is written, after which no more is taken, or after
// five seconds, and reports which.
func (l *lines) close() (written bool) {
	l.mu.Lock()
	l.closing = true
	l.rouse()
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
