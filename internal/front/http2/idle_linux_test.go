//go:build !portable

package http2_test

import (
	"runtime"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// TestIdle_AConnectionHoldsLittle: at most 8 KiB once it has had requests, those of the client and of the system's connection
// included.
func TestIdle_AConnectionHoldsLittle(t *testing.T) {
	const conns = 400
	s := start(t, nil)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	c := s.dial(t)
	c.ask(1, "/timestamp", "user-agent", "test")
	if _, _, err := c.read(1); err != nil { // so that what the front itself holds is there
		t.Fatal(err)
	}
	before := heap()
	idle := make([]*client, conns)
	for i := range idle {
		idle[i] = s.dial(t)
		idle[i].ask(1, "/timestamp", "user-agent", "test", "accept", "*/*", "accept-encoding", "gzip")
		idle[i].ask(3, "/cold", "user-agent", "test")
		if _, _, err := idle[i].read(1, 3); err != nil {
			t.Fatal(err)
		}
		idle[i].forget()
	}
	each := (int64(heap()) - int64(before)) / conns
	t.Logf("%d bytes", each)
	if each > 8<<10 {
		t.Errorf("%d bytes for each idle connection", each)
	}
	runtime.KeepAlive(idle)
}

// forget frees what the client itself holds.
func (c *client) forget() {
	c.Framer, c.encoder, c.decoder, c.fields = nil, (*hpack.Encoder)(nil), nil, nil
}
