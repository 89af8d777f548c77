package http1

import (
	"net"
	"sync"
	"time"
)

// socket is what lies beneath a [tls.Conn], in the three stages of its life.
type socket struct {
	stage stage

	// Shaking hands: the goroutine of that reads in, and leaves what it says in out.
	mu     sync.Mutex
	more   sync.Cond
	in     []byte
	record records // where in is
	out    []byte
	failed error
	ask    func(waiting bool)

	// In the loop.
	send func([]byte)
	raw  []byte // what can be read

	// Out of the loop.
	net net.Conn
}

type stage uint8

const (
	shaking stage = iota // reading waits
	looping              // reading does not wait
	leaving              // all is left to net
)

// errNothing is what reading in the loop ends with. crypto/tls takes a temporary error of
// a [net.Error] for one that passes, and keeps the part of a record that it has.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing to be read now" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

func (s *socket) init(ask func(waiting bool)) {
	s.more.L = &s.mu
	s.ask = ask
}

// Read is called by the tls.Conn, on the goroutine that its stage belongs to.
func (s *socket) Read(p []byte) (int, error) {
	switch s.stage {
	case shaking:
		return s.await(p)
	case looping:
		if len(s.raw) == 0 {
			return 0, errNothing
		}
		n := copy(p, s.raw)
		s.raw = s.raw[n:]
		return n, nil
	}
	return s.net.Read(p)
}

// await waits for the client.
func (s *socket) await(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.in) == 0 && s.failed == nil {
		s.mu.Unlock()
		s.ask(true)
		s.mu.Lock()
		for len(s.in) == 0 && s.failed == nil {
			s.more.Wait()
		}
		s.mu.Unlock()
		s.ask(false)
		s.mu.Lock()
	}
	if s.failed != nil {
		return 0, s.failed
	}
	// Not beyond the record: what follows the last one of the handshake is the loop's.
	n, _ := s.record.next(s.in[:min(len(p), len(s.in))])
	copy(p, s.in[:n])
	s.in = s.in[n:]
	return n, nil
}

// Write is called by the tls.Conn.
func (s *socket) Write(p []byte) (int, error) {
	switch s.stage {
	case shaking:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = append(s.out, p...)
		return len(p), nil
	case looping:
		s.send(p)
		return len(p), nil
	}
	return s.net.Write(p)
}

// feed adds what the client has said.
func (s *socket) feed(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = append(s.in, b...)
	s.more.Signal()
}

// fail ends a handshake.
func (s *socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	s.more.Signal()
}

// said returns what the handshake wants to send, since it was last called.
func (s *socket) said() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out
	s.out = nil
	return out
}

// move takes the socket into the loop when the handshake has ended, where it sends by
// send. It returns what the handshake has left unread.
func (s *socket) move(send func([]byte)) (unread []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread = s.in
	s.stage, s.send, s.in, s.out, s.ask = looping, send, nil, nil, nil
	return unread
}

// Close closes what is beneath, once that is known.
func (s *socket) Close() error {
	if s.stage == leaving {
		return s.net.Close()
	}
	return nil
}

// LocalAddr returns the address of what is beneath, once that is known.
func (s *socket) LocalAddr() net.Addr {
	if s.stage == leaving {
		return s.net.LocalAddr()
	}
	return &net.TCPAddr{}
}

// RemoteAddr returns the address of the client, once that is known.
func (s *socket) RemoteAddr() net.Addr {
	if s.stage == leaving {
		return s.net.RemoteAddr()
	}
	return &net.TCPAddr{}
}

// SetDeadline sets that of what is beneath. In the loop nothing waits.
func (s *socket) SetDeadline(t time.Time) error {
	if s.stage == leaving {
		return s.net.SetDeadline(t)
	}
	return nil
}

// SetReadDeadline does so for reading.
func (s *socket) SetReadDeadline(t time.Time) error {
	if s.stage == leaving {
		return s.net.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline does so for writing.
func (s *socket) SetWriteDeadline(t time.Time) error {
	if s.stage == leaving {
		return s.net.SetWriteDeadline(t)
	}
	return nil
}
