package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// errBackendBody marks errors that the backend has caused.
var errBackendBody = errors.New("the backend's body ended early")

// copyBytes bounds the part of a body that is held at a time.
const copyBytes = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// copy forwards the body as it arrives, and flushes each part: it may be an event stream.
func (e *exchange) copy(resp *http.Response) error {
	buf := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buf)
	control := http.NewResponseController(e.w)
	limits := &e.cfg.Limits
	idle := time.AfterFunc(limits.StreamTimeout, func() { e.cancel(errPause) })
	defer idle.Stop()
	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			idle.Stop() // the write deadline applies now
			_ = control.SetWriteDeadline(time.Now().Add(limits.WriteTimeout))
			if _, err := e.w.Write(buf[:n]); err != nil {
				return err
			}
			if resp.ContentLength < 0 || n < len(buf) {
				if err := control.Flush(); err != nil {
					return err
				}
			}
			idle.Reset(limits.StreamTimeout)
		}
		switch {
		case err == io.EOF:
			_ = control.SetWriteDeadline(time.Now().Add(limits.WriteTimeout)) // for what net/http still holds
			return nil
		case err != nil:
			return errors.Join(errBackendBody, err)
		}
	}
}

// body is the body of a request as the transport reads it. It must arrive at bodyRateMin at least
// and have at most Limits.BodyMax bytes.
type body struct {
	io.ReadCloser
	exchange *exchange
	control  *http.ResponseController
	began    time.Time
	received int64
	err      atomic.Pointer[httpError] // the error that the client has caused
	begun    atomic.Bool               // a read has begun
	ended    atomic.Bool               // all of it was read

	// The transport may read for a moment after the exchange has finished, and must not change
	// the deadlines of the next one.
	mu       sync.Mutex
	finished bool
}

func (b *body) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.finished {
		_ = b.control.SetReadDeadline(t)
	}
}

func (b *body) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = true
}

// Read reads, with a deadline that follows from bodyRateMin.
func (b *body) Read(p []byte) (int, error) {
	if !b.begun.Swap(true) {
		b.began = time.Now()
	}
	limits := &b.exchange.cfg.Limits
	b.setDeadline(b.began.Add(limits.HeadTimeout + time.Duration(b.received)*time.Second/bodyRateMin))
	n, err := b.ReadCloser.Read(p)
	if b.received += int64(n); b.received > limits.BodyMax {
		b.err.Store(errBodyTooLong)
		return 0, errBodyTooLong
	}
	b.exchange.timer.Reset(limits.AnswerTimeout) // it begins when the request is sent
	if err == io.EOF {
		b.ended.Store(true)
		b.setDeadline(time.Time{})
	} else if err != nil {
		b.classify(err)
	}
	return n, err
}

// Close is called by the transport after each try. Before the first byte another try may follow;
// the server then closes the body.
func (b *body) Close() error {
	if b.begun.Load() {
		return b.ReadCloser.Close()
	}
	return nil
}

// classify records the error that the client has caused by err, within the body.
func (b *body) classify(err error) {
	var timeout net.Error
	if f := b.exchange.connError(); f != nil {
		b.err.Store(f)
	} else if errors.As(err, &timeout) && timeout.Timeout() {
		b.err.Store(errBodyTimeout)
	} else if !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.err.Store(refuse("the body does not have the announced length"))
	}
}

// connKey is the key of a request's *validatingConn in its context.
type connKey struct{}
