package resp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/host/trace"
)

// collector keeps what is sent to it: of each span its parent, name and attributes.
type collector struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	spans []string
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					ParentSpanID, Name string
					Kind               int
					Attributes         []struct {
						Value struct{ StringValue, IntValue string }
					}
					Status struct{ Code int }
				}
			}
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		text := fmt.Sprintf("%s %s %d %d", s.ParentSpanID, s.Name, s.Kind, s.Status.Code)
		for _, a := range s.Attributes {
			text += " " + a.Value.StringValue + a.Value.IntValue
		}
		c.spans = append(c.spans, text)
	}
}

// exporter returns an exporter to c that traces one of sample requests without a trace, and what
// ends it and returns the spans.
func (c *collector) exporter(sample int) (*trace.Exporter, func() []string) {
	e := trace.Start(trace.Config{Endpoint: c.url, Sample: sample, Service: "test"})
	return e, func() []string {
		e.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		slices.Sort(c.spans)
		return c.spans
	}
}

// option returns TRACEPARENT with span n.
func option(n int, flags string) string {
	return fmt.Sprintf(" TRACEPARENT 00-%032x-%016x-%s", n, n, flags)
}

// TestTracer_ABatchHasTheSpanOfItsFirstTracedCommand, and answers do not change.
func TestTracer_ABatchHasTheSpanOfItsFirstTracedCommand(t *testing.T) {
	say := "TS\n" + "TS 2" + option(1, "00") + "\n" + "TS" + option(2, "01") + "\n" + "TS" + option(3, "01") + "\n" + // one batch
		"TS 1 LEASE" + option(4, "00") + "\n" + // not marked
		"TS 1 QUORUM\n" +
		"SNOWFLAKE" + option(5, "01") + "\n" + "SNOWFLAKE 2" + option(6, "00") + "\n" + "SNOWFLAKE 0" + option(7, "01") + "\n" +
		"TS 1 LEASE" + option(8, "01") + "\n"
	play := func(e *trace.Exporter, failure error) (string, *oracle) {
		o := newOracle()
		o.err = failure
		w := newTape(t, New(Config{Backend: o, IDs: &ids{}, Trace: e}))
		w.feed([]byte(say))
		return w.finish(o), o
	}
	want, o := play(nil, nil)
	for _, b := range o.batches {
		if b.Trace != nil {
			t.Error("a batch is traced without an exporter")
		}
	}
	e, spans := newCollector(t).exporter(0)
	got, o := play(e, nil)
	if got != want {
		t.Errorf("answers %q, want %q", got, want)
	}
	var traced []bool
	for _, b := range o.batches {
		traced = append(traced, b.Trace != nil)
		if b.Trace != nil && (b.Trace.Span == [8]byte{} || b.Trace.Trace[15] != 2 && b.Trace.Trace[15] != 8) {
			t.Errorf("a batch has the span %x of trace %x", b.Trace.Span, b.Trace.Trace)
		}
	}
	if !slices.Equal(traced, []bool{true, false, false, true}) {
		t.Errorf("traced batches: %v", traced)
	}
	sent := []string{
		"0000000000000002 TS 2 0 resp ok 4", "0000000000000005 SNOWFLAKE 2 0 resp ok 1", "0000000000000007 SNOWFLAKE 2 0 resp invalid_argument 1",
		"0000000000000008 TS 2 0 resp ok 1",
	}
	if got := spans(); !slices.Equal(got, sent) {
		t.Errorf("spans %q, want %q", got, sent)
	}

	e, spans = newCollector(t).exporter(0)
	play(e, isotone.ErrNoLeader)
	if got := spans(); !slices.Contains(got, "0000000000000002 TS 2 2 resp no_leader 4") {
		t.Errorf("spans of failed requests: %q", got)
	}
}

// TestTracer_SamplesWhatComesWithoutATrace, a batch as one request.
func TestTracer_SamplesWhatComesWithoutATrace(t *testing.T) {
	e, spans := newCollector(t).exporter(1)
	o := newOracle()
	w := newTape(t, New(Config{Backend: o, IDs: &ids{}, Trace: e}))
	w.feed([]byte(strings.Repeat("TS\n", 32) + "SNOWFLAKE\nPING\n"))
	w.finish(o)
	if got, want := spans(), []string{" SNOWFLAKE 2 0 resp ok 1", " TS 2 0 resp ok 32"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}

// TestTracer_EndsWithTheConnection: a client that leaves does not take its span along.
func TestTracer_EndsWithTheConnection(t *testing.T) {
	e, spans := newCollector(t).exporter(0)
	o := newOracle()
	o.later = true
	w := newTape(t, New(Config{Backend: o, Trace: e}))
	w.feed([]byte("TS" + option(1, "01") + "\n"))
	w.conn.Closed(nil, io.EOF)
	o.answer()
	if got, want := spans(), []string{"0000000000000001 TS 2 2 resp deadline_exceeded 1"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}

func TestTracer_DoesNotAllocateForWhatIsNotTraced(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	e, _ := newCollector(t).exporter(0)
	defer e.Close()
	for _, p := range pipelines {
		c, say := New(Config{Backend: &prompt{}, Trace: e}).open(&still{}, access.Of(nil)), []byte(p.say)
		if got := testing.AllocsPerRun(100, func() { c.work(say) }); got != 0 {
			t.Errorf("%s: %v allocations", p.name, got)
		}
	}
}
