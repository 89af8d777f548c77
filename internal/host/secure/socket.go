package secure

import (
	"net"
	"sync"
	"time"
)

// socket is the transport of a [tls.Conn]: in memory during the handshake and in the loop,
// then a network connection. That of a [Channel] is one first, and in the loop then.
type socket struct {
	stage stage

	// During the handshake: its goroutine reads in and writes out.
	mu      sync.Mutex
	more    sync.Cond
	in      []byte
	record  records // tracks the records in in
	out     []byte
	failed  error
	waiting func(begins bool)

	// In the loop.
	send func([]byte)
	raw  []byte // what can be read

	// Detached, or outside.
	net   net.Conn
	heard bool // outside: something was read
}

type stage uint8

const (
	stageHandshake stage = iota // reads wait
	stageLoop                   // reads do not wait
	stageDetached               // net does everything
	stageOutside                // as stageDetached, but no read goes beyond a record
)

// errNoData ends a read in the loop that finds nothing. crypto/tls does not remember a
// temporary [net.Error], and keeps the part of a record that it has.
var errNoData net.Error = noData{}

type noData struct{}

func (noData) Error() string   { return "no data available" }
func (noData) Timeout() bool   { return true }
func (noData) Temporary() bool { return true }

func (s *socket) init(waiting func(begins bool)) {
	s.more.L = &s.mu
	s.waiting = waiting
}

// Read is called by the tls.Conn, on the goroutine that owns the stage.
func (s *socket) Read(p []byte) (int, error) {
	switch s.stage {
	case stageHandshake:
		return s.await(p)
	case stageLoop:
		if len(s.raw) == 0 {
			return 0, errNoData
		}
		n := copy(p, s.raw)
		s.raw = s.raw[n:]
		return n, nil
	case stageOutside:
		return s.readOutside(p)
	}
	return s.net.Read(p)
}

// readOutside reads to the end of the current record at most, and to that of its header before
// it knows where that is: what follows belongs to the loop.
func (s *socket) readOutside(p []byte) (n int, err error) {
	if most := s.record.most(); len(p) > most {
		p = p[:most]
	}
	if len(s.in) > 0 {
		n = copy(p, s.in)
		s.in = s.in[n:]
	} else {
		n, err = s.net.Read(p)
		s.heard = s.heard || n > 0
	}
	for b := p[:n]; len(b) > 0; {
		used, _ := s.record.next(b)
		b = b[used:]
	}
	return n, err
}

// await waits for the client.
func (s *socket) await(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.in) == 0 && s.failed == nil {
		s.mu.Unlock()
		s.waiting(true)
		s.mu.Lock()
		for len(s.in) == 0 && s.failed == nil {
			s.more.Wait()
		}
		s.mu.Unlock()
		s.waiting(false)
		s.mu.Lock()
	}
	if s.failed != nil {
		return 0, s.failed
	}
	// Never beyond the record: what follows the handshake's last one belongs to the loop.
	n, _ := s.record.next(s.in[:min(len(p), len(s.in))])
	copy(p, s.in[:n])
	s.in = s.in[n:]
	return n, nil
}

// Write is called by the tls.Conn.
func (s *socket) Write(p []byte) (int, error) {
	switch s.stage {
	case stageHandshake:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = append(s.out, p...)
		return len(p), nil
	case stageLoop:
		s.send(p)
		return len(p), nil
	}
	return s.net.Write(p)
}

// addInput adds what the client has sent.
func (s *socket) addInput(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = append(s.in, b...)
	s.more.Signal()
}

// fail ends the handshake with err.
func (s *socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	s.more.Signal()
}

// takeOutput returns the handshake's output since the last call.
func (s *socket) takeOutput() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out
	s.out = nil
	return out
}

// enterLoop begins stageLoop, after the handshake. Writes go to send. It returns the input
// that the handshake has not read.
func (s *socket) enterLoop(send func([]byte)) (unread []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread = s.in
	s.stage, s.send, s.net, s.in, s.out, s.waiting = stageLoop, send, nil, nil, nil, nil
	return unread
}

// Close closes the network connection, if it has one.
func (s *socket) Close() error {
	if s.net != nil {
		return s.net.Close()
	}
	return nil
}

// LocalAddr returns the local address, while it has a connection.
func (s *socket) LocalAddr() net.Addr {
	if s.net != nil {
		return s.net.LocalAddr()
	}
	return &net.TCPAddr{}
}

// RemoteAddr returns the client's address, while it has a connection.
func (s *socket) RemoteAddr() net.Addr {
	if s.net != nil {
		return s.net.RemoteAddr()
	}
	return &net.TCPAddr{}
}

// SetDeadline applies to the network connection; in the loop nothing waits.
func (s *socket) SetDeadline(t time.Time) error {
	if s.net != nil {
		return s.net.SetDeadline(t)
	}
	return nil
}

// SetReadDeadline applies while it has a connection.
func (s *socket) SetReadDeadline(t time.Time) error {
	if s.net != nil {
		return s.net.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline applies while it has a connection.
func (s *socket) SetWriteDeadline(t time.Time) error {
	if s.net != nil {
		return s.net.SetWriteDeadline(t)
	}
	return nil
}
