package http2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"

	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
)

// startBoth runs the handler of a node twice: behind the front with its hot requests, and behind net/http.
func startBoth(t testing.TB) (ours *site, theirs string) {
	t.Helper()
	nodes := [2]*oracle{{}, {}}
	handlers := [2]http.Handler{}
	for i, o := range nodes {
		server := web.New(web.Config{Backend: o, IDs: o})
		handlers[i] = server.Handler()
		t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	}
	ours = start(t, handlers[0].ServeHTTP, func(c *http2.Config, _ *loop.Limits) { c.Hot.Backend, c.Hot.IDs, c.Hot.Live = nodes[0], nodes[0], nil })
	ours.oracle = nodes[0]
	return ours, reference(t, handlers[1])
}

// TestSame_EachRequestHasTheAnswerOfTheStandardServers, whichever part of the front gives it.
func TestSame_EachRequestHasTheAnswerOfTheStandardServers(t *testing.T) {
	ours, theirs := startBoth(t)
	a, b := ours.dial(t), dialTo(t, theirs)
	paths := []string{
		"/timestamp", "/timestamp?n=1", "/timestamp?n=2", "/timestamp?n=64", "/timestamp?n=65", "/timestamp?n=1000", "/timestamp?n=0", "/timestamp?n=x", "/timestamp?n=65537", "/timestamp?",
		"/timestamp?format=json", "/timestamp?format=json&n=8", "/timestamp?format=json&n=9", "/timestamp?format=u64", "/timestamp?format=u64&n=7", "/timestamp?format=range&n=65536", "/timestamp?format=nope",
		"/timestamp?mode=lease", "/timestamp?mode=quorum", "/timestamp?mode=nope", "/timestamp?floor=1", "/timestamp?floor=00000000000000010000000000000001", "/timestamp?n=1&n=2", "/timestamp?n=%31",
		"/timestamp?x=y", "/timestamp/", "/timestampx", "/Timestamp", "//timestamp", "/timestamp#x", "/api/snowflake", "/api/snowflake?n=3", "/api/snowflake?N=2", "/api/snowflake?format=json", "/api/snowflake?n=0",
		"/live/none", "/state", "/interval", "/interval?n=2", "/up", "/ready", "/members", "/", "/nope", "/metrics", "/admin/members", "*", "/%2e%2e/", "/timestamp%20", "/timestamp?n=1 HTTP/1.1",
	}
	fields := [][]string{
		{}, {"accept", "application/json"}, {"accept", "*/*"}, {"accept", "text/html", "accept", "application/json"}, {"user-agent", "x", "accept-encoding", "gzip, br"}, {":method", "HEAD"}, {":method", "POST"},
		{":method", "OPTIONS"}, {"if-none-match", "*"}, {"x-request-id", "a b"}, {"cookie", "a=b"}, {"range", "bytes=0-1"}, {"x-forwarded-for", "1.2.3.4"}, {"content-length", "0"},
		{":authority", "other:1"}, {":authority", "", "host", "h"}, {"host", "x"}, {"authorization", "Bearer a~b"}, {"cache-control", "no-cache", "pragma", "x", "via", "1.1 a"}, {"accept", ""},
	}
	id := uint32(1)
	for _, path := range paths {
		for _, more := range fields {
			a.ask(id, path, more...)
			b.ask(id, path, more...)
			got, _, err := a.read(id)
			want, _, err2 := b.read(id)
			if err != nil || err2 != nil {
				t.Fatalf("%s %q: %v, %v", path, more, err, err2)
			}
			if g, w := spell(got[id]), spell(want[id]); g != w {
				t.Errorf("%s %q:\n%s\nnet/http:\n%s", path, more, g, w)
			}
			id += 2
		}
	}
	if n, _ := ours.submitted(); n < 200 {
		t.Errorf("%d requests reached the oracle", n)
	}
}

// spell is what a reply says, but for the date.
func spell(r *reply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s reset %v ended %v\n", r.status, r.reset, r.ended)
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		if name != "date" {
			fmt.Fprintf(&b, "%s: %s\n", name, r.fields[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.trailers)) {
		fmt.Fprintf(&b, "trailer %s: %s\n", name, r.trailers[name])
	}
	fmt.Fprintf(&b, "%d bytes: %q", len(r.body), r.body)
	return b.String()
}

// dialogue is a random conversation of a client that keeps the protocol.
type dialogue struct {
	*rand.Rand
	c    *client
	next uint32
	ids  []uint32
}

// TestSame_RandomConversations end in the same answers as with net/http, however they are cut into frames.
func TestSame_RandomConversations(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		w.Header().Set("X-Body", fmt.Sprint(len(b), err, r.ContentLength, r.Trailer))
		for _, name := range []string{"X-A", "X-B", "Cookie"} {
			w.Header()["X-Saw-"+name] = r.Header[name]
		}
		if n := r.URL.Query().Get("size"); n != "" {
			var size int
			_, _ = fmt.Sscan(n, &size)
			_, _ = w.Write(pattern(size))
		}
		_, _ = w.Write(b)
	}
	ours, theirs := start(t, serve).addr, reference(t, http.HandlerFunc(serve))
	for seed := range uint64(150) {
		var said [2]string
		for i, addr := range []string{ours, theirs} {
			d := &dialogue{Rand: rand.New(rand.NewPCG(seed, 1)), c: dialTo(t, addr), next: 1}
			said[i] = d.hold()
			_ = d.c.Close()
		}
		if said[0] != said[1] {
			t.Fatalf("seed %d:\n%s\nnet/http:\n%s", seed, said[0], said[1])
		}
	}
}

// hold says some requests, with noise between them, and returns what came back.
func (d *dialogue) hold() string {
	if d.IntN(2) == 0 {
		_ = d.c.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1 << uint(4+d.IntN(20))}, xhttp2.Setting{ID: xhttp2.SettingHeaderTableSize, Val: uint32(d.IntN(8192))})
	}
	for range 1 + d.IntN(20) {
		d.noise()
		d.request()
	}
	for _, id := range d.ids {
		_ = d.c.WriteWindowUpdate(id, 1<<20) // enough for everything
	}
	_ = d.c.WriteWindowUpdate(0, 1<<27)
	got, bye, err := d.c.read(d.ids...)
	out := fmt.Sprintln(bye, err)
	for _, id := range d.ids {
		out += fmt.Sprintln(id, spell(got[id]))
	}
	return out
}

// noise is a frame that changes nothing.
func (d *dialogue) noise() {
	switch d.IntN(6) {
	case 0:
		_ = d.c.WritePriority(d.next, xhttp2.PriorityParam{StreamDep: 0, Weight: 7})
	case 1:
		_ = d.c.WriteWindowUpdate(0, uint32(1+d.IntN(1000)))
	case 2:
		_ = d.c.WriteRawFrame(xhttp2.FrameType(0x20+d.IntN(100)), 0xff, 0, pattern(d.IntN(100)))
	case 3:
		_ = d.c.WriteSettings(xhttp2.Setting{ID: 0x99, Val: 1})
	}
}

// request is one request, with a body or not.
func (d *dialogue) request() {
	id := d.next
	d.next += uint32(2 + 2*d.IntN(3))
	d.ids = append(d.ids, id)
	fields := []string{"x-a", strings.Repeat("v", d.IntN(200)), "cookie", fmt.Sprint(d.IntN(3))}
	for range d.IntN(4) {
		fields = append(fields, "x-b", fmt.Sprint(d.IntN(5)))
	}
	body := pattern(d.IntN(4) * d.IntN(2000))
	method := "GET"
	if len(body) > 0 {
		method = "POST"
		if d.IntN(2) == 0 {
			fields = append(fields, "content-length", fmt.Sprint(len(body)))
		}
	}
	path := fmt.Sprintf("/x?size=%d", d.IntN(2)*d.IntN(50_000))
	trailers := len(body) > 0 && d.IntN(3) == 0
	d.head(id, len(body) == 0, d.c.encode(path, append(fields, ":method", method)...))
	for len(body) > 0 {
		n := 1 + d.IntN(len(body))
		_ = d.c.WriteDataPadded(id, n == len(body) && !trailers, body[:n], pattern(d.IntN(10) * d.IntN(2))[:0])
		body = body[n:]
		if d.IntN(4) == 0 && (len(body) > 0 || trailers) {
			_ = d.c.WriteData(id, false, nil)
		}
		if len(body) == 0 && trailers {
			d.c.block.Reset()
			d.head(id, true, bytes.Clone(d.trailer()))
		}
	}
}

func (d *dialogue) trailer() []byte {
	return d.c.encode("", ":method", "", ":scheme", "", ":authority", "", "x-t", "1")
}

// head sends a block in one frame or several.
func (d *dialogue) head(id uint32, ends bool, block []byte) {
	cut := len(block)
	if d.IntN(3) == 0 {
		cut = d.IntN(len(block))
	}
	p := xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block[:cut], EndStream: ends, EndHeaders: cut == len(block), PadLength: uint8(d.IntN(2) * d.IntN(200))}
	if d.IntN(3) == 0 {
		p.Priority = xhttp2.PriorityParam{StreamDep: 0, Weight: uint8(d.IntN(256)), Exclusive: d.IntN(2) == 0}
	}
	_ = d.c.WriteHeaders(p)
	for block = block[cut:]; len(block) > 0; {
		n := 1 + d.IntN(len(block))
		_ = d.c.WriteContinuation(id, n == len(block), block[:n])
		block = block[n:]
	}
}
