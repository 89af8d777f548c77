package http1

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/trace"
)

// noting keeps the traces of the batches that it answers.
type noting struct {
	prompt
	traces []*trace.Context
}

func (n *noting) Submit(b *front.Batch) {
	n.traces = append(n.traces, b.Trace)
	n.prompt.Submit(b)
}

func tracedGet(target string, n int, flags string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nTraceparent: 00-%032x-%016x-%s\r\n\r\n", target, n, n, flags)
}

// TestTracer_PipelinedRequestsKeepTheirSpans: those that are marked, and no others; answers do
// not change.
func TestTracer_PipelinedRequestsKeepTheirSpans(t *testing.T) {
	var mu sync.Mutex
	var sent []string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						ParentSpanID, Name string
						Attributes         []struct {
							Value struct{ StringValue, IntValue string }
						}
					}
				}
			}
		}
		if err := json.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
			text := s.ParentSpanID[14:] + " " + s.Name
			for _, a := range s.Attributes {
				text += " " + a.Value.StringValue + a.Value.IntValue
			}
			sent = append(sent, text)
		}
	}))
	defer collector.Close()
	raw := tracedGet("/timestamp", 1, "00") + plain + tracedGet("/timestamp?n=2", 2, "01") + tracedGet("/timestamp", 3, "01") + plain +
		tracedGet("/api/snowflake", 4, "01") + tracedGet("/api/snowflake", 5, "00") + tracedGet("/timestamp", 6, "01")
	answers := func(e *trace.Exporter, err error) (string, *noting) {
		backend := &noting{prompt: prompt{err}}
		h := open(t, backend)
		if e != nil {
			h.front.tracer = &tracer{e}
		}
		for b := []byte(raw); len(b) > 0; {
			used, dataErr := h.Data(h.conn, b)
			if dataErr != nil || used == 0 {
				t.Fatalf("%d, %v", used, dataErr)
			}
			b = b[used:]
		}
		return string(h.conn.Buffered()), backend
	}
	e := trace.Start(trace.Config{Endpoint: collector.URL, Service: "x"})
	got, backend := answers(e, nil)
	failed, _ := answers(e, isotone.ErrOverloaded)
	e.Close()
	for text, err := range map[string]error{got: nil, failed: isotone.ErrOverloaded} {
		if want, _ := answers(nil, err); withoutDates(text) != withoutDates(want) {
			t.Errorf("%v: answered\n%q\nwithout tracing\n%q", err, text, want)
		}
	}
	const ok, overloaded = " http1 ok", " http1 overloaded"
	want := []string{
		"02 GET /timestamp GET /timestamp 200" + ok, "03 GET /timestamp GET /timestamp 200" + ok,
		"04 GET /api/snowflake GET /api/snowflake 200" + ok, "06 GET /timestamp GET /timestamp 200" + ok,
		"02 GET /timestamp GET /timestamp 503" + overloaded, "03 GET /timestamp GET /timestamp 503" + overloaded,
		"04 GET /api/snowflake GET /api/snowflake 200" + ok, "06 GET /timestamp GET /timestamp 503" + overloaded,
	}
	if strings.Join(sent, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(sent, "\n"), strings.Join(want, "\n"))
	}
	if n := len(backend.traces); n != 2 || backend.traces[0] == nil || backend.traces[0].Trace[15] != 2 || backend.traces[1] == nil || backend.traces[1].Trace[15] != 6 {
		t.Errorf("%d batches with the traces %v; want those of requests 2 and 6", n, backend.traces)
	}
}

// withoutDates removes what may change between two runs: dates, and ids.
func withoutDates(answers string) string {
	var kept []string
	for line := range strings.SplitSeq(answers, "\r\n") {
		if !strings.HasPrefix(line, "Date: ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// TestTracer_WhatIsNotTracedAllocatesNothing, and its batch has no trace, even one that was
// traced when it was used before.
func TestTracer_WhatIsNotTracedAllocatesNothing(t *testing.T) {
	backend := &noting{}
	h := open(t, backend)
	h.front.tracer = &tracer{trace.Start(trace.Config{Endpoint: "http://127.0.0.1:1", Service: "x"})}
	defer h.front.tracer.exporter.Close()
	data := func(raw []byte) {
		if used, err := h.Data(h.conn, raw); used != len(raw) || err != nil {
			t.Fatalf("%d, %v", used, err)
		}
		h.discard()
	}
	data([]byte(tracedGet("/timestamp", 1, "01")))
	data([]byte(tracedGet("/timestamp", 2, "00")))
	if backend.traces[0] == nil || backend.traces[1] != nil {
		t.Errorf("the traces are %v", backend.traces)
	}
	backend.traces = make([]*trace.Context, 0, 10000)
	for _, raw := range []string{plain, hotOnes["id"], tracedGet("/timestamp", 3, "00"), strings.Repeat(plain, 32)} {
		b := []byte(raw)
		if n := testing.AllocsPerRun(200, func() { data(b) }); n != 0 {
			t.Errorf("%.40q: %v allocations", raw, n)
		}
	}
}

// TestTracer_AnAbandonedRequestHasASpan when its client leaves before the answer.
func TestTracer_AnAbandonedRequestHasASpan(t *testing.T) {
	h := open(t, &later{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	e := trace.Start(trace.Config{Endpoint: collector.URL, Service: "x"})
	h.front.tracer = &tracer{e}
	if _, err := h.Data(h.conn, []byte(tracedGet("/timestamp", 1, "01"))); err != nil {
		t.Fatal(err)
	}
	if n, _ := e.Queue(); n != 0 || e.Counts() != (trace.Counts{}) {
		t.Errorf("%d spans before the end, %+v", n, e.Counts())
	}
	h.conn.Abort(loop.ErrClosed)
	e.Close() // after which each span has a fate
	if c := e.Counts(); c.Sent+c.Dropped+c.Failed != 1 {
		t.Errorf("after the end: %+v", c)
	}
}
