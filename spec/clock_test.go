package spec_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/spec"
)

// A second in nanoseconds, and the wall clock of a node when its steady clock shows 0.
const second, day = 1_000_000_000, 1_000_000 * second

// at begins a step of node 1, whose wall clock is ahead by so much.
func at(now int64, ahead uint64, list ...spec.Event) []spec.Event {
	return on(1, append([]spec.Event{{Kind: spec.BeginStep, At: now, Wall: day + uint64(now) + ahead}}, list...)...)
}

// timed is node 1 of some voters, which leads term 2, and knows what the clock of node 2 shows at 1 s. It may go by its own clock up to 500 ns beyond that of a quorum, and reserves 300 ns ahead.
func timed(ahead uint64, voters ...uint64) []spec.Event {
	return slices.Concat(
		on(1,
			spec.Event{Kind: spec.Start, Tick: 10, Jump: 500, Reach: 300},
			spec.Event{Kind: spec.Restore, Config: &spec.Config{Voters: voters}, Members: []spec.Member{{ID: 2}}, Ceiling: day},
		),
		at(second, ahead, spec.Event{Kind: spec.WallClock, Peer: 2, Clock: day + second}, spec.Event{Kind: spec.Tick, Count: 50}),
		at(second, ahead, spec.Event{Kind: spec.Vote, Term: 2, Peer: 1}),
		at(second, ahead, spec.Event{Kind: spec.Durable, Term: 2, Peer: 1}, spec.Event{Kind: spec.Role, Term: 2, Leads: true}),
	)
}

// proposes is a leader that puts a command into its log.
func proposes(c spec.Command) spec.Event {
	return spec.Event{Kind: spec.Append, Index: 5, Proposed: []spec.Proposal{{Index: 5, Command: &c}}}
}

// shared is a reservation for timelines.
func shared(ceiling uint64) spec.Event { return proposes(spec.Command{Reserve: 1, Shared: ceiling}) }

func TestSpec_WallClocks(t *testing.T) {
	const far = 3600 * second
	floor := func(raise bool) spec.Event {
		return spec.Event{Kind: spec.Request, Token: 3, Floor: spec.Timestamp{Time: day + 2*second}, Raise: raise}
	}
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"as far as the clocks allow":          {"", slices.Concat(timed(far, 1, 2, 3), at(second, far, shared(day+second+800)))},
		"by the clock of the leader alone":    {"ahead", slices.Concat(timed(far, 1, 2, 3), at(second, far, shared(day+second+801)))},
		"the default order by that":           {"ahead", slices.Concat(timed(far, 1, 2, 3), at(second, far, proposes(spec.Command{Reserve: day + far})))},
		"by what is told":                     {"", slices.Concat(timed(0, 1, 2, 3), at(11*second, 0, spec.Event{Kind: spec.Tick, Count: 1}, shared(day+11*second+300)))},
		"by what was told 11 seconds ago":     {"ahead", slices.Concat(timed(0, 1, 2, 3), at(12*second, 0, spec.Event{Kind: spec.Tick, Count: 1}), at(12*second, 0, shared(2)), at(12*second, 0, shared(301)))},
		"by one of four":                      {"ahead", slices.Concat(timed(far, 1, 2, 3, 4), at(second, far, shared(day)))},
		"a sole voter":                        {"", slices.Concat(timed(0, 1), at(2*second, 500, spec.Event{Kind: spec.Tick, Count: 1}, shared(day+2*second+800)))},
		"a sole voter whose clock has jumped": {"ahead", slices.Concat(timed(0, 1), at(2*second, far, spec.Event{Kind: spec.Tick, Count: 1}, shared(day+2*second+801)))},
		"a floor of an operator":              {"", slices.Concat(timed(0, 1, 2, 3), at(second, 0, spec.Event{Kind: spec.RaiseFloor, Clock: day + far}, proposes(spec.Command{Raise: day + far})))},
		"a floor that nobody has asked for":   {"ahead", slices.Concat(timed(0, 1, 2, 3), at(second, 0, proposes(spec.Command{Raise: day + far})))},
		"a floor of a client":                 {"", slices.Concat(timed(0, 1, 2, 3), at(second, 0, floor(true)), at(second, 0, proposes(spec.Command{Raise: day + 2*second})))},
		"a floor of a client that may not":    {"ahead", slices.Concat(timed(0, 1, 2, 3), at(second, 0, floor(false)), at(second, 0, proposes(spec.Command{Raise: day + 2*second})))},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, test.rule, test.history) })
	}
}

// TestSpec_AClusterClockStartsNearTheClocks of a quorum.
func TestSpec_AClusterClockStartsNearTheClocks(t *testing.T) {
	starts := func(clock uint64) []spec.Event {
		return slices.Concat(timed(0, 1, 2, 3), at(second, 0,
			spec.Event{Kind: spec.Entry, Index: 1, Term: 2, Command: &spec.Command{Digest: 1, Reserve: day}},
			spec.Event{Kind: spec.ClusterClock, Clock: clock}))
	}
	refuses(t, "", starts(day+11*second))
	refuses(t, "ahead", starts(day+11*second+1))
}

// TestSpec_AReservationAheadOfTheClock: a reservation may go on from time that was ahead of the clocks when its term began, and gains no more than the time that passes.
func TestSpec_AReservationAheadOfTheClock(t *testing.T) {
	const ahead = 30 * second
	opened := slices.Concat(timed(0, 1, 2, 3), at(second, 0, spec.Event{Kind: spec.Entry, Index: 1, Term: 2, Command: &spec.Command{Digest: 1, Reserve: day + ahead}}))
	after := func(ceiling uint64) []spec.Event {
		return slices.Concat(opened, at(2*second, 0, proposes(spec.Command{Reserve: ceiling})))
	}
	refuses(t, "", after(day+ahead+second+300))
	refuses(t, "ahead", after(day+ahead+second+301))
}
