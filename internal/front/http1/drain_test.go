package http1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front/stats"
)

// While the node drains, each connection gets all answers, the last of them with "Connection:
// close", and is closed; new connections are still served.
func TestFront_DrainingClosesAConnectionAfterItsAnswers(t *testing.T) {
	const ids, doc, unchanged = "/api/snowflake?n=2", "/live/tiny", "/live/scores-1"
	requests := map[string][]string{
		"a timestamp":           {plain},
		"a range":               {of("/timestamp?n=9&format=range")},
		"JSON":                  {of("/timestamp?format=json")},
		"pipelined timestamps":  {plain + plain + of("/timestamp?n=2")},
		"an id":                 {of("/api/snowflake")},
		"pipelined ids":         {of("/api/snowflake") + of(ids)},
		"a document":            {of(doc)},
		"documents and ids":     {of(doc) + of(ids) + of(unchanged)},
		"ids, then timestamps":  {of(ids) + plain},
		"timestamps, then ids":  {plain + of(ids)},
		"of HTTP/1.0":           {legacy("/timestamp") + legacy("/timestamp") + legacy("/api/snowflake")},
		"a last of HTTP/1.0":    {plain + legacy("/timestamp")},
		"an id of HTTP/1.0":     {of("/api/snowflake") + legacy("/api/snowflake")},
		"one on the other path": {of("/members")},
		"one in two pieces":     {plain[:20], plain[20:]},
	}
	for name, configure := range map[string]func(*config){
		"in the turn": func(*config) {},
		"under TLS":   func(*config) {},
		"in Submit":   func(c *config) { c.front.Backend = c.site.oracle },
		"measured": func(c *config) {
			c.front.Loop, c.front.Stats = c.site.loop, stats.New(stats.Config{Sample: 1, Observe: func(*stats.Record) {}})
		},
	} {
		s := startSecure(t, configure)
		if name != "under TLS" {
			s.tls = nil
		}
		for what, pieces := range requests {
			for _, fault := range []error{nil, isotone.ErrOverloaded} {
				t.Run(fmt.Sprint(name, ", ", what, ", ", fault), func(t *testing.T) {
					s.draining.Store(false)
					s.reset(nil)
					staying := s.open(t)
					defer staying.Close()
					if _, err := staying.Write([]byte(plain)); err != nil {
						t.Fatal(err)
					}
					if a := answers(t, staying, 1)[0]; a.Close {
						t.Fatalf("before: %v", a.Header)
					}
					s.draining.Store(true)
					s.reset(fault)
					wantClosed(t, s.exchange(t, false, pieces...), strings.Count(strings.Join(pieces, ""), "GET "))
				})
			}
		}
	}
}

// wantClosed checks what came back for n requests whose connection was then closed.
func wantClosed(t *testing.T, back string, n int) {
	t.Helper()
	got, rest := read(back)
	if rest != "" || len(got) != n {
		t.Fatalf("%d answers, want %d: %q", len(got), n, back)
	}
	for i, a := range got {
		if last := i == len(got)-1; a.Close != last {
			t.Errorf("answer %d of %d: %v", i+1, len(got), a.Header)
		}
	}
	if n := strings.Count(back, "\r\nConnection: close\r\n"); n != 1 {
		t.Errorf("the field is there %d times: %q", n, back)
	}
}
