package http1_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
)

// shown is what the cluster clock of all sites shows.
var shown = interval.Reading{Cluster: clusterID, Term: 9, Earliest: 1_790_000_000_000_000_000, Latest: 1_790_000_000_000_001_000, Limit: 1_790_000_001_000_000_000}

// Now implements front.Clock.
func (o *oracle) Now() (interval.Reading, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return shown, o.err
}

func TestFront_MakesTimestampsOfTheClusterClock(t *testing.T) {
	s := startFront(t)
	back := s.exchange(t, true, of("/interval?n=1")+of("/interval?n=64")+of("/interval?n=2&format=json")+of("/interval"))
	replies, rest := read(back)
	if len(replies) != 4 || rest != "" || s.detached.Load() != 0 {
		t.Fatalf("%d answers, %d detached, then %q", len(replies), s.detached.Load(), rest)
	}
	var last isotone.Timestamp
	for i, n := range []int{1, 64} {
		body := replies[i].Body
		if len(body) != n*isotone.TimestampSize || replies[i].Header.Get("Content-Type") != "application/octet-stream" {
			t.Fatalf("%d bytes, %v", len(body), replies[i].Header)
		}
		for body != "" {
			var at isotone.Timestamp
			_ = at.UnmarshalBinary([]byte(body[:isotone.TimestampSize]))
			body = body[isotone.TimestampSize:]
			if at.Time < shown.Latest || at.Index < interval.IndexMin || last.Time != 0 && (at.Time != last.Time+1 || at.Index != last.Index) {
				t.Fatalf("%v follows %v", at, last)
			}
			last = at
		}
	}
	next := isotone.Timestamp{Time: last.Time + 2, Index: last.Index}
	if body := replies[2].Body; strings.Count(body, `"hex"`) != 2 || !strings.HasSuffix(body, next.String()+`"}]}`) {
		t.Errorf("%q lacks %v", body, next)
	}
	if r, nonce, err := interval.Decode([]byte(replies[3].Body)); r != shown || nonce != 0 || err != nil {
		t.Errorf("%+v, %d, %v", r, nonce, err)
	}
}

// What waits, and what is large, leaves the loop.
func TestFront_TheStandardServersWaitForTheClusterClock(t *testing.T) {
	s := startFront(t)
	for target, size := range map[string]int{
		"/interval?n=65536": 65536 * isotone.TimestampSize,
		"/interval?wait=" + isotone.Timestamp{}.String(): len("ok"),
	} {
		before := s.detached.Load()
		a, err := http.Get("http://" + s.addr + target)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil || a.StatusCode != 200 || len(body) != size || s.detached.Load() != before+1 {
			t.Errorf("%s: %d, %d bytes, %v, %d detached", target, a.StatusCode, len(body), err, s.detached.Load()-before)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// A proxy, and a node without INTERVAL_MS, say so by both paths.
func TestFront_WithoutAClusterClock(t *testing.T) {
	s := startFront(t, func(c *config) { c.front.Clock = nil })
	for target, refused := range map[string]bool{"/interval?nonce=1": true, "/interval?n=2": true, "/timestamp": false} {
		replies, _ := read(s.exchange(t, true, of(target)))
		if len(replies) != 1 || strings.Contains(replies[0].Status, "404") != refused || strings.Contains(replies[0].Body, string(isotone.CodeNotFound)) != refused {
			t.Errorf("%s: %+v", target, replies)
		}
	}
}
