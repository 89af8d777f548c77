package web_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/front/web"
)

// clock is a cluster clock that shows what it is told, and counts how often it was read.
type clock struct {
	mu      sync.Mutex
	reading interval.Reading
	err     error
	reads   int
}

const shownAt = 1_790_000_000_000_000_000

func newClock() *clock {
	return &clock{reading: interval.Reading{Cluster: 0xabc, Term: 9, Earliest: shownAt, Latest: shownAt + 1000, Limit: shownAt + 1_000_000_000}}
}

func (c *clock) Now() (interval.Reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.reading, c.err
}

func (c *clock) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *clock) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

func startClock(t *testing.T, configure ...func(*web.Config)) (*site, *clock) {
	c := newClock()
	return start(t, append(configure, func(cfg *web.Config) { cfg.Clock = c })...), c
}

func TestInterval_EachFormatOverEachProtocol(t *testing.T) {
	s, k := startClock(t)
	const text = `{"earliest":"1790000000000000000","latest":"1790000000000001000","limit":"1790000001000000000","term":"9","cluster":"0000000000000abc","nonce":"7"}`
	eachProtocol(t, s, func(t *testing.T, c *client) {
		before := k.count()
		a := c.get(t, "/interval?nonce=7")
		if r, nonce, err := interval.Decode(a.body); a.StatusCode != 200 || err != nil || nonce != 7 || r != k.reading {
			t.Errorf("%d %x: %+v, %d, %v", a.StatusCode, a.body, r, nonce, err)
		}
		if got := a.Header; got.Get("Content-Type") != "application/octet-stream" || got.Get("Cache-Control") != "no-store" || got.Get("Content-Length") != "48" {
			t.Errorf("%v", got)
		}
		if _, nonce, err := interval.Decode(c.get(t, "/interval").body); err != nil || nonce != 0 {
			t.Errorf("without a nonce: %d, %v", nonce, err)
		}
		for _, a := range []answer{c.get(t, "/interval?nonce=7&format=json"), c.get(t, "/interval?nonce=7", "Accept", "application/json")} {
			if a.StatusCode != 200 || string(a.body) != text || a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%d %q %v", a.StatusCode, a.body, a.Header)
			}
		}
		if n := k.count() - before; n != 4 {
			t.Errorf("the clock was read %d times for 4 requests", n)
		}
	})
}

func TestInterval_TimestampsHaveConsecutiveTimes(t *testing.T) {
	s, k := startClock(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		var one isotone.Timestamp
		if a := c.get(t, "/interval?n=1"); a.StatusCode != 200 || one.UnmarshalBinary(a.body) != nil || one.Time < k.reading.Latest || one.Index < interval.IndexMin {
			t.Errorf("%d %x: %v", a.StatusCode, a.body, one)
		}
		a := c.get(t, "/interval?n=65536")
		if a.StatusCode != 200 || len(a.body) != 65536*isotone.TimestampSize || a.Header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Fatalf("%d, %d bytes, %v", a.StatusCode, len(a.body), a.Header)
		}
		var first isotone.Timestamp
		for i := range uint64(65536) {
			var at isotone.Timestamp
			_ = at.UnmarshalBinary(a.body[i*isotone.TimestampSize:][:isotone.TimestampSize])
			if i == 0 {
				first = at
			}
			if want := (isotone.Timestamp{Time: first.Time + i, Index: first.Index}); at != want {
				t.Fatalf("%d is %v, want %v", i, at, want)
			}
		}
		if a := c.get(t, "/interval?n=2&format=json"); !strings.HasPrefix(string(a.body), `{"timestamps":[{"time":"17900000`) || strings.Count(string(a.body), `"hex"`) != 2 {
			t.Errorf("%d %q", a.StatusCode, a.body)
		}
		k.set(func() {
			k.reading.Earliest, k.reading.Latest = k.reading.Earliest+1_000_000, k.reading.Latest+1_000_000
		})
	})
}

func TestInterval_WaitsUntilATimestampIsPast(t *testing.T) {
	s, k := startClock(t)
	eachProtocol(t, s, func(t *testing.T, c *client) {
		at := isotone.Timestamp{Time: k.reading.Earliest}
		k.set(func() { k.err = isotone.ErrNoLeader }) // the last lower bound holds for ever
		answered := make(chan answer, 1)
		before := k.count()
		go func() { answered <- c.get(t, "/interval?wait="+at.String()) }()
		for k.count() < before+3 {
			time.Sleep(time.Millisecond)
		}
		select {
		case a := <-answered:
			t.Fatalf("answered too early: %d %q", a.StatusCode, a.body)
		default:
		}
		k.set(func() { k.reading.Earliest++ })
		if a := <-answered; a.StatusCode != 200 || string(a.body) != "ok" || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d %q", a.StatusCode, a.body)
		}
		k.set(func() { k.err = isotone.ErrClock })
		wantFault(t, c.get(t, "/interval?wait="+at.String()), 503, isotone.CodeClock)
	})
}

func TestInterval_WaitsAreBounded(t *testing.T) {
	s, k := startClock(t, func(cfg *web.Config) { cfg.Limits.ClockWaitsMax = 2 })
	ahead := "/interval?wait=" + isotone.Timestamp{Time: shownAt + 1}.String()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+ahead, nil)
			if err == nil {
				var a *http.Response
				if a, err = http.DefaultTransport.RoundTrip(r); err == nil {
					_ = a.Body.Close()
				}
			}
			if err == nil {
				t.Error("answered")
			}
		})
	}
	c := s.client(t, "http1")
	for s.ClockWaits() < 2 {
		time.Sleep(time.Millisecond)
	}
	wantFault(t, c.get(t, ahead), 503, isotone.CodeOverloaded)
	if a := c.get(t, "/interval"); a.StatusCode != 200 {
		t.Errorf("a reading meanwhile: %d", a.StatusCode)
	}
	leave() // a client that leaves gives its place back
	waiting.Wait()
	for s.ClockWaits() > 0 {
		time.Sleep(time.Millisecond)
	}
	k.set(func() { k.reading.Earliest += 2 })
	if a := c.get(t, ahead); a.StatusCode != 200 {
		t.Errorf("%d %q", a.StatusCode, a.body)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestInterval_RefusesWhatIsNotGood(t *testing.T) {
	s, k := startClock(t)
	c := s.client(t, "http1")
	for _, query := range []string{"nonce=x", "n=0", "n=65537", "n=1&nonce=1", "wait=1", "format=range", "a;b"} {
		wantFault(t, c.get(t, "/interval?"+query), 400, isotone.CodeInvalidArgument)
	}
	for _, method := range []string{http.MethodPost, http.MethodHead} {
		if a := c.do(t, method, "/interval", nil); a.StatusCode != 405 || a.Header.Get("Allow") != "GET" {
			t.Errorf("%s: %d, Allow %q", method, a.StatusCode, a.Header.Get("Allow"))
		}
	}
	if k.count() != 0 {
		t.Error("a bad request has read the clock")
	}
	for _, err := range []*isotone.Error{isotone.ErrNoLeader, isotone.ErrClock} {
		k.set(func() { k.err = err })
		for _, query := range []string{"", "?n=3", "?format=json"} {
			wantFault(t, c.get(t, "/interval"+query), 503, err.Code)
		}
	}
	elsewhere := start(t).client(t, "http1")
	for _, query := range []string{"", "?n=3", "?wait=" + isotone.Timestamp{}.String()} {
		a := elsewhere.get(t, "/interval"+query)
		wantFault(t, a, 404, isotone.CodeNotFound)
		if !strings.Contains(string(a.body), "ask a node") {
			t.Errorf("%q", a.body)
		}
	}
}

func TestInterval_WaitsEndWithTheServer(t *testing.T) {
	s, _ := startClock(t)
	answered := make(chan answer, 1)
	c := s.client(t, "http1")
	go func() { answered <- c.get(t, "/interval?wait="+isotone.Timestamp{Time: shownAt + 1}.String()) }()
	for s.ClockWaits() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	wantFault(t, <-answered, 503, isotone.CodeNoLeader)
}
