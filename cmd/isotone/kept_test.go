package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
)

// kept is a connection that asks for timestamps.
type kept struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// newKept returns a connection to a node that has answered once.
func newKept(t *testing.T, addr string) *kept {
	t.Helper()
	k := &kept{t: t}
	await.Done(t, await.Timeout, func() (bool, string) {
		var err error
		if k.conn, err = net.DialTimeout("tcp", addr, time.Second); err != nil {
			return false, err.Error()
		}
		k.r = bufio.NewReader(k.conn)
		if err = k.try(); err != nil {
			_ = k.conn.Close()
			return false, err.Error()
		}
		return true, ""
	})
	t.Cleanup(func() { _ = k.conn.Close() })
	return k
}

func (k *kept) ask() {
	k.t.Helper()
	if err := k.try(); err != nil {
		k.t.Fatalf("a client that was there: %v", err)
	}
}

// try asks for a timestamp.
func (k *kept) try() error {
	_ = k.conn.SetDeadline(time.Now().Add(rig.Wait))
	if _, err := io.WriteString(k.conn, "GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	status, err := k.r.ReadString('\n')
	for line := status; err == nil && line != "\r\n"; {
		line, err = k.r.ReadString('\n')
	}
	if err == nil && !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return fmt.Errorf("%s", strings.TrimSpace(status))
	}
	if err == nil {
		_, err = io.ReadFull(k.r, make([]byte, 16))
	}
	return err
}
