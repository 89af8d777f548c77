package http2

import (
	"io"
	"os"
	"sync"
	"time"
)

// body is the body of a request, of which at most bodyMax bytes are unread.
type body struct {
	exchange *exchange
	expected bool // the client waits for "100 Continue"
	come     chan struct{}

	mu    sync.Mutex
	b     []byte
	err   error // after b
	read  int64 // by the handler, and not given back to the client yet
	timer *time.Timer
}

// add adds what has come. It runs on the loop's goroutine.
func (y *body) add(b []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.b = append(y.b, b...)
	y.signal()
}

// end says what follows what has come; nil: nothing.
func (y *body) end(err error) {
	if err == nil {
		err = io.EOF
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err == nil {
		y.err = err
	}
	y.signal()
}

func (y *body) signal() {
	select {
	case y.come <- struct{}{}:
	default:
	}
}

// Read is that of [http.Request.Body].
func (y *body) Read(p []byte) (int, error) {
	if y.expected {
		y.expected = false
		y.exchange.askForBody()
	}
	for {
		n, err := y.take(p)
		if n > 0 {
			y.exchange.hasRead()
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		<-y.come
	}
}

func (y *body) take(p []byte) (int, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.b) == 0 {
		if y.err != nil {
			y.signal() // for the next Read
		}
		return 0, y.err
	}
	n := copy(p, y.b)
	if y.b = y.b[n:]; len(y.b) == 0 {
		y.b = nil
	}
	y.read += int64(n)
	return n, nil
}

// Close discards the rest.
func (y *body) Close() error {
	y.end(errEnded)
	return nil
}

// takeRead returns what the client may be given back.
func (y *body) takeRead() int64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	n := y.read
	y.read = 0
	return n
}

// drop returns the same at the end of the stream, with what nobody reads any more.
func (y *body) drop() int64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	n := y.read + int64(len(y.b))
	y.read, y.b = 0, nil
	if y.timer != nil {
		y.timer.Stop()
	}
	return n
}

// rest returns what nobody has read. There is no more, as no handler reads any more.
func (y *body) rest() []byte {
	if y == nil {
		return nil
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	b := y.b
	y.b = nil
	if y.timer != nil {
		y.timer.Stop()
	}
	return b
}

// setDeadline has Read fail from a time on; the zero time: never.
func (y *body) setDeadline(at time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.timer != nil {
		y.timer.Stop()
	}
	if !at.IsZero() {
		y.timer = time.AfterFunc(time.Until(at), func() { y.end(os.ErrDeadlineExceeded) })
	}
}

// hasRead has the loop give back what was read.
func (x *exchange) hasRead() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.post()
}

// askForBody sends "100 Continue", unless the answer has begun.
func (x *exchange) askForBody() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waits = true
	x.post()
}
