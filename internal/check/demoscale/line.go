package demoscale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// lineBytesMax bounds a line in either direction: the longest is a list of all workers.
const lineBytesMax = 8 << 10

// lineServer answers lines over TCP, one by one and in order on each connection. The workers and
// the name service speak such a protocol:
//
//	worker:        WORD            OK PLACE hit|miss ANSWER, or ERR REASON
//	name service:  HERE NAME ADDR  OK
//	               LIST            OK NAME=ADDR NAME=ADDR …
type lineServer struct {
	addr     string
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*net.TCPConn]bool
}

// serveLines answers lines at addr. An error of answer ends the connection.
func serveLines(addr string, answer func(ctx context.Context, line string) (string, error)) (*lineServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &lineServer{addr: l.Addr().String(), listener: l, conns: map[*net.TCPConn]bool{}}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := nc.(*net.TCPConn)
			if s.add(c) {
				s.running.Go(func() { s.serve(ctx, c, answer) })
			}
		}
	})
	return s, nil
}

// add notes a connection, or closes it if the server has ended.
func (s *lineServer) add(c *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return false
	}
	s.conns[c] = true
	return true
}

func (s *lineServer) serve(ctx context.Context, c *net.TCPConn, answer func(context.Context, string) (string, error)) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReaderSize(c, lineBytesMax)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		text, err := answer(ctx, strings.TrimSuffix(string(line), "\n"))
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, text+"\n"); err != nil {
			return
		}
	}
}

// kill ends the server as kill -9 ends a process: connections are reset, and what was in progress
// is lost. It returns when all goroutines have ended.
func (s *lineServer) kill() {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	s.mu.Unlock()
	_ = s.listener.Close()
	s.cancel()
	s.running.Wait()
}

// answerLine answers a line with a word.
func (w *worker) answerLine(ctx context.Context, word string) (string, error) {
	if word == "" || len(word) > wordBytesMax || strings.ContainsAny(word, " \r") {
		return "ERR want a short word", nil
	}
	answer, how, err := w.answer(ctx, word)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("OK %d %s %s", w.place, how, answer), nil
}

// lineConn is the client's side of a connection.
type lineConn struct {
	conn net.Conn
	in   *bufio.Reader
}

// dialTime bounds connecting. Everything is on one machine.
const dialTime = time.Second

func dialLine(ctx context.Context, addr string) (*lineConn, error) {
	dialer := net.Dialer{Timeout: dialTime}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &lineConn{c, bufio.NewReaderSize(c, lineBytesMax)}, nil
}

// ask sends a line and returns what follows "OK" in the answer. The end of ctx ends it.
func (c *lineConn) ask(ctx context.Context, line string) (string, error) {
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		return "", err
	}
	text, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	answer, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), "OK")
	if !ok {
		return "", errors.New(strings.TrimSpace(string(text)))
	}
	return strings.TrimPrefix(answer, " "), nil
}

func (c *lineConn) close() { _ = c.conn.Close() }

// askOnce asks over a connection of its own.
func askOnce(ctx context.Context, addr, line string) (string, error) {
	c, err := dialLine(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.ask(ctx, line)
}
