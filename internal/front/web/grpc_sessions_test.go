package web_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front/grpc"
)

// connection is a call of Sessions.Connect. The tests with a library of gRPC and a real node are in interop/grpc.
type connection struct {
	*testing.T
	*http.Response
	requests *io.PipeWriter
}

func (c *client) connects(t *testing.T) *connection {
	t.Helper()
	body, requests := io.Pipe()
	t.Cleanup(func() { _ = requests.Close() })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.scheme+"://"+c.addr+grpc.PathSessionsConnect, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", grpc.ContentType)
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &connection{t, response, requests}
}

func (c *connection) sends(messages ...string) {
	c.Helper()
	for _, m := range messages {
		if _, err := c.requests.Write(framed([]byte(m))); err != nil {
			c.Fatal(err)
		}
	}
}

// receives returns the next message, "" at the end.
func (c *connection) receives() string {
	c.Helper()
	var prefix [5]byte
	if _, err := io.ReadFull(c.Body, prefix[:]); err != nil {
		return ""
	}
	m := make([]byte, binary.BigEndian.Uint32(prefix[1:]))
	if _, err := io.ReadFull(c.Body, m); err != nil {
		c.Fatal(err)
	}
	return string(m)
}

// ends returns the status of the stream, which has nothing more.
func (c *connection) ends() string {
	c.Helper()
	if m := c.receives(); m != "" {
		c.Fatalf("there is more: %x", m)
	}
	return c.Trailer.Get("Grpc-Status")
}

// Requests, with their id.
const (
	keeps1    = "\x08\x01"
	closes2   = "\x08\x02\x32\x00"
	acquires3 = "\x08\x03\x3a\x03\x0a\x01x"
)

func eachVersion(t *testing.T, test func(t *testing.T, k *sessions, c *connection)) {
	for _, version := range []string{"h2c", "h2", "h3"} {
		t.Run(version, func(t *testing.T) {
			s, k := startSessions(t)
			test(t, k, s.client(t, version).connects(t))
		})
	}
}

func TestGRPCSessions_AnswersAndMessagesKeepTheirOrder(t *testing.T) {
	eachVersion(t, func(t *testing.T, k *sessions, c *connection) {
		c.sends(acquires3, keeps1, closes2)
		first := await.Receive(t, "a request", k.asked)
		k.tell(first.Conn, session.Message{Kind: session.MessageQueued, Name: "x", Ticket: isotone.Timestamp{Time: 1}})
		second, third := await.Receive(t, "a request", k.asked), await.Receive(t, "a request", k.asked)
		if first.Lock == nil || first.Lock.Op != session.LockAcquire || first.Lock.Name != "x" || second.Lock != nil || second.Close || !third.Close {
			t.Errorf("%+v, %+v, %+v", first.Request, second.Request, third.Request)
		}
		k.says(second, &isotone.Error{Code: isotone.CodeNotLeader, Leader: "127.0.0.9:8082"})
		k.says(first, nil, session.Hold{Name: "x", Token: 1})
		k.tell(first.Conn, session.Message{Kind: session.MessageExpired})
		_ = c.requests.Close() // which waits for the last answer
		k.says(third, nil)
		queued := "\x22\x15\x0a\x01x\x12\x10" + strings.Repeat("\x00", 7) + "\x01" + strings.Repeat("\x00", 8)
		if m := c.receives(); m != queued {
			t.Errorf("queued: %x", m)
		}
		if m := c.receives(); !strings.HasPrefix(m, "\x08\x01\x1a") || !strings.Contains(m, "not_leader") || !strings.Contains(m, "127.0.0.9:8082") {
			t.Errorf("an error: %x", m)
		}
		for _, want := range []string{"\x08\x03\x12\x0e\x0a\x0c\x0a\x01x\x11\x01\x00\x00\x00\x00\x00\x00\x00", "\x4a\x00", "\x08\x02\x12\x00"} {
			if m := c.receives(); m != want {
				t.Errorf("%x, want %x", m, want)
			}
		}
		if status := c.ends(); status != "0" {
			t.Errorf("status %s", status)
		}
		await.Until(t, "the session has no connection", func() bool { return k.open() == 0 })
	})
}

func TestGRPCSessions_AClientThatDoesNotReadIsCutOff(t *testing.T) {
	eachVersion(t, func(t *testing.T, k *sessions, c *connection) {
		c.sends(keeps1)
		r := await.Receive(t, "a request", k.asked)
		k.says(r, nil)
		for range 1_000_000 { // or until it is closed
			if k.open() == 0 {
				break
			}
			k.tell(r.Conn, session.Message{Kind: session.MessageGranted, Name: strings.Repeat("x", 128), Token: 1})
		}
		await.Until(t, "the session has no connection", func() bool { return k.open() == 0 })
	})
}

func TestGRPCSessions_WaitingRequestsAreBounded(t *testing.T) {
	s, k := startSessions(t)
	many, other := s.client(t, "h2c").connects(t), s.client(t, "h2c").connects(t)
	const most = 64
	many.sends(slices.Repeat([]string{keeps1}, most+1)...)
	first := await.Receive(t, "a request", k.asked)
	for range most - 1 {
		await.Receive(t, "a request", k.asked)
	}
	other.sends(keeps1)
	if r := await.Receive(t, "a request of another stream", k.asked); r.Conn == first.Conn {
		t.Errorf("more than %d requests of a stream wait", most)
	}
	k.says(first, nil)
	if r := await.Receive(t, "the request for which there is room now", k.asked); r.Conn != first.Conn {
		t.Errorf("a request of connection %v, want %v", r.Conn, first.Conn)
	}
}

func TestGRPCSessions_WhatIsNoMessageEndsTheStream(t *testing.T) {
	for name, b := range map[string]string{"no protobuf": "\xff", "a name that is no text": "\x3a\x03\x0a\x01\xff"} {
		s, k := startSessions(t)
		c := s.client(t, "h2c").connects(t)
		c.sends(b)
		if status := c.ends(); status != "3" {
			t.Errorf("%s: status %s", name, status)
		}
		await.Until(t, "the session has no connection", func() bool { return k.open() == 0 })
	}
}

func TestGRPCSessions_EndWithTheServer(t *testing.T) {
	s, k := startSessions(t)
	c := s.client(t, "h2c").connects(t)
	await.Until(t, "there is a connection", func() bool { return k.open() == 1 })
	s.EndWaits()
	if status := c.ends(); status != "14" {
		t.Errorf("status %s", status)
	}
	await.Until(t, "the session has no connection", func() bool { return k.open() == 0 })
}
