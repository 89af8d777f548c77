package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	"github.com/isotone/isotone/internal/host/config"
)

// sentSpan is a span as a collector gets it.
type sentSpan struct {
	service                            string
	TraceID, SpanID, ParentSpanID      string
	Name                               string
	Kind                               int
	StartTimeUnixNano, EndTimeUnixNano string
	Attributes                         []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
	Status struct{ Code int }
}

func (s *sentSpan) attr(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

// spanCollector keeps the spans that are sent to it.
type spanCollector struct {
	url   string
	mu    sync.Mutex
	spans []sentSpan
}

func newSpanCollector(t *testing.T) *spanCollector {
	c := &spanCollector{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes []struct{ Value struct{ StringValue string } }
				}
				ScopeSpans []struct{ Spans []sentSpan }
			}
		}
		if err := json.Unmarshal(body, &request); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v: %s", r.URL, err, body)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range request.ResourceSpans {
			for _, s := range of.ScopeSpans[0].Spans {
				s.service = of.Resource.Attributes[0].Value.StringValue
				c.spans = append(c.spans, s)
			}
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// of waits for n spans of a trace, and returns all of it.
func (c *spanCollector) of(t *testing.T, trace string, n int) (spans []sentSpan) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d spans of trace %s", n, trace), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		spans = nil
		for _, s := range c.spans {
			if s.TraceID == trace {
				spans = append(spans, s)
			}
		}
		return len(spans) >= n
	})
	return spans
}

// named returns the span with a service and a name.
func named(t *testing.T, spans []sentSpan, service, name string) *sentSpan {
	t.Helper()
	for i := range spans {
		if spans[i].service == service && spans[i].Name == name {
			return &spans[i]
		}
	}
	t.Fatalf("%s has no span %s: %+v", service, name, spans)
	return nil
}

// getTraced sends a request that belongs to a trace.
func getTraced(t *testing.T, url, trace, flags string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-"+flags)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
}

const caller = "00f067aa0ba902b7"

// traceID returns a different trace for each number.
func traceID(n int) string { return fmt.Sprintf("4bf92f3577b34da6%016x", n) }

// TestTracing_FollowsARequestThroughProxyAndNode, on the fast path and on the standard path,
// with and without statistics of requests.
func TestTracing_FollowsARequestThroughProxyAndNode(t *testing.T) {
	t.Parallel()
	for _, measured := range []bool{false, true} {
		t.Run(fmt.Sprintf("stats=%v", measured), func(t *testing.T) {
			c := newSpanCollector(t)
			_, client, admin := testnode.Run(t, func(s *config.Settings) {
				s.TraceEndpoint, s.TraceSample, s.RequestStats = c.url+"/v1/traces", 0, measured
			})
			await.Until(t, "the node is ready", func() bool { status, _ := rig.Fetch(t, admin+"/ready"); return status == 200 })
			addr, _ := runProxy(t, "--backend", client, "--trace-endpoint", c.url, "--trace-sample", "0")

			spans := func(n int, path string, want int) []sentSpan {
				getTraced(t, "http://"+addr+path, traceID(n), "01")
				return c.of(t, traceID(n), want)
			}
			for n, path := range []string{"/timestamp", "/timestamp?format=json&n=2", "/timestamp?n=%31"} { // the last one is for the standard servers
				all := spans(n+1, path, 3)
				proxy, node, round := named(t, all, "isotone-proxy", "GET"), named(t, all, "isotone", "GET /timestamp"), named(t, all, "isotone", "round")
				if len(all) != 3 || proxy.ParentSpanID != caller || node.ParentSpanID != proxy.SpanID || round.ParentSpanID != node.SpanID {
					t.Errorf("%s: the spans are no chain: %+v", path, all)
				}
				if proxy.Kind != 2 || node.Kind != 2 || round.Kind != 1 || node.Status.Code != 0 || node.StartTimeUnixNano >= node.EndTimeUnixNano {
					t.Errorf("%s: %+v", path, all)
				}
				for key, want := range map[string]string{
					"http.request.method": "GET", "url.path": "/timestamp", "http.response.status_code": "200", "isotone.protocol": "http1", "isotone.code": "ok",
				} {
					if proxy.attr(key) != want || node.attr(key) != want {
						t.Errorf("%s: %s is %q at the proxy and %q at the node, want %q", path, key, proxy.attr(key), node.attr(key), want)
					}
				}
				if round.attr("isotone.mode") != "quorum" || round.attr("isotone.requests") != "1" || proxy.attr("isotone.backend") == "" {
					t.Errorf("%s: %+v, %+v", path, round, proxy)
				}
			}
			all := spans(7, "/up", 2)
			if node := named(t, all, "isotone", "GET /up"); node.ParentSpanID != named(t, all, "isotone-proxy", "GET").SpanID {
				t.Errorf("/up: %+v", all)
			}
			getTraced(t, client+"/api/snowflake", traceID(8), "01")
			if node := named(t, c.of(t, traceID(8), 1), "isotone", "GET /api/snowflake"); node.ParentSpanID != caller {
				t.Errorf("an ID: %+v", node)
			}
			// What is not marked, and what comes without a trace, leaves nothing.
			getTraced(t, "http://"+addr+"/timestamp", traceID(9), "00")
			getTraced(t, client+"/up", traceID(9), "00")
			rig.Fetch(t, client+"/timestamp")
			spans(10, "/timestamp", 3)
			c.mu.Lock()
			defer c.mu.Unlock()
			if n := len(c.spans); n != 3*3+2+1+3 {
				t.Errorf("%d spans were sent: %+v", n, c.spans)
			}
		})
	}
}

// wantChain checks that spans are those with these services and names, each the child of the one
// before, the first one of the caller.
func wantChain(t *testing.T, spans []sentSpan, want ...[2]string) {
	t.Helper()
	parent := caller
	for _, w := range want {
		s := named(t, spans, w[0], w[1])
		if s.ParentSpanID != parent || s.Status.Code != 0 {
			t.Errorf("%v: want the parent %s and no failure: %+v", w, parent, s)
		}
		parent = s.SpanID
	}
	if len(spans) != len(want) {
		t.Errorf("want %d spans: %+v", len(want), spans)
	}
}

// askedOnce makes a call and wants these spans of it. A client asks again if its connection ends, or if an answer is late,
// as on a machine that stands still; then the trace has more spans, and the call is made once more with another trace.
func askedOnce(t *testing.T, c *spanCollector, name string, want [][2]string, call func(trace string) error) {
	t.Helper()
	for try := range 20 {
		trace := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, t.Name(), name, want, try)))[:32]
		if err := call(trace); err != nil {
			t.Fatal(err)
		}
		if spans := c.of(t, trace, len(want)); len(spans) == len(want) {
			wantChain(t, spans, want...)
			return
		}
	}
	t.Fatalf("%s: the client asked twice each time", name)
}

// TestTracing_FollowsARequestOfTheGoClient to a node, and to the cluster behind a proxy.
func TestTracing_FollowsARequestOfTheGoClient(t *testing.T) {
	t.Parallel()
	c := newSpanCollector(t)
	_, node, admin := testnode.Run(t, func(s *config.Settings) { s.TraceEndpoint, s.TraceSample = c.url+"/v1/traces", 0 })
	await.Until(t, "the node is ready", func() bool { status, _ := rig.Fetch(t, admin+"/ready"); return status == 200 })
	node = strings.TrimPrefix(node, "http://")
	proxy, proxyAdmin := runProxy(t, "--node", node, "--advertise", "proxy.example:1", "--trace-endpoint", c.url, "--trace-sample", "0")
	await.Until(t, "the proxy is ready", func() bool { status, _ := rig.Fetch(t, "http://"+proxyAdmin+"/readyz"); return status == 200 })
	for i, addr := range []string{node, proxy} {
		await.Until(t, addr+" makes IDs", func() bool { status, _ := rig.Fetch(t, "http://"+addr+"/ready/ids"); return status == 200 })
		type key struct{}
		ctx, cancel := context.WithTimeout(t.Context(), rig.Wait)
		defer cancel()
		asks, err := client.NewWith(ctx, client.Options{
			Addrs: []string{addr},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) { // also for proxy.example
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
			TraceParent: func(ctx context.Context) string {
				text, _ := ctx.Value(key{}).(string)
				return text
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer asks.Close()
		traced := func(name string, want [][2]string, call func(context.Context) error) {
			t.Helper()
			askedOnce(t, c, name, want, func(trace string) error {
				return call(context.WithValue(ctx, key{}, "00-"+trace+"-"+caller+"-01"))
			})
		}
		chain := [][2]string{{"isotone", "TS"}, {"isotone", "round"}}
		if addr == proxy {
			chain = append([][2]string{{"isotone-proxy", "TS"}}, chain...)
		}
		traced("a timestamp", chain, func(ctx context.Context) error { _, err := asks.Timestamp(ctx); return err })
		traced("timestamps", chain, func(ctx context.Context) error { _, err := asks.Timestamps(ctx, 5); return err })
		traced("an ID", [][2]string{{[]string{"isotone", "isotone-proxy"}[i], "SNOWFLAKE"}}, func(ctx context.Context) error { _, err := asks.Snowflake(ctx); return err })
		if _, err := asks.Timestamp(ctx); err != nil {
			t.Fatal(err)
		}
	}
	getTraced(t, "http://"+proxy+"/timestamp", traceID(30), "01")
	wantChain(t, c.of(t, traceID(30), 3), [2]string{"isotone-proxy", "GET /timestamp"}, [2]string{"isotone", "TS"}, [2]string{"isotone", "round"})
}

// TestTracing_FollowsARequestThatIsForwarded from a follower to the leader.
func TestTracing_FollowsARequestThatIsForwarded(t *testing.T) {
	t.Parallel()
	c := newSpanCollector(t)
	all := startProcessesWith(t, 3, func(s *config.Settings) {
		s.TraceEndpoint, s.TraceSample, s.Forward = c.url+"/v1/traces", 0, true
	})
	_, others := all.leader(t)
	others[0].says("/timestamp?format=json", 200, "time") // it has found the leader
	getTraced(t, "http://"+others[0].s.AdvertiseAddr+"/timestamp", traceID(1), "01")
	own := func(s sentSpan) bool { return s.Name == "round" && s.attr("isotone.code") == "not_leader" }
	spans := c.of(t, traceID(1), 4)
	if !slices.ContainsFunc(spans, own) {
		t.Errorf("the follower has no span of its own refusal: %+v", spans)
	}
	wantChain(t, slices.DeleteFunc(spans, own), [2]string{"isotone", "GET /timestamp"}, [2]string{"isotone", "TS"}, [2]string{"isotone", "round"})
}

func TestTracing_SamplesRequestsWithoutATraceAndCountsSpans(t *testing.T) {
	t.Parallel()
	c := newSpanCollector(t)
	_, client, admin := testnode.Run(t, func(s *config.Settings) { s.TraceEndpoint, s.TraceSample = c.url+"/v1/traces", 1 })
	await.Until(t, "the node is ready", func() bool { status, _ := rig.Fetch(t, admin+"/ready"); return status == 200 })
	rig.Fetch(t, client+"/timestamp?n=0")
	await.Until(t, "the span of a request that is wrong", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.Name == "GET /timestamp" && s.attr("isotone.code") == "invalid_argument" {
				return s.ParentSpanID == "" && s.Status.Code == 0 && s.attr("http.response.status_code") == "400"
			}
		}
		return false
	})
	await.Until(t, "the metrics count the spans", func() bool { // once the exporter has read the collector's answer
		_, body := rig.Fetch(t, admin+"/metrics")
		return strings.Contains(body, `isotone_trace_spans_total{outcome="dropped"} 0`) && !strings.Contains(body, `isotone_trace_spans_total{outcome="sent"} 0`) &&
			strings.Contains(body, "isotone_trace_queue_limit_spans 8192")
	})
}

// TestTracing_OffIsOff: no exporter, no metrics, and headers as ever.
func TestTracing_OffIsOff(t *testing.T) {
	_, client, admin := testnode.Run(t, nil)
	await.Until(t, "the node is ready", func() bool { status, _ := rig.Fetch(t, admin+"/ready"); return status == 200 })
	getTraced(t, client+"/timestamp", traceID(1), "01")
	if _, body := rig.Fetch(t, admin+"/metrics"); strings.Contains(body, "isotone_trace_") {
		t.Error("there are metrics of traces")
	}
}

func TestProxy_ChecksTheFlagsAboutTraces(t *testing.T) {
	for want, args := range map[string][]string{
		"--trace-endpoint": {"--trace-endpoint", "collector:4317"},
		"--trace-sample":   {"--trace-endpoint", "http://c", "--trace-sample", "-1"},
		"--trace-sample goes with --trace-endpoint": {"--trace-sample", "5"},
	} {
		var errors strings.Builder
		if code := run(append([]string{"proxy", "--backend", "http://b"}, args...), console{io.Discard, &errors}); code != exitUsage || !strings.Contains(errors.String(), want) {
			t.Errorf("%v: %d, %s", args, code, errors.String())
		}
	}
}
