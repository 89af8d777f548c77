package forward_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// untilAnswered takes turns until each batch is answered.
func (u *turns) untilAnswered(t testing.TB, list ...*submitted) {
	t.Helper()
	u.until(t, "all are answered", func() bool {
		return !slices.ContainsFunc(list, func(b *submitted) bool { return b.done == 0 })
	})
	for i, b := range list {
		if b.done != 1 {
			t.Fatalf("batch %d was answered %d times", i, b.done)
		}
	}
}

// keepsNothing demands that nothing of a timeline is kept once all are answered.
func (u *turns) keepsNothing(t testing.TB) {
	t.Helper()
	if n := u.Kept(); n != 0 {
		t.Errorf("%d things of timelines are kept", n)
	}
}

// TestUpstream_AsksTheOracleForEachByItself, and gathers the timestamps of the timeline.
func TestUpstream_AsksTheOracleForEachByItself(t *testing.T) {
	u := newTurns(t, forward.Config{})
	var list []*submitted
	for i := range uint64(3) {
		list = append(list,
			u.submitTo("a", front.Batch{Mode: isotone.ReadQuorum, Op: timeline.OpApply, At: 100 * (i + 1)}, 1), u.submitTo("a", front.Batch{Mode: isotone.ReadQuorum}, 5))
	}
	u.untilAnswered(t, list...)
	var asked []string
	for _, a := range u.linesAsked() {
		asked = append(asked, fmt.Sprint(a.timeline, a.ask))
	}
	slices.Sort(asked)
	if want := []string{"a{quorum 15}", "a{quorum 1}", "a{quorum 1}", "a{quorum 1}"}; !slices.Equal(asked, want) {
		t.Errorf("the cluster was asked %v, want %v", asked, want)
	}
	for i := range 3 {
		if b := list[2*i]; b.Err != nil || b.Ranges[0].Count != 1 || b.Ranges[0].First.Index != 0 || b.Ranges[0].First.Time/100 != uint64(i+1) {
			t.Errorf("answer %d: %v, %v", i, b.Ranges, b.Err)
		}
	}
	u.keepsNothing(t)
}

// TestUpstream_MakesOneRequestOfATurnForEachTimeline, and mode.
func TestUpstream_MakesOneRequestOfATurnForEachTimeline(t *testing.T) {
	u := newTurns(t, forward.Config{})
	span := &trace.Context{Trace: [16]byte{1}, Span: [8]byte{1}}
	var list []*submitted
	for range 50 {
		list = append(list,
			u.submitTo("a", front.Batch{Mode: isotone.ReadQuorum, Trace: span}, 1, 2), u.submit(isotone.ReadQuorum, 5),
			u.submitTo("bb", front.Batch{Mode: isotone.ReadQuorum}, 1), u.submitTo("a", front.Batch{Mode: isotone.ReadLease}, 4))
	}
	u.untilAnswered(t, list...)
	var asked []string
	for _, a := range u.linesAsked() {
		asked = append(asked, fmt.Sprint(a.timeline, a.ask))
	}
	slices.Sort(asked)
	if want := []string{"a{lease 200}", "a{quorum 150}", "bb{quorum 50}"}; !slices.Equal(asked, want) {
		t.Errorf("the cluster was asked %v, want %v", asked, want)
	}
	if got := fmt.Sprint(u.asked()); got != "[{quorum 250}]" {
		t.Errorf("the cluster was asked %v of the default order", got)
	}
	last := map[string]isotone.Timestamp{}
	for i, b := range list {
		kind := b.Timeline + b.Mode.String()
		for j, r := range b.Ranges {
			if wants := uint64(len(b.Timeline)); b.Err != nil || r.Count != b.Counts[j] || wants > 0 && r.First.Time != wants || i > 3 && !last[kind].Before(r.First) {
				t.Fatalf("batch %d of timeline %q: %v after %v, %v", i, b.Timeline, r, last[kind], b.Err)
			}
			last[kind] = r.Last()
		}
	}
}

// TestUpstream_OfATimelineNeverJoinsWhatWasSent: I4.
func TestUpstream_OfATimelineNeverJoinsWhatWasSent(t *testing.T) {
	u := newTurns(t, forward.Config{})
	hold := make(chan struct{})
	u.set(func() { u.hold = hold })
	var list []*submitted
	for sent := range 2 {
		list = append(list, u.submitTo("a", front.Batch{}, 1))
		u.until(t, "it is sent", func() bool { return len(u.linesAsked()) == sent+1 })
	}
	list = append(list, u.submitTo("a", front.Batch{}, 1), u.submitTo("a", front.Batch{}, 1))
	for range 10 {
		u.Turn(0)
	}
	if got := u.linesAsked(); u.UnderWay() != 2 || len(got) != 2 || got[0].Count != 1 || got[1].Count != 1 {
		t.Errorf("%v, %d under way; want two, which were sent before", got, u.UnderWay())
	}
	close(hold)
	u.untilAnswered(t, list...)
	if got := u.linesAsked(); len(got) != 3 || got[2].Count != 2 {
		t.Errorf("asked %v", got)
	}
}

// TestUpstream_GivesEverybodyTheirOwnOfTheirTimeline, with all kinds of floors.
func TestUpstream_GivesEverybodyTheirOwnOfTheirTimeline(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := newTurns(t, forward.Config{BundlesMax: rapid.IntRange(1, 4).Draw(rt, "bundles")})
		defer u.Upstream.Close()
		var list []*submitted
		for range rapid.IntRange(1, 40).Draw(rt, "batches") {
			counts := rapid.SliceOfN(rapid.SampledFrom([]uint64{1, 1, 2, 100, 1 << 31, 1 << 32}), 1, 5).Draw(rt, "counts")
			b := front.Batch{Mode: rapid.SampledFrom([]isotone.ReadMode{isotone.ReadQuorum, isotone.ReadLease}).Draw(rt, "mode"), Raise: true}
			name := rapid.SampledFrom([]string{"", "a", "bb", "ccc"}).Draw(rt, "timeline")
			if rapid.IntRange(0, 3).Draw(rt, "floored") == 0 {
				b.Floor = isotone.Timestamp{Time: uint64(len(name)) + rapid.Uint64Range(0, 8).Draw(rt, "floor")}
			}
			list = append(list, u.submitTo(name, b, counts...))
			if rapid.Bool().Draw(rt, "turn") {
				u.Turn(0)
			}
		}
		u.untilAnswered(t, list...)
		u.keepsNothing(t)
		all := map[string][]isotone.Range{}
		for _, b := range list {
			for i, r := range b.Ranges {
				if b.Err != nil || r.Count != b.Counts[i] || b.Timeline != "" && r.First.Time != uint64(len(b.Timeline)) {
					rt.Fatalf("timeline %q: %v for %v, %v", b.Timeline, b.Ranges, b.Counts, b.Err)
				}
				all[b.Timeline] = append(all[b.Timeline], r)
			}
		}
		for name, ranges := range all {
			slices.SortFunc(ranges, func(a, b isotone.Range) int { return a.First.Compare(b.First) })
			for i := 1; i < len(ranges); i++ {
				if !ranges[i-1].Last().Before(ranges[i].First) {
					rt.Fatalf("%v and %v of timeline %q share timestamps", ranges[i-1], ranges[i], name)
				}
			}
		}
	})
}

// TestUpstream_FloorsAreThoseOfTheirTimeline: what the cluster has answered of another order says nothing.
func TestUpstream_FloorsAreThoseOfTheirTimeline(t *testing.T) {
	u := newTurns(t, forward.Config{}) // the default order is at a time of 7
	floor := isotone.Timestamp{Time: 5}
	ask := func(b front.Batch) *submitted {
		t.Helper()
		one := u.submitTo("a", b, 1)
		u.untilAnswered(t, one)
		u.keepsNothing(t)
		return one
	}
	u.untilAnswered(t, u.submit(isotone.ReadDefault, 1), u.submitTo("sevenchars", front.Batch{}, 1))
	ask(front.Batch{Floor: floor, Raise: true})
	if got := u.linesAsked(); len(got) != 2 || got[1].floor != floor || got[1].timeline != "a" {
		t.Errorf("asked %+v, want the floor", got)
	}
	// Without the right the timeline is asked until it is above, and is not told of the floor.
	above := isotone.Timestamp{Time: 1, Index: 3}
	if b := ask(front.Batch{Floor: above}); b.Err != nil || !above.Before(b.Ranges[0].First) {
		t.Errorf("%v, %v", b.Ranges, b.Err)
	}
	soon := isotone.Timestamp{Time: uint64(time.Now().Add(time.Minute).UnixNano())}
	if b := ask(front.Batch{Floor: soon}); !errors.Is(b.Err, isotone.ErrRegressed) {
		t.Errorf("%v, %v", b.Ranges, b.Err)
	}
	for _, a := range u.linesAsked()[2:] {
		if a.floor != (isotone.Timestamp{}) {
			t.Errorf("the timeline was told of the floor %v", a.floor)
		}
	}
}

// TestUpstream_ASilentOwnerDelaysNobodyElse: its timelines are given up when their time is over, wherever they have waited.
func TestUpstream_ASilentOwnerDelaysNobodyElse(t *testing.T) {
	const timeout = 100 * time.Millisecond
	u := newTurns(t, forward.Config{Timeout: timeout})
	u.set(func() { u.silent = map[string]bool{} })
	var gone []*submitted
	silent := func(name string) {
		u.set(func() { u.silent[name] = true })
		gone = append(gone, u.submitTo(name, front.Batch{}, 1))
	}
	for range 5 {
		silent("gone")
		u.Turn(0)
	}
	last := time.Now()
	u.untilAnswered(t, u.submit(isotone.ReadDefault, 1), u.submitTo("lives", front.Batch{}, 1))
	u.untilAnswered(t, gone...)
	for _, a := range u.linesAsked() {
		if a.timeline == "gone" && a.until.After(last.Add(timeout)) {
			t.Errorf("a request may wait for %v longer than its time", a.until.Sub(last)-timeout)
		}
	}
	for _, b := range gone {
		if !errors.Is(b.Err, isotone.ErrDeadlineExceeded) {
			t.Errorf("of a silent owner: %v", b.Err)
		}
	}
	if s := u.Status(); s.NotReady != "" {
		t.Errorf("the proxy is not ready: %s", s.NotReady)
	}
	u.keepsNothing(t)
}

// TestUpstream_RequestsToOwnersAreBounded, and take no place of the default order.
func TestUpstream_RequestsToOwnersAreBounded(t *testing.T) {
	const most, more = 1024, 50 // linesUnderMax
	u := newTurns(t, forward.Config{Timeout: time.Hour})
	u.set(func() { u.silent = map[string]bool{} })
	var list []*submitted
	for i := range most + more {
		name := fmt.Sprint("gone-", i)
		u.set(func() { u.silent[name] = true })
		list = append(list, u.submitTo(name, front.Batch{}, 1))
	}
	u.until(t, "as many are asked as may be", func() bool { return len(u.linesAsked()) == most })
	u.untilAnswered(t, u.submit(isotone.ReadDefault, 1))
	if n := u.UnderWay(); n != most {
		t.Errorf("%d requests are under way, want %d", n, most)
	}
	u.Upstream.Close()
	u.untilAnswered(t, list...)
}

// TestUpstream_ATimelineLeavesRoomForOthers that wait.
func TestUpstream_ATimelineLeavesRoomForOthers(t *testing.T) {
	u := newTurns(t, forward.Config{RequestsMax: 16})
	list := []*submitted{u.submitTo("a", front.Batch{}, 1), u.submitTo("a", front.Batch{}, 1)}
	// An eighth is two, but for what comes together.
	if b := u.submitTo("a", front.Batch{}, 1); b.done != 1 || !errors.Is(b.Err, isotone.ErrOverloaded) || !strings.Contains(b.Err.Error(), "timeline a") {
		t.Errorf("answered %d times, %v", b.done, b.Err)
	}
	list = append(list, u.submitTo("b", front.Batch{}, 1, 1, 1), u.submit(isotone.ReadDefault, 1, 1, 1, 1))
	u.untilAnswered(t, list...)
	for _, b := range list {
		if b.Err != nil {
			t.Errorf("timeline %q: %v", b.Timeline, b.Err)
		}
	}
	again := u.submitTo("a", front.Batch{}, 1)
	if u.untilAnswered(t, again); again.Err != nil {
		t.Errorf("with nothing waiting: %v", again.Err)
	}
	u.keepsNothing(t)
}

// TestUpstream_WhatATimelineIsRefusedIsItsOwn: the proxy goes on serving.
func TestUpstream_WhatATimelineIsRefusedIsItsOwn(t *testing.T) {
	u := newTurns(t, forward.Config{})
	for why, want := range map[*isotone.Error]error{
		isotone.ErrNotFound: isotone.ErrNotFound, isotone.ErrOverloaded: isotone.ErrOverloaded, isotone.ErrNoLeader: isotone.ErrNoLeader,
		isotone.ErrQuotaExceeded: isotone.ErrQuotaExceeded, isotone.ErrForbidden: isotone.ErrNoLeader,
	} {
		u.set(func() { u.faults = map[string]error{"a": why} })
		a, b := u.submitTo("a", front.Batch{}, 1), u.submitTo("b", front.Batch{}, 1)
		u.untilAnswered(t, a, b)
		if !errors.Is(a.Err, want) || b.Err != nil || u.Status().NotReady != "" {
			t.Errorf("%v: %v; another timeline: %v; %q", why, a.Err, b.Err, u.Status().NotReady)
		}
	}
}

// TestUpstream_CloseAnswersTimelines wherever they wait.
func TestUpstream_CloseAnswersTimelines(t *testing.T) {
	u := newTurns(t, forward.Config{})
	parked := u.submitTo("p", front.Batch{Floor: isotone.Timestamp{Time: uint64(700 * time.Millisecond)}}, 1)
	u.until(t, "it has been asked", func() bool { return len(u.linesAsked()) == 1 })
	u.set(func() { u.hold = make(chan struct{}) })
	list := []*submitted{parked}
	for range 4 {
		list = append(list, u.submitTo("a", front.Batch{}, 1))
		u.Turn(0)
	}
	list = append(list, u.submitTo("a", front.Batch{}, 1), u.submitTo("b", front.Batch{Raise: true, Floor: isotone.Timestamp{Time: 9}}, 1))
	u.Upstream.Close()
	for i, b := range append(list, u.submitTo("a", front.Batch{}, 1)) {
		if b.done != 1 || b.Err == nil {
			t.Errorf("batch %d: answered %d times, %v", i, b.done, b.Err)
		}
	}
}
