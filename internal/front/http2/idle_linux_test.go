//go:build !portable

package http2_test

import (
	"runtime"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestIdle_AConnectionHoldsLittle: at most 8 KiB once it has had requests, those of the client and of the system's connection
// included.
func TestIdle_AConnectionHoldsLittle(t *testing.T) {
	const conns = 400
	s := start(t, nil)
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

// heap returns how much memory is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// TestIdle_ACallHoldsLittle: at most 4 KiB while it waits for its client, however much it has had to read and to send.
func TestIdle_ACallHoldsLittle(t *testing.T) {
	const calls, window = 200, 1 << 10
	c := startEcho(t, &echo{times: 1}).dial(t)
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: window})
	text := strings.Repeat(framed(strings.Repeat("x", 4000)), 4)
	talk := func(id uint32) {
		c.begin(id, "/echo", "application/grpc")
		c.data(id, false, text)
		for left := len(text); left > 0; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := f.(*xhttp2.DataFrame); ok {
				left -= len(d.Data())
				_ = c.WriteWindowUpdate(0, uint32(len(d.Data())))
				_ = c.WriteWindowUpdate(id, uint32(len(d.Data())))
			}
		}
	}
	talk(1) // so that what the connection itself holds is there
	before := heap()
	for i := range uint32(calls) {
		talk(2*i + 3)
	}
	each := (int64(heap()) - int64(before)) / calls
	t.Logf("%d bytes", each)
	if each > 4<<10 {
		t.Errorf("%d bytes for each call that waits", each)
	}
}

// forget frees what the client itself holds.
func (c *client) forget() {
	c.Framer, c.encoder, c.decoder, c.fields = nil, (*hpack.Encoder)(nil), nil, nil
}
