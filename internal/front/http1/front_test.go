package http1_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/front/web"
	"github.com/isotone/isotone/internal/host/loop"
)

// hold keeps the oracle from answering; release lets it, in the loop's next turn.
func (s *site) hold() { s.set(func() { s.held = true }) }

func (s *site) release() {
	s.set(func() { s.held = false })
	s.loop.Wake()
}

// answers reads n answers.
func answers(t testing.TB, c net.Conn, n int) []answer {
	t.Helper()
	in := bufio.NewReader(c)
	list := make([]answer, 0, n)
	for i := range n {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		list = append(list, answer{response, body})
	}
	return list
}

type answer struct {
	*http.Response
	body []byte
}

// index returns the index of the first timestamp of a binary answer.
func (a answer) index(t testing.TB) uint64 {
	t.Helper()
	if a.StatusCode != 200 || len(a.body) < 16 || binary.BigEndian.Uint64(a.body) != epoch {
		t.Fatalf("%s %q", a.Status, a.body)
	}
	return binary.BigEndian.Uint64(a.body[8:])
}

func TestFront_PipelinedRequestsAreOneBatch(t *testing.T) {
	s := startFront(t, func(c *config) {
		c.front.Mode = isotone.ReadQuorum
		c.front.Limits = http1.Limits{PipelineMax: 8, AnswerBytesMax: 6000}
	})
	lease, large := of("/timestamp?mode=lease"), of("/timestamp?n=64")
	for _, tt := range []struct {
		raw      string
		requests int
		sizes    []int
	}{
		{strings.Repeat(plain, 5), 5, []int{5}},
		{strings.Repeat(plain, 20), 20, []int{8, 8, 4}},
		{plain + of("/timestamp?mode=quorum") + lease + lease + plain, 5, []int{2, 2, 1}},
		{strings.Repeat(large, 9), 9, []int{4, 4, 1}},
	} {
		s.reset(nil)
		c := dial(t, s)
		_, _ = io.WriteString(c, tt.raw)
		last := -1
		for _, a := range answers(t, c, tt.requests) {
			if index := int(a.index(t)); index <= last {
				t.Errorf("%.40q: index %d after %d", tt.raw, index, last)
			} else {
				last = index
			}
		}
		if _, sizes := s.submitted(); !slices.Equal(sizes, tt.sizes) {
			t.Errorf("%.40q, %d times: batches of %v, want %v", tt.raw, tt.requests, sizes, tt.sizes)
		}
	}
	if got, want := s.modes, []isotone.ReadMode{isotone.ReadQuorum, isotone.ReadQuorum, isotone.ReadQuorum}; !slices.Equal(got, want) {
		t.Errorf("modes %v", got)
	}
	if s.detached.Load() != 0 {
		t.Error("detached")
	}
}

// TestFront_RequestsOfOneFloorAreOneBatch, and no request gets the floor of another.
func TestFront_RequestsOfOneFloorAreOneBatch(t *testing.T) {
	s := startFront(t)
	low, high := isotone.Timestamp{Time: 1, Index: 2}, isotone.Timestamp{Time: 1, Index: 3}
	above := func(f isotone.Timestamp) string { return of("/timestamp?n=2&floor=" + f.String()) }
	c := dial(t, s)
	_, _ = io.WriteString(c, plain+above(low)+above(low)+above(high)+plain+plain)
	answers(t, c, 6)
	if _, sizes := s.submitted(); !slices.Equal(sizes, []int{1, 2, 1, 2}) {
		t.Errorf("batches of %v", sizes)
	}
	if want := []isotone.Timestamp{{}, low, high, {}}; !slices.Equal(s.floors, want) {
		t.Errorf("floors %v, want %v", s.floors, want)
	}
	if s.detached.Load() != 0 {
		t.Error("detached")
	}
}

// TestFront_RequestsOfOneTimelineAreOneBatch, and no request gets the timeline of another: neither in a pipeline, nor by a batch that is used
// again, nor by a request that is like the one before.
func TestFront_RequestsOfOneTimelineAreOneBatch(t *testing.T) {
	s := startFront(t)
	named := func(name string) string { return of("/timestamp?timeline=" + name) }
	c := dial(t, s)
	_, _ = io.WriteString(c, plain+named("a")+named("a")+named("b")+plain+plain+named("a")+of("/timestamp?n=2"))
	answers(t, c, 8)
	if _, sizes := s.submitted(); !slices.Equal(sizes, []int{1, 2, 1, 2, 1, 1}) {
		t.Errorf("batches of %v", sizes)
	}
	if got, want := s.timelines(), []string{"", "a", "b", "", "a", ""}; !slices.Equal(got, want) {
		t.Errorf("timelines %q, want %q", got, want)
	}
	s.reset(nil)
	want := []string{"a.B_9-", "", "", "a.B_9-", "c", ""}
	for _, name := range want { // one after the other
		request := plain
		if name != "" {
			request = named(name)
		}
		_, _ = io.WriteString(c, request)
		answers(t, c, 1)
	}
	if got := s.timelines(); !slices.Equal(got, want) {
		t.Errorf("timelines %q, want %q", got, want)
	}
	if s.detached.Load() != 0 {
		t.Error("detached")
	}
}

func TestFront_WhatIsNotHotWaitsForWhatIs(t *testing.T) {
	s := startFront(t)
	s.hold()
	c := dial(t, s)
	_, _ = io.WriteString(c, plain+plain+of("/up")+plain)
	await.Until(t, "a batch is submitted", func() bool { n, _ := s.submitted(); return n == 2 })
	s.do(func() {})
	if s.detached.Load() != 0 {
		t.Fatal("detached with answers outstanding")
	}
	s.release()
	got := answers(t, c, 4)
	if string(got[2].body) != "ok" || got[0].index(t) != 0 || got[1].index(t) != 1 || got[3].index(t) != 2 {
		t.Errorf("%v", got)
	}
	if s.detached.Load() != 1 {
		t.Errorf("detached %d times", s.detached.Load())
	}
}

func TestFront_AnswersToNobodyAreHarmless(t *testing.T) {
	s := startFront(t, observe)
	s.hold()
	gone := dial(t, s)
	_ = gone.SetLinger(0) // closing is a reset
	_, _ = io.WriteString(gone, plain+plain)
	await.Until(t, "a batch is submitted", func() bool { n, _ := s.submitted(); return n == 2 })
	_ = gone.Close()
	if got := <-s.observed; got != "http1 deadline_exceeded 2" {
		t.Errorf("observed %q", got)
	}
	s.do(func() {
		if n := s.front.Conns(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
	// The batch that is still out must not be used by others.
	other := dial(t, s)
	_, _ = io.WriteString(other, plain+plain)
	await.Until(t, "another is submitted", func() bool { n, _ := s.submitted(); return n == 4 })
	s.release()
	got := answers(t, other, 2)
	if got[0].index(t) != 2 || got[1].index(t) != 3 {
		t.Errorf("%d, %d", got[0].index(t), got[1].index(t))
	}
	if got := <-s.observed; got != "http1 ok 2" {
		t.Errorf("observed %q", got)
	}
}

// observe has a site keep what is observed.
func observe(c *config) {
	s := c.site
	c.front.Observe = func(protocol, code string, requests int, wall time.Duration) {
		if wall < 0 {
			code += " in negative time"
		}
		s.observed <- fmt.Sprint(protocol, " ", code, " ", requests)
	}
}

func TestFront_ObservesBatches(t *testing.T) {
	s := startFront(t, observe)
	c := dial(t, s)
	for _, tt := range []struct {
		err  error
		raw  string
		want string
	}{
		{nil, plain, "http1 ok 1"},
		{nil, plain + plain + plain, "http1 ok 3"},
		{isotone.ErrOverloaded, plain + plain, "http1 overloaded 2"},
		{&isotone.Error{Code: isotone.CodeNotLeader, Message: "m"}, plain, "http1 no_leader 1"},
		{errors.New("m"), plain, "http1 internal 1"},
	} {
		s.reset(tt.err)
		_, _ = io.WriteString(c, tt.raw)
		answers(t, c, strings.Count(tt.raw, "GET"))
		if got := <-s.observed; got != tt.want {
			t.Errorf("observed %q, want %q", got, tt.want)
		}
	}
}

// A backend that gives fewer than asked for, or nothing, must not have others' timestamps
// told, nor those of the batch before.
func TestFront_RefusesAWrongNumberFromTheBackend(t *testing.T) {
	s := startFront(t)
	c := dial(t, s)
	const raw = plain + plain
	_, _ = io.WriteString(c, raw)
	answers(t, c, 2)
	s.hold()
	for i, wrong := range []func(*front.Batch){
		func(*front.Batch) {},
		func(b *front.Batch) { b.Ranges, b.Counts = nil, nil },
		func(b *front.Batch) { b.Ranges[0].Count, b.Ranges[1].Count = 1, 2 },
		func(b *front.Batch) { b.Ranges[0].Count, b.Ranges[1].Count = 1, 0 },
		func(b *front.Batch) { b.Ranges[0].Count = 1; b.Ranges = b.Ranges[:1] },
	} {
		_, _ = io.WriteString(c, raw)
		await.Until(t, "a batch is submitted", func() bool { n, _ := s.submitted(); return n == 4+2*i })
		s.do(func() {
			s.mu.Lock()
			b := s.waiting[0]
			s.waiting = nil
			s.mu.Unlock()
			wrong(b)
			b.Done(b)
		})
		for _, a := range answers(t, c, 2) {
			if a.StatusCode != 500 || !strings.Contains(string(a.body), `"internal"`) {
				t.Errorf("%d: %s %q", i, a.Status, a.body)
			}
		}
	}
}

func TestFront_StopAnswersWhatIsOutAndClosesTheRest(t *testing.T) {
	s := startFront(t)
	idle, half, busy, unknown := dial(t, s), dial(t, s), dial(t, s), dial(t, s)
	_, _ = io.WriteString(idle, plain)
	answers(t, idle, 1)
	_, _ = io.WriteString(half, plain[:30])
	s.hold()
	_, _ = io.WriteString(busy, plain+plain)
	await.Until(t, "a batch is submitted", func() bool { n, _ := s.submitted(); return n == 3 })
	_, _ = io.WriteString(busy, plain) // too late
	s.do(func() {})
	s.do(func() {
		s.gate.Stop()
		s.front.Stop()
	})
	for name, c := range map[string]net.Conn{"idle": idle, "half": half, "unknown": unknown} {
		if got, err := io.ReadAll(c); err != nil || len(got) != 0 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		_ = c.Close()
	}
	s.release()
	got := answers(t, busy, 2)
	if got[0].Close || !got[1].Close || got[1].Header.Get("Date") == "" || got[1].index(t) != 2 {
		t.Errorf("%v\n%v", got[0], got[1])
	}
	if rest, err := io.ReadAll(busy); err != nil || len(rest) != 0 {
		t.Errorf("after Stop: %q, %v", rest, err)
	}
	late := dial(t, s)
	_, _ = io.WriteString(late, plain)
	if got, err := io.ReadAll(late); len(got) != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection after Stop: %q, %v", got, err)
	}
	_ = busy.Close()
	await.Until(t, "all are gone", func() bool {
		n := 0
		s.do(func() { n = s.front.Conns() + s.loop.Conns() })
		return n == 0
	})
}

func TestFront_AClientThatNeverReadsIsBounded(t *testing.T) {
	t.Parallel()
	s := startFront(t, func(c *config) { c.limits.WriteTimeout = time.Second })
	c := dial(t, s)
	_ = c.SetReadBuffer(4 << 10)
	batch := []byte(strings.Repeat(of("/timestamp?n=64"), 100))
	var sent int
	var err error
	for err == nil && sent < 256<<20 {
		var n int
		n, err = c.Write(batch)
		sent += n
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after %d bytes the write ended with %v, want the server to cut", sent, err)
	}
	requests, _ := s.submitted()
	t.Logf("%d bytes sent, %d requests reached the backend", sent, requests)
	if requests > 20_000 { // the kernel takes several MiB
		t.Errorf("%d requests reached the backend", requests)
	}
}

func TestFront_ConnectionsBeyondTheMostAreRefused(t *testing.T) {
	s := startFront(t, func(c *config) {
		c.gate.ConnectionsMax = 3
		c.web = append(c.web, func(c *web.Config) { c.Limits.ConnectionsMax = 3 })
	})
	one, two, three := dial(t, s), dial(t, s), dial(t, s)
	for _, c := range []net.Conn{one, two} {
		_, _ = io.WriteString(c, plain)
		answers(t, c, 1)
	}
	_, _ = io.WriteString(three, of("/up")) // which is elsewhere then
	answers(t, three, 1)
	for range 2 {
		raw := s.exchange(t, true, plain)
		replies, _ := read(raw)
		if len(replies) != 1 || replies[0].Status != "HTTP/1.1 503 Service Unavailable" || !replies[0].Close {
			t.Errorf("%q", raw)
		}
	}
	_ = three.Close()
	await.Until(t, "a place is free again", func() bool {
		replies, _ := read(s.exchange(t, true, plain))
		return len(replies) == 1 && replies[0].Status == "HTTP/1.1 200 OK"
	})
	_ = one.Close()
	await.Until(t, "another is", func() bool {
		c := dial(t, s)
		defer c.Close()
		_, _ = io.WriteString(c, of("/up"))
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && response.StatusCode == 200
	})
}

// A connection that says half a request is closed without a word, as net/http does.
func TestFront_SlowRequestsAreCut(t *testing.T) {
	t.Parallel()
	s := startFront(t, func(c *config) {
		c.limits = loop.Limits{PartialTimeout: 300 * time.Millisecond, IdleTimeout: 600 * time.Millisecond}
	})
	silent, half, later, idle := dial(t, s), dial(t, s), dial(t, s), dial(t, s)
	_, _ = io.WriteString(half, plain[:30])
	_, _ = io.WriteString(later, plain+plain[:30])
	_, _ = io.WriteString(idle, plain)
	answers(t, later, 1)
	answers(t, idle, 1)
	for name, c := range map[string]net.Conn{"silent": silent, "half": half, "later": later, "idle": idle} {
		if got, err := io.ReadAll(c); len(got) != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if s.detached.Load() != 0 {
		t.Error("detached")
	}
}

// Many clients at once, some of which leave in the middle, with everything that the fast path
// and the standard server do in between: no timestamp is told twice, and each client's
// grow.
func TestFront_ManyClientsGetWhatIsTheirs(t *testing.T) {
	s := startFront(t)
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var all sync.WaitGroup
	for client := range 20 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(client)))
			for range 8 {
				s.oneClient(t, random, func(index uint64) {
					mu.Lock()
					defer mu.Unlock()
					if seen[index] {
						t.Errorf("%d is told twice", index)
					}
					seen[index] = true
				})
			}
		})
	}
	all.Wait()
	if len(seen) < 1000 {
		t.Errorf("only %d timestamps", len(seen))
	}
}

func (s *site) oneClient(t *testing.T, random *rand.Rand, told func(uint64)) {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	n := 1 + random.IntN(60)
	leave := n
	if random.IntN(4) == 0 {
		leave = random.IntN(n)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for sent := 0; sent < n; {
			var raw strings.Builder
			for range min(1+random.IntN(10), n-sent) {
				raw.WriteString(plain)
				sent++
			}
			text := raw.String()
			cut := random.IntN(len(text))
			_, _ = io.WriteString(c, text[:cut])
			_, _ = io.WriteString(c, text[cut:])
		}
	}()
	in := bufio.NewReader(c)
	last, first := uint64(0), true
	for range leave {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Error(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != 200 || len(body) != 16 {
			t.Errorf("%s %q", response.Status, body)
			return
		}
		index := binary.BigEndian.Uint64(body[8:])
		if !first && index <= last {
			t.Errorf("%d after %d", index, last)
		}
		last, first = index, false
		told(index)
	}
	_ = c.Close()
	<-sent
}

// The date is renewed when the second is.
func TestFront_DateIsThePresent(t *testing.T) {
	t.Parallel()
	s := startFront(t)
	c := dial(t, s)
	for range 12 {
		before := time.Now().Truncate(time.Second)
		_, _ = io.WriteString(c, plain)
		a := answers(t, c, 1)[0]
		date, err := http.ParseTime(a.Header.Get("Date"))
		if err != nil || date.Before(before.Add(-time.Second)) || date.After(time.Now()) {
			t.Errorf("Date %q at %v: %v", a.Header.Get("Date"), time.Now(), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
