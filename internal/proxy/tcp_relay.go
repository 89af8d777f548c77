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
	// idleCheckMax bounds [relay.check].
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
	cut   atomic.Pointer[TCPOutcome]

	up, down direction
}

// direction is how one has ended.
type direction struct {
	ended chan struct{} // closed then
	reset bool          // its receiver had reset the connection; valid once ended is closed
}

var (
	// errRelayIdle ends a relay on which nothing moves.
	errRelayIdle = errors.New("idle for too long")
	// errReceiverGone and errReceiverStuck end a direction whose receiver is gone, or takes nothing.
	errReceiverGone  = errors.New("the receiver is gone")
	errReceiverStuck = errors.New("the receiver takes nothing")
	// errSenderReset ends a direction whose sender has reset the connection, which the other direction
	// has found out.
	errSenderReset = errors.New("the sender has reset the connection")
)

// run returns when both directions have ended and both connections are closed.
func (r *relay) run() TCPOutcome {
	r.up.ended, r.down.ended = make(chan struct{}), make(chan struct{})
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
	seen, silent := r.moves.Load(), time.Duration(0)
	for {
		_ = from.SetReadDeadline(time.Now().Add(r.check()))
		n, readErr := from.Read(buffer)
		if n > 0 {
			_ = to.SetWriteDeadline(time.Now().Add(r.idle))
			if _, err := to.Write(buffer[:n]); err != nil {
				return r.writeFailed(this, err)
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
		case errors.Is(readErr, errReceiverGone), readErr == errReceiverStuck:
			return r.writeFailed(this, readErr)
		case !errors.Is(readErr, os.ErrDeadlineExceeded):
			r.abort(TCPReset)
			return readErr
		default:
			// What counts is waits, not the clock: after a pause of this process, bytes that have
			// arrived meanwhile are carried first.
			if silent += r.check(); r.moves.Load() != seen {
				seen, silent = r.moves.Load(), 0
			}
			if silent >= r.idle {
				r.abort(TCPIdle)
				return errRelayIdle
			}
		}
	}
}

// writeFailed ends a direction whose receiver is gone or takes nothing. If it is gone, the other
// direction first delivers what it had sent.
func (r *relay) writeFailed(d *direction, err error) error {
	if err == errReceiverStuck || errors.Is(err, os.ErrDeadlineExceeded) {
		r.abort(TCPIdle)
	}
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
// A deadline for reading loses no bytes: it expires only while the pipe is empty. One for writing
// does, and therefore always ends the connection.
func (r *relay) stream(to, from *net.TCPConn, up bool) error {
	var dst io.Writer = to
	var src io.Reader = from
	select {
	case r.splices <- struct{}{}:
		defer func() { <-r.splices }()
	default: // hide what they are, so that io.Copy copies
		dst, src = struct{ io.Writer }{to}, struct{ io.Reader }{from}
	}
	for {
		// As the deadline for writing also counts while there is nothing to write, it comes later.
		writeBy := time.Now().Add(r.idle + spliceTime)
		_ = to.SetWriteDeadline(writeBy)
		_ = from.SetReadDeadline(time.Now().Add(min(spliceTime, r.idle/4)))
		n, err := io.Copy(dst, src)
		r.note(up, int(n))
		switch late := errors.Is(err, os.ErrDeadlineExceeded); {
		case err == nil:
			return io.EOF
		case late && !time.Now().Before(writeBy):
			return errReceiverStuck
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

// check is how long a silent direction waits until it looks whether the other one is silent, too.
func (r *relay) check() time.Duration { return min(r.idle/4, idleCheckMax) }

// note notes that n bytes have moved.
func (r *relay) note(up bool, n int) {
	if n > 0 {
		r.moves.Add(1)
		r.moved(up, n)
	}
}
