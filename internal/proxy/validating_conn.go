package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/requestid"
)

// validatingConn is a client's connection that net/http reads through. It passes unchanged what
// parseRequest accepts, and ends the input at anything else: net/http is more lenient and accepts
// folded lines, lone LFs, and both Content-Length and Transfer-Encoding.
//
// In place of a head that it refuses it passes a last request of its own. So net/http answers
// the earlier requests first and then calls the handler, which answers with the refusal. An error
// would not do: net/http reads ahead and cancels the request in progress for it.
//
// HTTP/2 passes unchanged; its framing is unambiguous.
type validatingConn struct {
	net.Conn
	secure     bool
	closed     atomic.Bool
	onClose    func()
	beforeRead func() error // called once, before the first Read; may be nil

	// Only the reader uses these.
	buf       []byte // read from the connection
	passed    int    // the part of buf that Read has returned
	cleared   int    // the part of buf that Read may return
	err       error  // of the connection; buf is returned first
	state     validatingState
	remaining int64 // of a body with a length
	chunks    chunks
	request   request
	anyPassed bool // a head has passed

	// answering is set while a handler has a request, and always for HTTP/2: what net/http
	// writes then is an answer.
	answering atomic.Bool
	// readDeadline bounds all further reads, as unix nanoseconds, unless it is 0: net/http would
	// wait for the rest of a body without a deadline, or with one that it clears.
	readDeadline atomic.Int64
	// heads counts those that have passed, handledHeads the requests that net/http has given to
	// a handler: never more.
	heads        atomic.Int64
	handledHeads int64 // net/http's goroutine

	refusal      atomic.Pointer[httpError] // why the input has ended
	bodyError    atomic.Pointer[httpError] // the same, within a body
	bodyTimedOut atomic.Bool
}

type validatingState uint8

const (
	validatingHead validatingState = iota
	validatingLength
	validatingChunked
	validatingOff     // everything passes
	validatingRefused // nothing else passes
)

// validatingReadSize is the size of a read, in bytes.
const validatingReadSize = 4 << 10

// Read returns what has passed validation.
func (vc *validatingConn) Read(p []byte) (int, error) {
	if vc.beforeRead != nil {
		if err := vc.beforeRead(); err != nil {
			return 0, err
		}
		vc.beforeRead = nil
	}
	for vc.passed == vc.cleared {
		if vc.state == validatingRefused {
			return 0, io.EOF
		}
		if f := vc.refusal.Load(); f != nil {
			return 0, f
		}
		if vc.state == validatingOff && vc.passed == len(vc.buf) {
			vc.buf, vc.passed, vc.cleared = nil, 0, 0
			return vc.Conn.Read(p)
		}
		if vc.advance(); vc.passed < vc.cleared || vc.refusal.Load() != nil {
			continue
		}
		if vc.err != nil {
			return 0, vc.end()
		}
		vc.fill()
	}
	n := copy(p, vc.buf[vc.passed:vc.cleared])
	vc.passed += n
	return n, nil
}

// end returns why the input has ended. Within a head or body that is not io.EOF. After a timeout
// reading may go on: net/http interrupts a read by a deadline.
func (vc *validatingConn) end() error {
	err := vc.err
	var timeout net.Error
	switch {
	case err == io.EOF && (vc.state != validatingHead || vc.passed < len(vc.buf)):
		return io.ErrUnexpectedEOF
	case errors.As(err, &timeout) && timeout.Timeout():
		vc.err = nil
		vc.bodyTimedOut.Store(vc.bodyTimedOut.Load() || vc.state == validatingLength || vc.state == validatingChunked)
	}
	return err
}

// fill reads more into the buffer.
func (vc *validatingConn) fill() {
	if vc.passed > 0 {
		n := copy(vc.buf, vc.buf[vc.passed:])
		vc.buf, vc.cleared, vc.passed = vc.buf[:n], vc.cleared-vc.passed, 0
	}
	if cap(vc.buf)-len(vc.buf) < validatingReadSize/2 {
		vc.buf = append(make([]byte, 0, 2*cap(vc.buf)+validatingReadSize), vc.buf...)
	}
	if until := vc.readDeadline.Load(); until != 0 {
		_ = vc.Conn.SetReadDeadline(time.Unix(0, until))
	}
	n, err := vc.Conn.Read(vc.buf[len(vc.buf):cap(vc.buf)])
	vc.buf = vc.buf[:len(vc.buf)+n]
	vc.err = err
}

// advance clears as much of the buffer as it can.
func (vc *validatingConn) advance() {
	b := vc.buf[vc.cleared:]
	if len(b) == 0 && vc.state != validatingOff {
		return
	}
	switch vc.state {
	case validatingOff:
		vc.cleared = len(vc.buf)
	case validatingHead:
		vc.head(b)
	case validatingLength:
		n := min(int64(len(b)), vc.remaining)
		if vc.remaining -= n; vc.remaining == 0 {
			vc.state = validatingHead
		}
		vc.cleared += int(n)
	case validatingChunked:
		n, err := vc.chunks.scan(b)
		vc.cleared += n
		if err != nil {
			vc.refusal.Store(err)
			vc.bodyError.Store(err)
		} else if vc.chunks.done() {
			vc.state = validatingHead
		}
	}
}

func (vc *validatingConn) head(b []byte) {
	if !vc.anyPassed && !vc.secure {
		switch isHTTP2(b) {
		case whole:
			vc.state, vc.cleared = validatingOff, len(vc.buf)
			vc.answering.Store(true)
			return
		case partial:
			return
		}
	}
	r := &vc.request
	v, err := parseRequest(b, r)
	if err == nil && v == whole {
		err = r.refusal(b)
	}
	switch {
	case err != nil:
		vc.refusal.Store(err)
		vc.heads.Add(1)
		vc.state, vc.buf, vc.passed = validatingRefused, []byte(refusedRequest), 0
		vc.cleared = len(vc.buf)
		return
	case v == partial:
		return
	}
	vc.anyPassed = true
	vc.heads.Add(1)
	vc.bodyTimedOut.Store(false)
	vc.cleared += r.size
	switch {
	case r.chunked:
		vc.state, vc.chunks = validatingChunked, chunks{}
	case r.length > 0:
		vc.state, vc.remaining = validatingLength, r.length
	}
}

// refusedMethod marks the request that replaces a refused one. A client's own request with this
// method is forwarded, because vc.refusal is not set.
const (
	refusedMethod  = "REFUSED"
	refusedRequest = refusedMethod + " / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
)

// netHTTPType occurs in what net/http answers by itself, without a handler.
const netHTTPType = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// handled notes that a handler has a request of HTTP/1, and reports whether its head has passed.
// If not, net/http has parsed something else as a request.
func (vc *validatingConn) handled() bool {
	vc.answering.Store(true)
	vc.handledHeads++
	return vc.handledHeads <= vc.heads.Load()
}

// idle notes that net/http is waiting for the next request.
func (vc *validatingConn) idle() {
	if vc.state != validatingOff {
		vc.answering.Store(false)
	}
}

// Write writes an answer. It replaces what net/http writes by itself, between answers, about a
// request that it could not read.
func (vc *validatingConn) Write(p []byte) (int, error) {
	if vc.answering.Load() {
		return vc.Conn.Write(p)
	}
	const statusAt = len("HTTP/1.1 ")
	i := bytes.Index(p[:min(len(p), 200)], []byte(netHTTPType))
	if i < 0 || !bytes.HasPrefix(p, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(p, []byte("HTTP/1.1 5")) {
		return vc.Conn.Write(p)
	}
	f := refuse(string(p[i+len(netHTTPType):]))
	if status, ok := head.ParseLength(p[statusAt : statusAt+3]); ok {
		f.status = int(status)
	}
	t := requestid.Start(nil, nil)
	own := []byte(requestid.FieldID + ": " + t.ID + "\r\n" + requestid.FieldTraceparent + ": " + t.Trace.String() + "\r\n")
	if _, err := vc.Conn.Write(f.append(nil, own, true, false, time.Now())); err != nil {
		return 0, err
	}
	return len(p), nil
}

// reset resets the connection, so that the client sees no regular end.
func (vc *validatingConn) reset() {
	for c := vc.Conn; ; {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
			return
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = outer.NetConn()
	}
}

// NetConn returns the underlying connection.
func (vc *validatingConn) NetConn() net.Conn { return vc.Conn }

// CloseWrite lets net/http close the sending side first, so that a client that is still sending
// can read the answer.
func (vc *validatingConn) CloseWrite() error {
	if w, ok := vc.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return net.ErrClosed
}

// Close closes the connection and calls onClose once.
func (vc *validatingConn) Close() error {
	err := vc.Conn.Close()
	if vc.closed.CompareAndSwap(false, true) && vc.onClose != nil {
		vc.onClose()
	}
	return err
}
