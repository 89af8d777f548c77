package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/front/head"
	"github.com/isotone/isotone/internal/front/transaction"
)

// screen is a client's connection on its way to net/http, which reads through it. It lets
// through what the proxy's own parser has found to have one meaning, as it came, and ends
// the input at anything else. net/http is more lenient: it takes folded lines, lone LFs,
// and both Content-Length and Transfer-Encoding.
//
// In place of a head that it refuses it lets a request of its own through, the last: so
// net/http answers what came before, and then has the handler say what was wrong. An error
// would not do: net/http reads ahead, and gives up the request in work for it.
//
// HTTP/2 passes as it is; its framing has nothing to argue about.
type screen struct {
	net.Conn
	secure bool
	closed atomic.Bool
	gone   func()
	begin  func() error // before the first Read; may be nil

	// The rest belongs to the reader.
	buf     []byte // read from the connection
	passed  int    // of which this was given away
	cleared int    // and this may be
	err     error  // of the connection; what is in buf comes first
	state   screenState
	left    int64 // of a body with a length
	chunks  chunks
	request request
	any     bool // something has been let through

	// busy is set while net/http has given a request to a handler, and for ever on a
	// connection that speaks HTTP/2: what it writes is an answer.
	busy atomic.Bool
	// until bounds what is read from now on, as unix nanoseconds, if it is not 0: net/http
	// would wait for the rest of a body without a deadline, or with one that it clears.
	until atomic.Int64
	// heads counts those that were let through, and begun the requests that net/http has
	// given to a handler: never more.
	heads atomic.Int64
	begun int64 // net/http's

	fault atomic.Pointer[fault] // why the input has ended
	body  atomic.Pointer[fault] // the same, within a body
	late  atomic.Bool           // a body did not come in time
}

type screenState uint8

const (
	screenHead screenState = iota
	screenLength
	screenChunked
	screenThrough // everything passes
	screenRefused // nothing more does
)

// screenReadSize is how much is read at once.
const screenReadSize = 4 << 10

// Read returns what may pass.
func (s *screen) Read(p []byte) (int, error) {
	if s.begin != nil {
		if err := s.begin(); err != nil {
			return 0, err
		}
		s.begin = nil
	}
	for s.passed == s.cleared {
		if s.state == screenRefused {
			return 0, io.EOF
		}
		if f := s.fault.Load(); f != nil {
			return 0, f
		}
		if s.state == screenThrough && s.passed == len(s.buf) {
			s.buf, s.passed, s.cleared = nil, 0, 0
			return s.Conn.Read(p)
		}
		if s.advance(); s.passed < s.cleared || s.fault.Load() != nil {
			continue
		}
		if s.err != nil {
			return 0, s.end()
		}
		s.fill()
	}
	n := copy(p, s.buf[s.passed:s.cleared])
	s.passed += n
	return n, nil
}

// end returns why there is no more, which within a head or body is no clean end. After a
// deadline there may be more: net/http uses one to interrupt a read.
func (s *screen) end() error {
	err := s.err
	var timeout net.Error
	switch {
	case err == io.EOF && (s.state != screenHead || s.passed < len(s.buf)):
		return io.ErrUnexpectedEOF
	case errors.As(err, &timeout) && timeout.Timeout():
		s.err = nil
		s.late.Store(s.late.Load() || s.state == screenLength || s.state == screenChunked)
	}
	return err
}

// fill reads more.
func (s *screen) fill() {
	if s.passed > 0 {
		n := copy(s.buf, s.buf[s.passed:])
		s.buf, s.cleared, s.passed = s.buf[:n], s.cleared-s.passed, 0
	}
	if cap(s.buf)-len(s.buf) < screenReadSize/2 {
		s.buf = append(make([]byte, 0, 2*cap(s.buf)+screenReadSize), s.buf...)
	}
	if until := s.until.Load(); until != 0 {
		_ = s.Conn.SetReadDeadline(time.Unix(0, until))
	}
	n, err := s.Conn.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	s.err = err
}

// advance clears what it can of the buffer.
func (s *screen) advance() {
	b := s.buf[s.cleared:]
	if len(b) == 0 && s.state != screenThrough {
		return
	}
	switch s.state {
	case screenThrough:
		s.cleared = len(s.buf)
	case screenHead:
		s.head(b)
	case screenLength:
		n := min(int64(len(b)), s.left)
		if s.left -= n; s.left == 0 {
			s.state = screenHead
		}
		s.cleared += int(n)
	case screenChunked:
		n, err := s.chunks.scan(b)
		s.cleared += n
		if err != nil {
			s.fault.Store(err)
			s.body.Store(err)
		} else if s.chunks.done() {
			s.state = screenHead
		}
	}
}

func (s *screen) head(b []byte) {
	if !s.any && !s.secure {
		switch isHTTP2(b) {
		case whole:
			s.state, s.cleared = screenThrough, len(s.buf)
			s.busy.Store(true)
			return
		case partial:
			return
		}
	}
	r := &s.request
	v, err := parseRequest(b, r)
	if err == nil && v == whole {
		err = r.refusal(b)
	}
	switch {
	case err != nil:
		s.fault.Store(err)
		s.heads.Add(1)
		s.state, s.buf, s.passed = screenRefused, []byte(refusedRequest), 0
		s.cleared = len(s.buf)
		return
	case v == partial:
		return
	}
	s.any = true
	s.heads.Add(1)
	s.late.Store(false)
	s.cleared += r.size
	switch {
	case r.chunked:
		s.state, s.chunks = screenChunked, chunks{}
	case r.length > 0:
		s.state, s.left = screenLength, r.length
	}
}

// refusedMethod is that of the request in place of one that was refused. A client that
// sends it itself has its own request forwarded: the fault is what counts.
const (
	refusedMethod  = "REFUSED"
	refusedRequest = refusedMethod + " / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"
)

// bareType is in what net/http itself says to a request that it does not give to a
// handler.
const bareType = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// handled notes that a handler has a request of HTTP/1, and reports whether that was let
// through. If not, net/http has taken something else for a request.
func (s *screen) handled() bool {
	s.busy.Store(true)
	s.begun++
	return s.begun <= s.heads.Load()
}

// idle notes that net/http waits for the next request.
func (s *screen) idle() {
	if s.state != screenThrough {
		s.busy.Store(false)
	}
}

// Write writes an answer. net/http's own words for a request that it could not read, which
// it says between answers, are replaced by the proxy's.
func (s *screen) Write(p []byte) (int, error) {
	if s.busy.Load() {
		return s.Conn.Write(p)
	}
	const statusAt = len("HTTP/1.1 ")
	i := bytes.Index(p[:min(len(p), 200)], []byte(bareType))
	if i < 0 || !bytes.HasPrefix(p, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(p, []byte("HTTP/1.1 5")) {
		return s.Conn.Write(p)
	}
	f := refuse(string(p[i+len(bareType):]))
	if status, ok := head.ParseLength(p[statusAt : statusAt+3]); ok {
		f.status = int(status)
	}
	t := transaction.Start(nil, nil)
	own := []byte(transaction.FieldID + ": " + t.ID + "\r\n" + transaction.FieldTraceparent + ": " + t.Trace.String() + "\r\n")
	if _, err := s.Conn.Write(f.append(nil, own, true, false, time.Now())); err != nil {
		return 0, err
	}
	return len(p), nil
}

// reset ends the connection in such a way that the client sees no regular end.
func (s *screen) reset() {
	for c := s.Conn; ; {
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

// NetConn returns the connection beneath.
func (s *screen) NetConn() net.Conn { return s.Conn }

// CloseWrite lets net/http end its output before it closes, so that a client that is
// still sending can read the answer.
func (s *screen) CloseWrite() error {
	if w, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return net.ErrClosed
}

// Close closes the connection, and gives its place back, once.
func (s *screen) Close() error {
	err := s.Conn.Close()
	if s.closed.CompareAndSwap(false, true) && s.gone != nil {
		s.gone()
	}
	return err
}
