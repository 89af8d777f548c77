package loadtest

import (
	"context"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// FakeResolver has all names lead to 169.254.169.254, and all SRV records to db.example.net, for the rest of
// a test, which must not run beside others.
func FakeResolver(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		b := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			asked := m.Questions[0]
			header := dnsmessage.ResourceHeader{Name: asked.Name, Type: asked.Type, Class: asked.Class, TTL: 1}
			switch asked.Type {
			case dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: [4]byte{169, 254, 169, 254}}}}
			case dnsmessage.TypeSRV:
				srv := &dnsmessage.SRVResource{Port: 27017, Target: dnsmessage.MustNewName("db.example.net.")}
				m.Answers = []dnsmessage.Resource{{Header: header, Body: srv}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	})
	q := &questions{to: conn.LocalAddr().String()}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: q.dial}
	t.Cleanup(func() {
		net.DefaultResolver = before
		q.end()
		_ = conn.Close()
		served.Wait()
	})
}

// questions are the connections of a resolver. A driver that is closed leaves lookups behind, which go on until they have an answer or
// no connection; otherwise they would wait for five seconds.
type questions struct {
	to    string
	mu    sync.Mutex
	conns []net.Conn
	ended bool
}

func (q *questions) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return nil, net.ErrClosed
	}
	c, err := new(net.Dialer).DialContext(ctx, "udp", q.to)
	if err == nil {
		q.conns = append(q.conns, c)
	}
	return c, err
}

func (q *questions) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	for _, c := range q.conns {
		_ = c.Close()
	}
}
