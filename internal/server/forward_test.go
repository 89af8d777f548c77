package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/operator"
)

// answering accepts one connection, reads a line, and answers in parts. The connection
// stays open until the test ends.
func answering(t *testing.T, parts ...string) (addr string, asked <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		line, _ := bufio.NewReader(c).ReadString('\n')
		lines <- line
		for _, part := range parts {
			_, _ = io.WriteString(c, part)
		}
		_, _ = c.Read(make([]byte, 1)) // until the other side closes
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return ln.Addr().String(), lines
}

func TestDialUnforwarded_AsksBeforeTheConnectionIsUsed(t *testing.T) {
	addr, asked := answering(t, "+O", "K\r", "\n")
	ctx, cancel := context.WithCancel(t.Context())
	c, err := dialer(&operator.Access{})(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := <-asked; got != "*3\r\n" {
		t.Errorf("asked %q", got)
	}
	cancel() // the context was for the dialing only
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
}

func TestDialUnforwarded_TakesNoNodeThatMightForward(t *testing.T) {
	addr, _ := answering(t, "-ERR unknown command\r\n")
	if c, err := dialer(&operator.Access{})(t.Context(), "tcp", addr); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("%v, %v", c, err)
	}
}

func TestDialUnforwarded_GivesUpWithItsContext(t *testing.T) {
	addr, asked := answering(t) // it never answers
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(enough)
	}()
	began := time.Now()
	if c, err := dialer(&operator.Access{})(ctx, "tcp", addr); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("%v, %v after %v", c, err, time.Since(began))
	}
}
