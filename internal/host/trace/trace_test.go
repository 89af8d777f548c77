package trace

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a fake: it keeps what it is sent, and answers with status.
type collector struct {
	*httptest.Server
	status atomic.Int64
	mu     sync.Mutex
	bodies []string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.status.Store(200)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s, %s", r.Method, r.URL, r.Header.Get("Content-Type"))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies = append(c.bodies, string(body))
		w.WriteHeader(int(c.status.Load()))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) start(sample int) *Exporter {
	return Start(Config{Endpoint: c.URL + "/v1/traces", Sample: sample, Service: "isotone", Version: "v1", Instance: "3"})
}

// TestExporter_SendsOTLP compares the whole request with one written by hand after the
// specification.
func TestExporter_SendsOTLP(t *testing.T) {
	c := newCollector(t)
	e := c.start(1)
	start := time.Unix(1700000000, 123456789)
	e.Add(Span{
		Context: Context{Trace: [16]byte{0x4b, 15: 0x36}, Span: [8]byte{1, 7: 2}}, Parent: [8]byte{7: 9},
		Name: "GET /timestamp", Kind: Server, Start: start, End: start.Add(time.Millisecond), Failed: true,
		Attrs: []Attr{String("url.path", "/a\xff"), Int("http.response.status_code", 503)},
	})
	e.Add(Span{Context: Context{Span: [8]byte{3}}, Name: "round", Kind: Internal, Start: start, End: start})
	e.Close()
	want := `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"isotone"}},` +
		`{"key":"service.version","value":{"stringValue":"v1"}},{"key":"service.instance.id","value":{"stringValue":"3"}}]},` +
		`"scopeSpans":[{"scope":{"name":"github.com/isotone/isotone","version":"v1"},"spans":[` +
		`{"traceId":"4b000000000000000000000000000036","spanId":"0100000000000002","parentSpanId":"0000000000000009",` +
		`"name":"GET /timestamp","kind":2,"startTimeUnixNano":"1700000000123456789","endTimeUnixNano":"1700000000124456789",` +
		`"attributes":[{"key":"url.path","value":{"stringValue":"/a?"}},{"key":"http.response.status_code","value":{"intValue":"503"}}],"status":{"code":2}},` +
		`{"traceId":"00000000000000000000000000000000","spanId":"0300000000000000","name":"round","kind":1,` +
		`"startTimeUnixNano":"1700000000123456789","endTimeUnixNano":"1700000000123456789","status":{}}]}]}]}`
	if got := strings.Join(c.bodies, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := e.Counts(); got != (Counts{Sent: 2}) {
		t.Errorf("%+v", got)
	}
}

func TestExporter_SendsInBatches(t *testing.T) {
	c := newCollector(t)
	e := c.start(1)
	for range batchMax + 10 {
		e.Add(Span{})
	}
	e.Close()
	sum := 0
	for _, body := range c.bodies {
		var r exportRequest
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatal(err)
		}
		n := len(r.ResourceSpans[0].ScopeSpans[0].Spans)
		if sum += n; n > batchMax {
			t.Errorf("%d spans in one request", n)
		}
	}
	if sum != batchMax+10 {
		t.Errorf("%d spans arrived", sum)
	}
	e.Add(Span{})
	if got := e.Counts(); got != (Counts{Sent: batchMax + 10, Dropped: 1}) {
		t.Errorf("%+v", got)
	}
}

// TestExporter_NeverBlocksAndBoundsItsQueue while the collector hangs; Close ends all the same.
func TestExporter_NeverBlocksAndBoundsItsQueue(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer server.Close()
	defer close(hang)
	e := Start(Config{Endpoint: server.URL, Service: "x"})
	const added = 2 * (spansMax + batchMax)
	for range added {
		e.Add(Span{})
	}
	if n, limit := e.Queue(); n > limit || limit != spansMax || e.Counts().Dropped == 0 {
		t.Errorf("%d spans wait, %+v", n, e.Counts())
	}
	began := time.Now()
	e.Close()
	if took := time.Since(began); took > closeTime+20*time.Second {
		t.Errorf("it took %v", took)
	}
	if c := e.Counts(); c.Sent != 0 || c.Dropped+c.Failed != added {
		t.Errorf("%+v, of %d", c, added)
	}
}

// answers is a transport that answers without a network.
type answers func(n int) (status int, err error)

type counted struct {
	answers
	n int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n++
	status, err := c.answers(c.n)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader("x")), Request: r}, nil
}

func TestExporter_TriesAgainOnlyWhereThatHelps(t *testing.T) {
	for _, tt := range []struct {
		name  string
		with  answers
		tries int
		want  Counts
	}{
		{"busy once", func(n int) (int, error) { return map[bool]int{true: 503, false: 200}[n == 1], nil }, 2, Counts{Sent: 1}},
		{"always busy", func(int) (int, error) { return 429, nil }, triesMax, Counts{Failed: 1}},
		{"not there", func(int) (int, error) { return 0, io.ErrUnexpectedEOF }, triesMax, Counts{Failed: 1}},
		{"refused", func(int) (int, error) { return 400, nil }, 1, Counts{Failed: 1}},
		{"moved", func(int) (int, error) { return 302, nil }, 1, Counts{Failed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := Start(Config{Endpoint: "http://collector/v1/traces", Service: "x"})
				transport := &counted{answers: tt.with}
				e.client.Transport = transport
				e.Add(Span{})
				time.Sleep(time.Minute) // of the bubble's clock
				e.Close()
				if transport.n != tt.tries || e.Counts() != tt.want {
					t.Errorf("%d tries, %+v; want %d, %+v", transport.n, e.Counts(), tt.tries, tt.want)
				}
			})
		})
	}
}

// TestClose_TriesNothingAgain: a collector that is not there delays no end.
func TestClose_TriesNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := Start(Config{Endpoint: "http://collector/v1/traces", Service: "x"})
		transport := &counted{answers: func(int) (int, error) { return 0, io.ErrUnexpectedEOF }}
		e.client.Transport = transport
		e.Add(Span{})
		began := time.Now()
		e.Close()
		e.Close()
		if took := time.Since(began); took != 0 || transport.n != 1 || e.Counts() != (Counts{Failed: 1}) {
			t.Errorf("%d tries within %v, %+v", transport.n, took, e.Counts())
		}
	})
}

func TestBegin_FollowsTheCallerAndSamplesTheRest(t *testing.T) {
	parent := Context{Trace: [16]byte{1}, Span: [8]byte{2}}
	all, none, some := &Exporter{cfg: Config{Sample: 1}}, &Exporter{}, &Exporter{cfg: Config{Sample: 4}}
	for _, e := range []*Exporter{all, none} {
		c, traced := e.Begin(parent, true)
		if !traced || c.Trace != parent.Trace || c.Span == parent.Span || c.Span == [8]byte{} {
			t.Errorf("a marked parent: %v, %v", c, traced)
		}
		if _, traced := e.Begin(parent, false); traced {
			t.Error("a parent that is not marked is traced")
		}
	}
	if c, traced := all.Begin(Context{}, false); !traced || c.Trace == [16]byte{} || c.Span == [8]byte{} {
		t.Errorf("no parent: %v, %v", c, traced)
	}
	if _, traced := none.Begin(Context{}, false); traced {
		t.Error("a request without a trace is traced although none is sampled")
	}
	sampled := 0
	for range 4000 {
		if _, traced := some.Begin(Context{}, false); traced {
			sampled++
		}
	}
	if sampled < 700 || sampled > 1300 {
		t.Errorf("%d of 4000 are traced, want about one in four", sampled)
	}
	a, b := parent.Child(), parent.Child()
	if a == b || a.Trace != b.Trace {
		t.Errorf("%v and %v are no siblings", a, b)
	}
}

func TestExporter_NilTracesNothing(t *testing.T) {
	var e *Exporter
	if _, traced := e.Begin(Context{Trace: [16]byte{1}}, true); traced {
		t.Error("it traces")
	}
	e.Add(Span{})
	if n, limit := e.Queue(); n != 0 || limit != 0 || e.Counts() != (Counts{}) {
		t.Error("it counts")
	}
	e.Close()
	if n := testing.AllocsPerRun(100, func() { e.Begin(Context{}, true); e.Add(Span{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestContext_IsCarried(t *testing.T) {
	if Of(context.Background()) != nil {
		t.Error("an empty context carries a span")
	}
	c := Context{Trace: [16]byte{1}}
	if got := Of(With(context.Background(), c)); got == nil || *got != c {
		t.Errorf("%v", got)
	}
}
