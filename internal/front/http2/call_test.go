package http2_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/host/loop"
)

// framed is a message with its prefix.
func framed(message string) string {
	return string(grpc.EndFrame(append(grpc.BeginFrame(nil), message...), 0))
}

// call begins a call, and sends its message in pieces.
func (c *client) call(stream uint32, path, body string, pieces int, more ...string) {
	c.headers(stream, false, c.encode(path, append([]string{":method", "POST", "content-type", "application/grpc", "te", "trailers", "user-agent", "test"}, more...)...))
	for i := range pieces {
		part := body[i*len(body)/pieces : (i+1)*len(body)/pieces]
		if err := c.WriteData(stream, i == pieces-1, []byte(part)); err != nil {
			c.t.Error(err)
		}
	}
}

// messages are those of isotone.v1, right and wrong ones.
var messages = map[string]string{
	"empty":          "",
	"count 5":        "\x08\x05",
	"count 0":        "\x08\x00",
	"too many":       "\x08\x80\x80\x80\x80\x80\x01",
	"lease":          "\x10\x02",
	"strange mode":   "\x10\x07",
	"u64":            "\x18\x01\x08\x07",
	"floor":          "\x22\x1000000000000000000"[:18],
	"short floor":    "\x22\x02ab",
	"unknown fields": "\x08\x02\xf8\x01\x01",
	"cut":            "\x08",
	"count 65":       "\x08\x41",
	"long":           "\x7a\xc8\x01" + strings.Repeat("x", 200),
	"timeline":       "\x32\x06orders\x08\x03",
	"of 64 bits":     "\x18\x01\x08\x07\x10\x02\x32\x06orders",
	"no timeline":    "\x32\x07nothing",
	"empty name":     "\x32\x00",
	"longest name":   "\x32\x40" + strings.Repeat("x", 64),
	"long name":      "\x32\x41" + strings.Repeat("x", 65),
	"longer name":    "\x32\xe8\x07" + strings.Repeat("x", 1000),
	"bad name":       "\x32\x03a b",
	"strange name":   "\x32\x02\xff\xfe",
	"number as name": "\x30\x05",
}

// TestCall_EachHasTheAnswerOfTheHandler, whether it is answered in the loop or not, and however its message is cut.
func TestCall_EachHasTheAnswerOfTheHandler(t *testing.T) {
	ours, theirs := startBoth(t)
	a, b := ours.dial(t), dialTo(t, theirs)
	id := uint32(1)
	ask := func(name, path, body string, pieces int, more ...string) {
		t.Helper()
		a.call(id, path, body, pieces, more...)
		b.call(id, path, body, pieces, more...)
		got, _, err := a.read(id)
		want, _, err2 := b.read(id)
		if err != nil || err2 != nil {
			t.Fatalf("%s %s: %v, %v", path, name, err, err2)
		}
		delete(want[id].fields, "content-length") // which calls in the loop do not have
		delete(got[id].fields, "content-length")
		if g, w := spell(got[id]), spell(want[id]); g != w {
			t.Errorf("%s %s %q:\n%s\nhandler:\n%s", path, name, more, g, w)
		}
		id += 2
	}
	for _, path := range []string{grpc.PathTimestampsGet, grpc.PathIDsGet} {
		for name, message := range messages {
			for pieces := 1; pieces <= 3; pieces++ {
				ask(name, path, framed(message), pieces)
			}
		}
		for name, body := range map[string]string{
			"no message": "", "half a prefix": "\x00\x00", "half a message": framed("\x08\x05")[:6], "two messages": framed("") + framed(""), "compressed": "\x01" + framed("")[1:], "too large": "\x00\x7f\xff\xff\xff",
		} {
			ask(name, path, body, 1)
		}
		for _, more := range [][]string{
			{"grpc-timeout", "1S"}, {"grpc-timeout", "nope"}, {"grpc-encoding", "gzip"}, {"grpc-accept-encoding", "gzip"}, {"content-type", "text/plain"}, {"authorization", "Bearer a~b"}, {"x-other", "1"}, {"content-length", "7"},
		} {
			ask("count 5", path, framed("\x08\x05"), 1, more...)
		}
	}
	ours.set(func() { ours.err = errNotLeader })
	// The other side has an oracle of its own, so an error is compared with what it says.
	a.call(id, grpc.PathTimestampsGet, framed(""), 1)
	got, _, err := a.read(id)
	if r := got[id]; err != nil || r.status != "200" || r.fields["grpc-status"] != "14" || r.fields["grpc-message"] == "" || r.fields["grpc-status-details-bin"] == "" || r.body != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCall_ManyShareABatch, and none comes to the handler.
func TestCall_ManyShareABatch(t *testing.T) {
	s := start(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is not hot", r.RequestURI) })
	s.set(func() { s.held = true })
	c := s.dial(t)
	ids := []uint32{}
	c.together(func() {
		for i := range 100 {
			ids = append(ids, uint32(2*i+1))
			c.call(uint32(2*i+1), grpc.PathTimestampsGet, framed("\x08"+string(rune(i+1))), 1, "grpc-timeout", fmt.Sprint(i+1, "S"))
		}
	})
	await.Until(t, "all are submitted", func() bool { n, _ := s.submitted(); return n == 100 })
	_ = c.WriteRSTStream(7, xhttp2.ErrCodeCancel)
	c.call(301, grpc.PathIDsGet, framed("\x08\x03"), 1)
	got, _, err := c.read(301)
	if err != nil || got[301].trailers["grpc-status"] != "0" || len(got[301].body) != 5+2+3*8 {
		t.Errorf("%+v, %v", got[301], err)
	}
	s.release()
	ids = append(ids[:3], ids[4:]...)
	replies, _, err := c.read(ids...)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		r := replies[id]
		if r.status != "200" || r.trailers["grpc-status"] != "0" || len(r.body) != 5+18+2 || int(r.body[24]) != int(id/2)+1 || seen[r.body[5:23]] {
			t.Errorf("stream %d: %+v", id, r)
		}
		seen[r.body[5:23]] = true
	}
	if _, batches := s.submitted(); batches > 3 {
		t.Errorf("%d batches", batches)
	}
}

// TestCall_TimelinesAreNotMixed: calls that come together share batches with those of their timeline only, and a timeline that
// there is not is no unknown method.
func TestCall_TimelinesAreNotMixed(t *testing.T) {
	s := start(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is not hot", r.RequestURI) })
	c := s.dial(t)
	names, ids := []string{"", "orders", "stock", "nothing"}, []uint32{}
	c.together(func() {
		for i := range 40 {
			message := ""
			if name := names[i%4]; name != "" {
				message = "\x32" + string(rune(len(name))) + name
			}
			ids = append(ids, uint32(2*i+1))
			c.call(ids[i], grpc.PathTimestampsGet, framed(message), 1)
		}
	})
	got, _, err := c.read(ids...)
	if err != nil {
		t.Fatal(err)
	}
	times := [4]uint64{epoch, 6, 5, 0}
	for i, id := range ids {
		r := got[id]
		if i%4 == 3 {
			if r.fields["grpc-status"] != "5" || !strings.Contains(r.fields["grpc-message"], "nothing") || r.body != "" {
				t.Errorf("no timeline: %+v", r)
			}
			continue
		}
		want := string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, times[i%4]), uint64(i/4)))
		if len(r.body) != 5+18+2 || r.body[7:23] != want || r.trailers["grpc-status"] != "0" {
			t.Errorf("timeline %q: %+v, want %x", names[i%4], r, want)
		}
	}
}

// TestCall_EachIsCountedOnce as a call, also if its connection ends before the answer.
func TestCall_EachIsCountedOnce(t *testing.T) {
	var mu sync.Mutex
	counted := map[string]int{}
	s := start(t, nil, func(cfg *http2.Config, _ *loop.Limits) {
		cfg.Hot.Observe = func(protocol, code string, requests int, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			counted[protocol+" "+code] += requests
		}
	})
	s.set(func() { s.held = true })
	both := func(c *client) {
		had, _ := s.submitted()
		c.call(1, grpc.PathTimestampsGet, framed(""), 1)
		c.ask(3, "/timestamp")
		await.Until(t, "both are submitted", func() bool { n, _ := s.submitted(); return n == had+2 })
	}
	stays, leaves := s.dial(t), s.dial(t)
	both(leaves)
	_ = leaves.Close()
	await.Until(t, "the connection has ended", func() bool { return s.front.Conns() == 1 })
	both(stays)
	s.release()
	if _, _, err := stays.read(1, 3); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "each is counted once", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(counted, map[string]int{"grpc ok": 1, "h2c ok": 1, "grpc deadline_exceeded": 1, "h2c deadline_exceeded": 1})
	})
}

// TestCall_AnAnswerWaitsForItsWindow, and its trailers with it.
func TestCall_AnAnswerWaitsForItsWindow(t *testing.T) {
	s := start(t, nil)
	s.set(func() { s.held = true })
	c := s.dial(t)
	c.call(1, grpc.PathTimestampsGet, framed(""), 1)
	await.Until(t, "it is submitted", func() bool { n, _ := s.submitted(); return n == 1 })
	_ = c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 3})
	c.ask(3, "/cold")
	if _, _, err := c.read(3); err != nil {
		t.Fatal(err)
	}
	s.release()
	for range 30 {
		_ = c.WriteWindowUpdate(1, 1)
	}
	got, _, err := c.read(1)
	if r := got[1]; err != nil || len(r.body) != 25 || r.trailers["grpc-status"] != "0" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCall_AMessageThatDoesNotComeEndsTheStream only.
func TestCall_AMessageThatDoesNotComeEndsTheStream(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(c *http2.Config, _ *loop.Limits) { c.Limits.WriteTimeout = 20 * time.Millisecond })
	c := s.dial(t)
	c.headers(1, false, c.encode(grpc.PathTimestampsGet, ":method", "POST", "content-type", "application/grpc"))
	if got, _, err := c.read(1); err != nil || got[1].reset != xhttp2.ErrCodeCancel {
		t.Errorf("%+v, %v", got[1], err)
	}
	c.call(3, grpc.PathTimestampsGet, framed(""), 1)
	if got, _, err := c.read(3); err != nil || got[3].trailers["grpc-status"] != "0" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestCall_OneForTheHandlerHasItsOwnFields, however often its block is repeated, and not those of a request that came in between.
func TestCall_OneForTheHandlerHasItsOwnFields(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, len(r.Header), r.Header["User-Agent"], r.Header["Authorization"])
	})
	c, other := s.dial(t), s.dial(t)
	for id := uint32(1); id < 10; id += 2 {
		c.call(id, grpc.PathTimestampsGet, "no frame", 1)
		if got, _, err := c.read(id); err != nil || got[id].body != "3 [test] []" {
			t.Errorf("stream %d: %+v, %v", id, got[id], err)
		}
		other.ask(id, "/cold", "authorization", "Bearer a~b", "x-other", "1")
		if got, _, err := other.read(id); err != nil || got[id].body != "2 [] [Bearer a~b]" {
			t.Errorf("stream %d of the other: %+v, %v", id, got[id], err)
		}
	}
}

// TestCall_ARequestBesideItIsHotTheNextTime, too: the answer to the call, which comes while the request is read, leaves it alone.
func TestCall_ARequestBesideItIsHotTheNextTime(t *testing.T) {
	s := start(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is not hot", r.RequestURI) })
	c := s.dial(t)
	id := uint32(1)
	for range 3 { // from the second time on, the blocks are the same
		c.together(func() {
			c.call(id, grpc.PathTimestampsGet, framed("\x18\x01"), 1) // not of the batch of the other
			c.ask(id+2, "/timestamp")
			c.ask(id+4, "/timestamp")
		})
		if got, _, err := c.read(id, id+2, id+4); err != nil || got[id].trailers["grpc-status"] != "0" || got[id+2].status != "200" || got[id+4].status != "200" {
			t.Errorf("%+v, %+v, %+v, %v", got[id], got[id+2], got[id+4], err)
		}
		id += 6
	}
}

// TestCall_DATAAfterTheEndIsAnErrorOfTheStream only, whose answer is given at that moment.
func TestCall_DATAAfterTheEndIsAnErrorOfTheStream(t *testing.T) {
	c := start(t, nil).dial(t)
	c.together(func() {
		c.call(1, grpc.PathTimestampsGet, framed(""), 1)
		c.data(1, true, framed(""))
		c.ask(3, "/timestamp")
	})
	if got, _, err := c.read(3); err != nil || got[3].status != "200" {
		t.Errorf("%+v, %v", got[3], err)
	}
}

// TestCall_ManyMessagesNeedNoMoreThanOneWindow: what was read of the calls is given back.
func TestCall_ManyMessagesNeedNoMoreThanOneWindow(t *testing.T) {
	s := start(t, nil)
	c := s.dial(t)
	for i := range 3000 { // 66 bytes each: three windows of the connection
		id := uint32(2*i + 1)
		c.call(id, grpc.PathTimestampsGet, framed("\x7a\x3b"+strings.Repeat("x", 59)), 1)
		if got, _, err := c.read(id); err != nil || got[id].trailers["grpc-status"] != "0" {
			t.Fatalf("call %d: %+v, %v", i, got[id], err)
		}
	}
}
