package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// relayBufferSize is the buffer of each direction of a connection, which it has all the time: a
	// message that fits takes two system calls and no pipe.
	relayBufferSize = 4 << 10
	// spliceTime is how long a direction keeps its pipe when nothing more arrives.
	spliceTime = 250 * time.Millisecond
	// idleCheckMax bounds the time between two looks at whether bytes move.
	idleCheckMax = 30 * time.Second
	// resetWait bounds [relay.wasReset]. It passes only if a side ended its output, and then reset the
	// connection.
	resetWait = time.Second
)

// relay carries the bytes of one connection in both directions until both have ended. A side that
// closes its sending direction has that passed on (a half-close), and the other direction goes
// on. A side that resets the connection, or dies, has that passed on as well: a truncated stream
// must not look complete.
//
// Nothing is queued here. A direction reads on when its bytes were written, so a side that does
// not read makes TCP stop the other one.
type relay struct {
	client, backend *net.TCPConn
	idle            time.Duration
	splices         chan struct{} // a token for each pipe in use
	moved           func(up bool, n int)

	moves atomic.Uint64 // how often bytes have moved
	ended atomic.Bool
	cut   atomic.Pointer[TCPOutcome]

	up, down direction
}

// direction is how one has ended.
type direction struct {
	ended chan struct{} // closed then
	reset bool          // its receiver had reset the connection; valid once ended is closed
}

var (
	// errReceiverGone ends a direction whose receiver is gone.
	errReceiverGone = errors.New("the receiver is gone")
	// errSenderReset ends a direction whose sender has reset the connection, which the other direction
	// has found out.
	errSenderReset = errors.New("the sender has reset the connection")
)

// run returns when both directions have ended and both connections are closed.
func (r *relay) run() TCPOutcome {
	r.up.ended, r.down.ended = make(chan struct{}), make(chan struct{})
	defer r.watch()()
	var up, down error
	var other sync.WaitGroup
	other.Go(func() { up = r.carry(r.backend, r.client, true) })
	down = r.carry(r.client, r.backend, false)
	other.Wait()
	if down != nil {
		_ = r.client.SetLinger(0) // a reset: the answer is not complete
	}
	if up != nil {
		_ = r.backend.SetLinger(0)
	}
	_ = r.client.Close()
	_ = r.backend.Close()
	if cause := r.cut.Load(); cause != nil {
		return *cause
	}
	if up != nil || down != nil {
		return TCPReset
	}
	return TCPClosed
}

// watch resets both sides when nothing has moved for r.idle, and returns what ends that. What a side has
// acknowledged counts as moved: to a slow reader with a large send buffer nothing can be written for long.
// Waits are counted, not the clock: after a pause of this process, bytes that have arrived meanwhile are
// carried first.
func (r *relay) watch() (end func()) {
	type progress struct{ moves, client, backend uint64 }
	look := func() progress { return progress{r.moves.Load(), taken(r.client), taken(r.backend)} }
	every := min(r.idle/4, idleCheckMax)
	seen, silent := look(), time.Duration(0)
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		if r.ended.Load() {
			return
		}
		silent += every
		if now := look(); now != seen {
			seen, silent = now, 0
		}
		if silent >= r.idle {
			r.abort(TCPIdle)
			return
		}
		timer.Reset(every)
	})
	timer.Reset(every) // now the function can use it
	return func() {
		r.ended.Store(true)
		timer.Stop()
	}
}

// abort resets both sides. The first outcome counts.
func (r *relay) abort(outcome TCPOutcome) {
	r.cut.CompareAndSwap(nil, &outcome)
	for _, c := range []*net.TCPConn{r.client, r.backend} {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// carry is one direction. It returns nil after it has passed on that from has ended.
func (r *relay) carry(to, from *net.TCPConn, up bool) error {
	this, other := &r.down, &r.up
	if up {
		this, other = other, this
	}
	defer close(this.ended)
	buffer := make([]byte, relayBufferSize)
	for {
		n, readErr := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return this.writeFailed(err)
			}
			r.note(up, n)
		}
		if readErr == nil && n == len(buffer) {
			readErr = r.stream(to, from, up)
		}
		switch {
		case readErr == nil:
		case readErr == io.EOF && wasReset(from, other):
			r.abort(TCPReset)
			return errSenderReset
		case readErr == io.EOF:
			return to.CloseWrite()
		case errors.Is(readErr, errReceiverGone):
			return this.writeFailed(readErr)
		default:
			r.abort(TCPReset)
			return readErr
		}
	}
}

// writeFailed ends a direction whose receiver is gone. The other direction first delivers what that had sent.
func (d *direction) writeFailed(err error) error {
	// EPIPE means that the receiver had ended its output before: all that it sent is complete.
	d.reset = !errors.Is(err, syscall.EPIPE)
	return err
}

// wasReset reports whether the end of what from sends is a reset of the connection. The system tells
// that once, to the first who reads or writes; later reads end as if the other side had closed it. So
// the direction to from may be the one that knows, and may not have said so yet.
func wasReset(from *net.TCPConn, to *direction) bool {
	if isGone(from) {
		timer := time.NewTimer(resetWait)
		defer timer.Stop()
		select {
		case <-to.ended:
		case <-timer.C:
		}
	}
	select {
	case <-to.ended:
		return to.reset
	default:
		return false
	}
}

// stream carries many bytes. Between TCP connections io.Copy has Linux move them through a pipe,
// without a copy to this process (splice). It returns nil when nothing has arrived for spliceTime,
// io.EOF at the end, or an error.
//
// A deadline for reading loses no bytes: it expires only while the pipe is empty.
func (r *relay) stream(to, from *net.TCPConn, up bool) error {
	var dst io.Writer = to
	var src io.Reader = from
	select {
	case r.splices <- struct{}{}:
		defer func() { <-r.splices }()
	default: // hide what they are, so that io.Copy copies
		dst, src = struct{ io.Writer }{to}, struct{ io.Reader }{from}
	}
	defer from.SetReadDeadline(time.Time{})
	for {
		_ = from.SetReadDeadline(time.Now().Add(spliceTime))
		n, err := io.Copy(dst, src)
		r.note(up, int(n))
		switch late := errors.Is(err, os.ErrDeadlineExceeded); {
		case err == nil:
			return io.EOF
		case late && n == 0:
			return nil
		case !late && alive(from):
			return fmt.Errorf("%w: %w", errReceiverGone, err)
		case !late:
			return err
		}
	}
}

// alive reports whether from can still be read, after a copy from it has failed. The error of a
// splice does not tell which side it is about. The bytes that it reads are lost: there is nobody to
// receive them.
func alive(from *net.TCPConn) bool {
	_ = from.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := from.Read(make([]byte, 1))
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// note notes that n bytes have moved.
func (r *relay) note(up bool, n int) {
	if n > 0 {
		r.moves.Add(1)
		r.moved(up, n)
	}
}
