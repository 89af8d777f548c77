package http1_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front/stats"
)

// startMeasured runs the front with one in sample requests measured.
func startMeasured(t *testing.T, sample int, configure ...func(*config)) (s *site, records chan stats.Record) {
	t.Helper()
	records = make(chan stats.Record, 1000)
	s = startSecure(t, append(configure, func(c *config) {
		c.front.Loop = c.site.loop
		c.front.Stats = stats.New(stats.Config{Sample: sample, Observe: func(r *stats.Record) { records <- *r }})
	})...)
	return s, records
}

func TestMeter_EveryRequestHasAnIDAndARecord(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	plainSite := startFront(t)
	s, records := startMeasured(t, 1)
	client := s.tls
	for _, tt := range []struct {
		raw, id, path string // id "": one is made
		err           error
		status        int
		code          string
	}{
		{with("X-Request-ID: mine-1"), "mine-1", "/timestamp", nil, 200, "ok"},
		{plain, "", "/timestamp", nil, 200, "ok"},
		{with("X-Request-ID: not valid"), "", "/timestamp", nil, 200, "ok"},
		{of("/timestamp?n=3&format=json"), "", "/timestamp", nil, 200, "ok"},
		{of("/api/snowflake?n=2"), "", "/api/snowflake", nil, 200, "ok"},
		{of("/live/tiny"), "", "/live/tiny", nil, 200, "ok"},
		{of("/state"), "", "/state", nil, 200, "ok"},
		{with("X-Request-ID: mine-2"), "mine-2", "/timestamp", isotone.ErrOverloaded, 503, "overloaded"},
		{of("/api/snowflake"), "", "/api/snowflake", isotone.ErrNoLeader, 503, "no_leader"},
		{with("Traceparent: 00-" + trace + "-00f067aa0ba902b7-01"), "", "/timestamp", nil, 200, "ok"},
	} {
		for _, protocol := range []string{"http1", "https1"} {
			s.tls = client
			if protocol == "http1" {
				s.tls = nil
			}
			s.reset(tt.err)
			plainSite.reset(tt.err)
			got, rest := read(s.exchange(t, true, tt.raw))
			if len(got) != 1 || rest != "" {
				t.Fatalf("%q: %v and %q", tt.raw, got, rest)
			}
			r := <-records
			id := got[0].Header.Get("X-Request-ID")
			if r.ID != id || tt.id != "" && id != tt.id || tt.id == "" && len(id) != 32 {
				t.Errorf("%q: ID %q, recorded %q", tt.raw, id, r.ID)
			}
			if r.Method != "GET" || r.Path != tt.path || r.Status != tt.status || r.Code != tt.code || r.Protocol != protocol {
				t.Errorf("%q: %+v", tt.raw, r)
			}
			if r.Wall <= 0 || r.CPU() > r.Wall || r.Measured != (runtime.GOOS == "linux") {
				t.Errorf("%q: %+v", tt.raw, r.Section)
			}
			if strings.Contains(tt.raw, trace) != (r.Trace == [16]byte{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36}) {
				t.Errorf("%q: trace %x", tt.raw, r.Trace)
			}
			delete(got[0].Header, "X-Request-Id")
			want, _ := read(plainSite.exchange(t, true, tt.raw))
			if got[0].Status != want[0].Status || got[0].Body != want[0].Body || len(got[0].Header) != len(want[0].Header) {
				t.Errorf("%q: answered %+v, without measurement %+v", tt.raw, got[0], want[0])
			}
		}
	}
	if n := s.detached.Load(); n != 0 {
		t.Errorf("%d connections left the fast path", n)
	}
}

func TestMeter_PipelinedRequestsKeepTheirIDs(t *testing.T) {
	s, records := startMeasured(t, 1)
	s.tls = nil
	raw, want := "", "a b c d e "
	for i, id := range strings.Fields(want) {
		raw += []string{with("X-Request-ID: " + id), "GET /api/snowflake HTTP/1.1\r\nHost: x\r\nX-Request-ID: " + id + "\r\n\r\n"}[i/3%2]
	}
	replies, rest := read(s.exchange(t, true, raw))
	answered, recorded := "", ""
	for _, r := range replies {
		answered += r.Header.Get("X-Request-ID") + " "
		recorded += (<-records).ID + " "
	}
	if answered != want || recorded != want || rest != "" {
		t.Errorf("answered %q, recorded %q, want %q; %q", answered, recorded, want, rest)
	}
}

func TestMeter_RecordsASampleAndRequestsWithoutAnswer(t *testing.T) {
	s, records := startMeasured(t, 1<<30)
	s.tls = nil
	if replies, _ := read(s.exchange(t, true, plain+plain)); len(replies) != 2 || replies[0].Header.Get("X-Request-ID") == "" {
		t.Errorf("%v", replies)
	}
	if len(records) != 0 {
		t.Errorf("recorded %+v", <-records)
	}
	s, records = startMeasured(t, 1)
	s.tls = nil
	s.set(func() { s.held = true })
	c := dial(t, s)
	_, _ = c.Write([]byte(plain))
	await.Until(t, "it is submitted", func() bool { n, _ := s.submitted(); return n == 1 })
	_ = c.SetLinger(0)
	_ = c.Close()
	if r := <-records; r.Status != 0 || r.Code != "deadline_exceeded" {
		t.Errorf("%+v", r)
	}
}
