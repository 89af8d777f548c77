package http1

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/requestid"
	"github.com/isotone/isotone/internal/front/stats"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/snowflake"
)

// prompt answers within Submit; later keeps one batch until answer.
type prompt struct{ err error }

var named = &front.Status{ClusterID: 0xabc}

func (prompt) Status() *front.Status { return named }

func (p prompt) Submit(b *front.Batch) {
	b.Err = p.err
	for i, n := range b.Counts {
		b.Ranges[i] = isotone.Range{First: isotone.Timestamp{Time: 1 << 60}, Count: n}
	}
	b.Done(b)
}

type later struct {
	prompt
	batch *front.Batch
}

func (l *later) Submit(b *front.Batch) { l.batch = b }
func (l *later) answer()               { l.prompt.Submit(l.batch) }

// counting makes ids.
type counting struct{ next snowflake.ID }

func (c *counting) Fill(dst []snowflake.ID) error {
	for i := range dst {
		c.next++
		dst[i] = 2124243617177423870 + c.next
	}
	return nil
}

func (c *counting) Worker() (int, snowflake.Layout, error) { return 0, snowflake.Twitter, nil }

// ticking is a cluster clock that runs with the process.
type ticking struct{}

func (ticking) Now() (interval.Reading, error) {
	now := uint64(time.Now().UnixNano())
	return interval.Reading{Cluster: 1, Term: 1, Earliest: now, Latest: now + 1000, Limit: now + 1_000_000_000}, nil
}

// open returns a handler on a connection that nothing is written to: the tests take its
// output away.
func open(t testing.TB, backend front.Backend) *handler {
	t.Helper()
	l, err := loop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = ln.Close(); _ = l.Close() })
	front := New(Config{Backend: backend, IDs: &counting{}, Clock: ticking{}, Loop: l, Detached: func(net.Conn) { t.Error("detached") }})
	h := &handler{reader: reader{front: front, speaker: speaker{session: access.Of(nil)}}}
	c, err := l.Attach(server, nil, loop.Limits{}, h)
	if err != nil {
		t.Fatal(err)
	}
	h.conn = c
	front.conns = append(front.conns, h)
	return h
}

func (h *handler) discard() { h.conn.SetBuffered(h.conn.Buffered()[:0]) }

var hotOnes = map[string]string{
	"plain":   plain,
	"curl":    "GET /timestamp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n",
	"range":   "GET /timestamp?n=100&format=range HTTP/1.1\r\nHost: x\r\n\r\n",
	"json":    "GET /timestamp?n=8&mode=lease HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n",
	"n=64":    "GET /timestamp?n=64 HTTP/1.1\r\nHost: x\r\n\r\n",
	"floor":   "GET /timestamp?floor=0123456789abcdef00000000000000ff HTTP/1.1\r\nHost: x\r\n\r\n",
	"legacy":  "GET /timestamp HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n",
	"id":      "GET /api/snowflake HTTP/1.1\r\nHost: x\r\n\r\n",
	"reading": "GET /interval?nonce=123456789 HTTP/1.1\r\nHost: x\r\n\r\n",
	"stamps":  "GET /interval?n=8&format=json HTTP/1.1\r\nHost: x\r\n\r\n",
	"32 deep": strings.Repeat(plain, 32),
	"changing": "GET /timestamp?n=2 HTTP/1.1\r\nHost: x\r\n\r\n" + plain + "GET /timestamp?n=2&format=json HTTP/1.1\r\nHost: x\r\n\r\n" +
		"GET /timestamp?mode=lease HTTP/1.1\r\nHost: x\r\n\r\n" + plain,
}

func TestFront_DoesNotAllocate(t *testing.T) {
	for name, raw := range hotOnes {
		for _, err := range []error{nil, isotone.ErrOverloaded, &isotone.Error{Code: isotone.CodeNotLeader, Leader: "a:1", Message: "m"}} {
			if err != nil && (name == "changing" || strings.Contains(raw, "?")) {
				continue // a fault that is made anew
			}
			h, b := open(t, prompt{err}), []byte(raw)
			if got := testing.AllocsPerRun(200, func() {
				if used, dataErr := h.Data(h.conn, b); used != len(b) || dataErr != nil {
					t.Fatalf("%s: %d, %v", name, used, dataErr)
				}
				h.discard()
			}); got != 0 {
				t.Errorf("%s, %v: %v allocations", name, err, got)
			}
		}
	}
}

func BenchmarkFront(b *testing.B) {
	for _, name := range []string{"plain", "curl", "legacy", "range", "json", "n=64", "32 deep", "changing"} {
		b.Run(name, func(b *testing.B) {
			back := &later{}
			h, raw := open(b, back), []byte(hotOnes[name])
			b.ReportAllocs()
			for b.Loop() {
				for used := 0; used < len(raw); {
					n, _ := h.Data(h.conn, raw[used:])
					used += n
					back.answer()
				}
				h.discard()
			}
		})
	}
	for _, name := range []string{"plain", "32 deep"} {
		b.Run(name+", measured", func(b *testing.B) {
			h, raw := open(b, prompt{}), []byte(hotOnes[name])
			l := h.front.cfg.Loop
			h.front.meter = &meter{recorder: stats.New(stats.Config{}), loop: l, ids: requestid.NewMaker()}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = h.Data(h.conn, raw)
				h.discard()
				_ = l.Wait(0) // settles
			}
		})
	}
	b.Run("overloaded", func(b *testing.B) {
		h, raw := open(b, prompt{isotone.ErrOverloaded}), []byte(plain)
		b.ReportAllocs()
		for b.Loop() {
			_, _ = h.Data(h.conn, raw)
			h.discard()
		}
	})
}

// BenchmarkFront_Reading is a reading of the cluster clock, which needs no backend. The nonce differs
// each time, as with clients.
func BenchmarkFront_Reading(b *testing.B) {
	h, raw := open(b, prompt{}), []byte(hotOnes["reading"])
	digit := bytes.IndexByte(raw, '=') + 1
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		raw[digit] = '1' + byte(i%9)
		if n, err := h.Data(h.conn, raw); n != len(raw) || err != nil {
			b.Fatal(n, err)
		}
		h.discard()
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"plain", "curl", "range", "json"} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(hotOnes[name])
			var r request
			b.ReportAllocs()
			for b.Loop() {
				if parse(raw, &r) != hot {
					b.Fatal("not hot")
				}
			}
		})
	}
}

// BenchmarkIdle reports what an idle connection holds here, after one request.
func BenchmarkIdle(b *testing.B) {
	front := New(Config{Backend: prompt{}, Detached: func(nc net.Conn) { _ = nc.Close() }})
	h, raw := open(b, prompt{}), []byte(hotOnes["curl"])
	handlers := make([]*handler, 0, b.N)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range b.N {
		one := front.Open(h.conn).(*handler)
		if _, err := one.Data(h.conn, raw); err != nil {
			b.Fatal(err)
		}
		h.discard()
		handlers = append(handlers, one)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "B/conn")
	runtime.KeepAlive(handlers)
}
