package forward_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/http1"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// TestUpstream_TellsTheClusterBehindIt as soon as it is known.
func TestUpstream_TellsTheClusterBehindIt(t *testing.T) {
	var id atomic.Uint64
	named := newTurns(t, forward.Config{Addr: "proxy:1", Cluster: func() isotone.ClusterID { return isotone.ClusterID(id.Load()) }})
	if s := named.Status(); s.ClusterID != 0 || s.NotReady != "" {
		t.Errorf("of nodes that have told none: %+v", s)
	}
	id.Store(0xabc)
	if s := named.Status(); s.ClusterID != 0xabc || s.Leader == 0 || s != named.Status() {
		t.Errorf("of nodes that tell it: %+v", s)
	}
	named.set(func() { named.err = isotone.ErrWrongCluster })
	b := named.submit(isotone.ReadQuorum, 1)
	named.until(t, "it is answered", func() bool { return b.done == 1 })
	if s := named.Status(); !errors.Is(b.Err, isotone.ErrWrongCluster) || s.ClusterID != 0xabc || s.NotReady == "" || s.Leader != 0 {
		t.Errorf("behind it is another one: %v, %+v", b.Err, s)
	}
	fresh := forward.NewUpstream(forward.Config{Source: &cluster{}}, func() {})
	defer fresh.Close()
	if s := fresh.Status(); s.ClusterID != 0 || s.NotReady == "" {
		t.Errorf("before it has answered: %+v", s)
	}
}

// TestUpstream_PassesFloorsOn: each in a request of its own, unless the cluster has passed it, and
// takes turns with requests that have none.
func TestUpstream_PassesFloorsOn(t *testing.T) {
	u := newTurns(t, forward.Config{BundlesMax: 1})
	first := u.submit(isotone.ReadQuorum, 3)
	u.until(t, "the first answer", func() bool { return first.done == 1 })
	seen := first.Ranges[0].First
	high, higher := isotone.Timestamp{Time: 8}, isotone.Timestamp{Time: 8, Index: 1}
	u.set(func() { u.asks, u.floors = nil, nil })
	list := []*submitted{
		u.submit(isotone.ReadQuorum, 1),
		u.submitAbove(high, isotone.ReadQuorum, 2, 2),
		u.submitAbove(seen, isotone.ReadQuorum, 5), // passed
		u.submitAbove(high, isotone.ReadQuorum, 6),
		u.submitAbove(higher, isotone.ReadLease, 7),
		u.submit(isotone.ReadLease, 8),
	}
	for _, b := range list {
		u.until(t, "all are answered", func() bool { return b.done == 1 })
	}
	want := []ask{{isotone.ReadQuorum, 6}, {isotone.ReadQuorum, 4}, {isotone.ReadLease, 8}, {isotone.ReadQuorum, 6}, {isotone.ReadLease, 7}}
	if got := u.asked(); !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	if floors := []isotone.Timestamp{{}, high, {}, high, higher}; !slices.Equal(u.floors, floors) {
		t.Errorf("floors %v, want %v", u.floors, floors)
	}
}

// TestUpstream_LendsNobodyTheRightToMoveTime: the cluster is not told of a floor whose client has no right to move time by it. It is asked again
// until it is above, unless that takes too long.
func TestUpstream_LendsNobodyTheRightToMoveTime(t *testing.T) {
	u := newTurns(t, forward.Config{Timeout: 5 * time.Second})
	ask := func(floor isotone.Timestamp, u64 bool) *submitted {
		b := &submitted{Batch: front.Batch{Mode: isotone.ReadQuorum, U64: u64, Floor: floor, Counts: []uint64{1}, Ranges: make([]isotone.Range, 1)}}
		b.Done = func(*front.Batch) { b.done++ }
		u.Submit(&b.Batch)
		u.until(t, "it is answered", func() bool { return b.done == 1 })
		return b
	}
	// The source is at 7 ns, and its index grows with each request.
	above := isotone.Timestamp{Time: 7, Index: 3}
	if b := ask(above, false); b.Err != nil || !above.Before(b.Ranges[0].First) {
		t.Errorf("%v, %v", b.Ranges, b.Err)
	}
	for _, u64 := range []bool{false, true} {
		if b := ask(isotone.Timestamp{Time: uint64(time.Now().Add(time.Minute).UnixNano())}, u64); !errors.Is(b.Err, isotone.ErrRegressed) || !strings.Contains(b.Err.Error(), "floors") {
			t.Errorf("%v, %v", b.Ranges, b.Err)
		}
	}
	if u.Status().NotReady != "" {
		t.Errorf("it does not serve any more: %s", u.Status().NotReady)
	}
	u.set(func() {
		if slices.ContainsFunc(u.floors, func(f isotone.Timestamp) bool { return f != (isotone.Timestamp{}) }) || len(u.floors) != 7 {
			t.Errorf("the cluster was told of the floors %v", u.floors)
		}
	})
}

// TestUpstream_ARegressedFloorIsItsClients: the proxy goes on serving. Without a floor it is the
// cluster that has regressed.
func TestUpstream_ARegressedFloorIsItsClients(t *testing.T) {
	u := newTurns(t, forward.Config{})
	u.set(func() { u.err = isotone.ErrRegressed })
	b := u.submitAbove(isotone.Timestamp{Time: 9}, isotone.ReadQuorum, 1)
	u.until(t, "it is answered", func() bool { return b.done == 1 })
	if s := u.Status(); !errors.Is(b.Err, isotone.ErrRegressed) || s.NotReady != "" {
		t.Errorf("%v, %+v", b.Err, s)
	}
	b = u.submit(isotone.ReadQuorum, 1)
	u.until(t, "it is answered", func() bool { return b.done == 1 })
	if s := u.Status(); !errors.Is(b.Err, isotone.ErrRegressed) || !strings.Contains(s.NotReady, "regressed") {
		t.Errorf("%v, %+v", b.Err, s)
	}
}

// TestUpstream_FloorsThatTheClusterHoldsDelayNobodyElse however many there are.
func TestUpstream_FloorsThatTheClusterHoldsDelayNobodyElse(t *testing.T) {
	u := newTurns(t, forward.Config{Timeout: time.Hour})
	held := make(chan struct{})
	u.set(func() { u.above = held })
	var floored []*submitted
	for i := range uint64(20) {
		floored = append(floored, u.submitAbove(isotone.Timestamp{Time: 9, Index: i}, isotone.ReadQuorum, 1))
	}
	u.Turn(u.now)
	for range 20 {
		b := u.submit(isotone.ReadQuorum, 1)
		u.until(t, "it is answered", func() bool { return b.done == 1 })
		if b.Err != nil {
			t.Fatalf("without a floor: %v", b.Err)
		}
	}
	close(held)
	u.until(t, "those with floors are answered", func() bool {
		return !slices.ContainsFunc(floored, func(b *submitted) bool { return b.done != 1 })
	})
}

// TestUpstream_AFloorThatIsNotAnsweredInTimeHasTheClusterAsked, because it may be due to the floor.
func TestUpstream_AFloorThatIsNotAnsweredInTimeHasTheClusterAsked(t *testing.T) {
	u := newTurns(t, forward.Config{Timeout: 10 * time.Millisecond})
	u.set(func() { u.above = make(chan struct{}) })
	b := u.submitAbove(isotone.Timestamp{Time: 9}, isotone.ReadQuorum, 1)
	u.until(t, "it is given up", func() bool { return b.done == 1 })
	if s := u.Status(); !errors.Is(b.Err, isotone.ErrDeadlineExceeded) || s.NotReady != "" {
		t.Errorf("%v, %q", b.Err, s.NotReady)
	}
	u.set(func() { u.err = isotone.ErrNoLeader })
	u.now += time.Minute
	u.until(t, "the cluster is found not to answer", func() bool { return u.Status().NotReady != "" })
}

// TestUpstream_FloorsAreBounded, and end with the upstream.
func TestUpstream_FloorsAreBounded(t *testing.T) {
	u := newTurns(t, forward.Config{BundlesMax: 1})
	hold := make(chan struct{})
	u.set(func() { u.hold = hold })
	const floors, more = 1024, 7 // flooredMax
	var list []*submitted
	for i := range uint64(floors + more) {
		list = append(list, u.submitAbove(isotone.Timestamp{Time: 9, Index: i}, isotone.ReadQuorum, 1))
	}
	u.Turn(0)
	for i, b := range list {
		if refused := i >= floors; (b.done == 1) != refused || refused && !errors.Is(b.Err, isotone.ErrOverloaded) {
			t.Fatalf("batch %d: done %d times, %v", i, b.done, b.Err)
		}
	}
	close(hold)
	u.set(func() { u.hold = nil })
	u.until(t, "half of them are answered", func() bool { return list[floors/2].done == 1 })
	u.Close()
	for i, b := range list {
		if b.done != 1 {
			t.Fatalf("batch %d was answered %d times", i, b.done)
		}
	}
}

func TestUpstream_MakesOneRequestOfATurn(t *testing.T) {
	u := newTurns(t, forward.Config{})
	var batches []*submitted
	for range 100 {
		batches = append(batches, u.submit(isotone.ReadDefault, 1, 2), u.submit(isotone.ReadLease, 5))
	}
	u.Turn(0)
	u.until(t, "all are answered", func() bool {
		return !slices.ContainsFunc(batches, func(b *submitted) bool { return b.done == 0 })
	})
	if got := fmt.Sprint(u.asked()); got != "[{default 300} {lease 500}]" && got != "[{lease 500} {default 300}]" {
		t.Errorf("the cluster was asked %s", got)
	}
	last := map[isotone.ReadMode]isotone.Range{}
	for i, b := range batches {
		for j, r := range b.Ranges {
			before, later := last[b.Mode]
			if b.Err != nil || b.done != 1 || r.Count != b.Counts[j] || later && r.First != (isotone.Timestamp{Time: 7, Index: before.First.Index + before.Count}) {
				t.Fatalf("batch %d: %v after %v, %v, answered %d times", i, r, before, b.Err, b.done)
			}
			last[b.Mode] = r
		}
	}
}

// TestUpstream_PassesOnTheFirstSpanOfABundle, and none to the next.
func TestUpstream_PassesOnTheFirstSpanOfABundle(t *testing.T) {
	u := newTurns(t, forward.Config{})
	u.set(func() { u.traces = nil })
	ask := func(floor isotone.Timestamp, spans ...*trace.Context) {
		t.Helper()
		answered := 0
		for _, span := range spans {
			u.Submit(&front.Batch{Mode: isotone.ReadQuorum, Floor: floor, Raise: true, Trace: span, Counts: []uint64{1}, Done: func(*front.Batch) { answered++ }})
		}
		u.Turn(0)
		u.until(t, "all are answered", func() bool { return answered == len(spans) })
	}
	one, two := &trace.Context{Trace: [16]byte{1}, Span: [8]byte{1}}, &trace.Context{Trace: [16]byte{2}, Span: [8]byte{2}}
	ask(isotone.Timestamp{}, nil, one, two)
	ask(isotone.Timestamp{}, nil)
	ask(isotone.Timestamp{Time: 9}, two)
	u.set(func() {
		if len(u.traces) != 3 || u.traces[0] == nil || *u.traces[0] != *one || u.traces[1] != nil || u.traces[2] == nil || *u.traces[2] != *two {
			t.Errorf("the requests have the spans %v", u.traces)
		}
	})
}

// TestUpstream_NeverJoinsARequestThatWasSent: I4.
func TestUpstream_NeverJoinsARequestThatWasSent(t *testing.T) {
	u := newTurns(t, forward.Config{BundlesMax: 1})
	hold := make(chan struct{})
	u.set(func() { u.hold = hold })
	first := u.submit(isotone.ReadQuorum, 1)
	u.until(t, "it is sent", func() bool { return len(u.asked()) == 1 })
	second, third := u.submit(isotone.ReadQuorum, 1), u.submit(isotone.ReadQuorum, 1)
	for range 10 {
		u.Turn(0)
	}
	if got := u.asked(); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("%v while one is under way, of one allowed", got)
	}
	close(hold)
	u.until(t, "all are answered", func() bool { return first.done+second.done+third.done == 3 })
	if got := fmt.Sprint(u.asked()); got != "[{quorum 1} {quorum 2}]" {
		t.Errorf("asked %s", got)
	}
	if !first.Ranges[0].First.Before(second.Ranges[0].First) || !second.Ranges[0].First.Before(third.Ranges[0].First) {
		t.Error("out of order")
	}
}

func TestUpstream_GivesEverybodyTheirOwn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := newTurns(t, forward.Config{BundlesMax: rapid.IntRange(1, 4).Draw(rt, "bundles")})
		defer u.Upstream.Close()
		var batches []*submitted
		for range rapid.IntRange(1, 30).Draw(rt, "batches") {
			counts := rapid.SliceOfN(rapid.SampledFrom([]uint64{1, 1, 2, 100, 1 << 31, 1 << 32}), 1, 5).Draw(rt, "counts")
			batches = append(batches, u.submit(rapid.SampledFrom([]isotone.ReadMode{isotone.ReadQuorum, isotone.ReadLease}).Draw(rt, "mode"), counts...))
			if rapid.Bool().Draw(rt, "turn") {
				u.Turn(0)
			}
		}
		u.until(t, "all are answered", func() bool {
			return !slices.ContainsFunc(batches, func(b *submitted) bool { return b.done == 0 })
		})
		var all []isotone.Range
		for _, b := range batches {
			for i, r := range b.Ranges {
				if b.Err != nil || r.Count != b.Counts[i] || i > 0 && !b.Ranges[i-1].Last().Before(r.First) {
					rt.Fatalf("%v for %v, %v", b.Ranges, b.Counts, b.Err)
				}
				all = append(all, r)
			}
		}
		slices.SortFunc(all, func(a, b isotone.Range) int { return a.First.Compare(b.First) })
		for i := 1; i < len(all); i++ {
			if !all[i-1].Last().Before(all[i].First) {
				rt.Fatalf("%v and %v share timestamps", all[i-1], all[i])
			}
		}
	})
}

func TestUpstream_RefusesWhatIsTooMuch(t *testing.T) {
	u := newTurns(t, forward.Config{RequestsMax: 3})
	first := u.submit(isotone.ReadDefault, 1, 1)
	second := u.submit(isotone.ReadDefault, 1, 1)
	if second.done != 1 || !errors.Is(second.Err, isotone.ErrOverloaded) {
		t.Errorf("answered %d times, %v", second.done, second.Err)
	}
	u.until(t, "the first is answered", func() bool { return first.done == 1 })
	if third := u.submit(isotone.ReadDefault, 1, 1); third.done != 0 {
		t.Errorf("refused, with nothing waiting: %v", third.Err)
	}
}

func TestUpstream_TellsEverybodyOfAFailureAndRecovers(t *testing.T) {
	log := &safeBuffer{}
	u := newTurns(t, forward.Config{Addr: "proxy:1", Log: slog.New(slog.NewJSONHandler(log, nil))})
	u.set(func() { u.err = isotone.ErrNoLeader })
	a, b := u.submit(isotone.ReadDefault, 1), u.submit(isotone.ReadDefault, 2)
	u.until(t, "both are answered", func() bool { return a.done+b.done == 2 })
	if a.Err != error(isotone.ErrNoLeader) || b.Err != error(isotone.ErrNoLeader) {
		t.Error(a.Err, b.Err)
	}
	if st := u.Status(); st.NotReady == "" || st.LeaderAddr != "" {
		t.Errorf("%+v", st)
	}
	u.set(func() { u.err = nil })
	u.now += time.Minute
	u.until(t, "it is found to answer again, though nobody asks", func() bool { return u.Status().NotReady == "" })
	if st := u.Status(); st.LeaderAddr != "proxy:1" || len(st.Members) != 1 {
		t.Errorf("%+v", st)
	}
	u.set(func() { u.err = isotone.Errorf(isotone.CodeInvalidArgument, "no") })
	refused := u.submit(isotone.ReadLease, 1)
	u.until(t, "it is refused", func() bool { return refused.done == 1 })
	if st := u.Status(); st.NotReady != "" {
		t.Errorf("not ready for a refusal: %s", st.NotReady)
	}
	if silent, answers := strings.Count(log.String(), "the cluster does not answer"), strings.Count(log.String(), "the cluster answers"); silent != 1 || answers != 2 { // one at the start
		t.Errorf("the log has %d silences and %d answers:\n%s", silent, answers, log)
	}
}

// TestUpstream_WhatTheClusterRefusesToItIsNotTheClientsFault: a client that is told "unauthorized"
// would look at its own credentials.
func TestUpstream_WhatTheClusterRefusesToItIsNotTheClientsFault(t *testing.T) {
	u := newTurns(t, forward.Config{Addr: "proxy:1"})
	for _, why := range []*isotone.Error{isotone.ErrUnauthorized, isotone.ErrForbidden} {
		u.set(func() { u.err = why })
		b := u.submit(isotone.ReadDefault, 1)
		u.until(t, "it is answered", func() bool { return b.done == 1 })
		if !errors.Is(b.Err, isotone.ErrNoLeader) || !strings.Contains(b.Err.Error(), why.Error()) {
			t.Errorf("%v: %v", why, b.Err)
		}
		if st := u.Status(); !strings.Contains(st.NotReady, string(why.Code)) {
			t.Errorf("%v: %+v", why, st)
		}
	}
	u.set(func() { u.err = isotone.ErrQuotaExceeded })
	b := u.submit(isotone.ReadDefault, 1)
	u.until(t, "it is answered", func() bool { return b.done == 1 })
	if st := u.Status(); !errors.Is(b.Err, isotone.ErrQuotaExceeded) || st.NotReady != "" {
		t.Errorf("%v, %+v", b.Err, st)
	}
}

func TestUpstream_CloseAnswersEverybody(t *testing.T) {
	u := newTurns(t, forward.Config{BundlesMax: 1})
	u.set(func() { u.hold = make(chan struct{}) })
	sent := u.submit(isotone.ReadDefault, 1)
	u.until(t, "it is sent", func() bool { return len(u.asked()) == 1 })
	pending := u.submit(isotone.ReadDefault, 1)
	u.Turn(0)
	incoming := u.submit(isotone.ReadDefault, 1)
	u.Upstream.Close()
	for i, b := range []*submitted{sent, pending, incoming, u.submit(isotone.ReadDefault, 1)} {
		if b.done != 1 || b.Err == nil {
			t.Errorf("batch %d: answered %d times, %v", i, b.done, b.Err)
		}
	}
}

func TestGateway_RunsTheFrontsOfANode(t *testing.T) {
	c := &cluster{}
	g, err := forward.StartGateway(forward.Config{Source: c, Addr: "x:1"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t)
	err = g.Serve(ln, loop.Limits{}, func(_ int, b front.Backend, _ *loop.Loop) loop.Service {
		f := http1.New(http1.Config{Backend: b, Detached: func(nc net.Conn) { _ = nc.Close() }})
		return loop.Service{Open: f.Open, Stop: f.Stop, Conns: f.Conns}
	})
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			for range 50 {
				_, _ = io.WriteString(nc, "GET /timestamp HTTP/1.1\r\nHost: x\r\n\r\n")
				buf := make([]byte, 1024)
				if n, err := nc.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200 OK\r\n") {
					t.Errorf("%q, %v", buf[:n], err)
					return
				}
			}
		})
	}
	clients.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan *front.Batch, 1)
	g.Backend().Submit(&front.Batch{
		Mode: isotone.ReadLease, Counts: []uint64{3}, Ranges: make([]isotone.Range, 1), Done: func(b *front.Batch) { done <- b },
	})
	select {
	case b := <-done:
		if b.Err != nil || b.Ranges[0].Count != 3 {
			t.Error(b.Ranges, b.Err)
		}
	case <-ctx.Done():
		t.Error(ctx.Err())
	}
	g.StopServing(ctx)
	if err := g.Close(); err != nil || ctx.Err() != nil {
		t.Error(err, ctx.Err())
	}
}
