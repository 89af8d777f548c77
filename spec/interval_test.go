package spec_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/spec"
)

const (
	length  = 100_000 // of a limit
	ceiling = 900_000
	start   = 200_000 // of a cluster clock, by all clocks
)

// step begins a step of node 1, when its clock shows at.
func step(at int64, list ...spec.Event) []spec.Event {
	return on(1, append([]spec.Event{{Kind: spec.BeginStep, At: at, Steady: at}}, list...)...)
}

// candidate is node 1 of three, which has started at 0, and has the vote of node 2 by the step at 50,000: that says that it has answered no leader for since. Limits of an earlier term may
// be as long as before.
func candidate(before, since int64) []spec.Event {
	return slices.Concat(
		on(1,
			spec.Event{Kind: spec.Start, Tick: 10, Interval: length, Index: 4},
			spec.Event{Kind: spec.Restore, Config: &spec.Config{Voters: []uint64{1, 2, 3}}, Interval: before, Ceiling: 100},
		),
		step(0, spec.Event{Kind: spec.Tick, Count: 50}),
		step(50_000,
			spec.Event{Kind: spec.Vote, Term: 2, Peer: 1},
			spec.Event{Kind: spec.Durable, Term: 2, Peer: 1, Index: 4},
			spec.Event{Kind: spec.VoteTold, Term: 2, Peer: 2, Since: since},
			spec.Event{Kind: spec.Role, Term: 2, Leads: true},
			spec.Event{Kind: spec.Entry, Index: 1, Term: 2, Command: &spec.Command{Digest: 1, Reserve: ceiling}},
		),
	)
}

// serves says that the leader issues.
func serves() spec.Event { return spec.Event{Kind: spec.State, Ceiling: ceiling, Serves: true} }

// clocked is a leader whose clock runs from start on, when its steady clock shows as much, and whose log says that limits are told. A round began then, and is confirmed 1,000 later.
func clocked() []spec.Event {
	on := int64(length)
	return slices.Concat(
		candidate(0, 0),
		step(start, serves(),
			spec.Event{Kind: spec.Entry, Index: 2, Term: 2, Command: &spec.Command{Digest: 2, Interval: &on}},
			spec.Event{Kind: spec.ClusterClock, Clock: start, At: start},
			spec.Event{Kind: spec.Ask, Peer: 2, Term: 2, Round: 1}),
		step(start+1000, spec.Event{Kind: spec.Confirmed, Peer: 2, Term: 2, Round: 1}),
	)
}

// tells is a leader that tells a reading at a time.
func tells(at int64, r spec.Reading) []spec.Event {
	return step(at, spec.Event{Kind: spec.TellClock, Peer: 2, Token: 2, Reading: &r})
}

// off is an entry that says that no limit runs.
func off(index uint64) spec.Event {
	return spec.Event{Kind: spec.Append, Index: index, Proposed: []spec.Proposal{{Index: index, Command: &spec.Command{Digest: 3, Interval: new(int64)}}}}
}

// asked is a request at the time start + 2,000, and the answer to it 1,000 later.
func asked(t uint64) []spec.Event {
	return slices.Concat(
		step(start+2000, spec.Event{Kind: spec.Request, Token: 7}, spec.Event{Kind: spec.Ask, Peer: 2, Term: 2, Round: 2}),
		step(start+3000, spec.Event{Kind: spec.Confirmed, Peer: 2, Term: 2, Round: 2},
			spec.Event{Kind: spec.Answer, Token: 7, Ranges: []spec.Range{{First: spec.Timestamp{Time: t}, Last: spec.Timestamp{Time: t}}}}),
	)
}

// reader is a follower that asked for a reading at 10,000, and was told at 12,000 that the clock of term 2 shows 500,000.
func reader() []spec.Event {
	return slices.Concat(
		on(1, spec.Event{Kind: spec.Start, Tick: 10, Interval: length, Cluster: 7}),
		step(10_000, spec.Event{Kind: spec.AskClock, Peer: 9, Token: 2}),
		step(11_000, spec.Event{Kind: spec.AskClock, Peer: 9, Token: 4}),
		step(12_000, spec.Event{Kind: spec.ToldClock, Peer: 9, Token: 2, Cluster: 7, Reading: &spec.Reading{Term: 2, Earliest: 500_000, Latest: 500_000, Limit: 600_000}}),
	)
}

// reads says that a process takes the clock of term 2 to be between two times when its steady clock shows at.
func reads(at int64, earliest, latest, limit uint64) []spec.Event {
	return on(1, spec.Event{Kind: spec.Bounds, At: at, Reading: &spec.Reading{Term: 2, Earliest: earliest, Latest: latest, Limit: limit}})
}

// voter is node 1, which has answered the leader of term 2 at 40,000, and votes in term 3 at 60,000.
func voter(since int64) []spec.Event {
	return slices.Concat(
		on(1, spec.Event{Kind: spec.Start, Tick: 10, Interval: length}),
		step(0, spec.Event{Kind: spec.Tick, Count: 50}, spec.Event{Kind: spec.Role, Term: 2}),
		step(40_000, spec.Event{Kind: spec.Asked, Term: 2, Peer: 9, Round: 1}, spec.Event{Kind: spec.Confirm, Term: 2, Peer: 9, Round: 1}),
		step(60_000, spec.Event{Kind: spec.Vote, Term: 3, Peer: 2}, spec.Event{Kind: spec.Durable, Term: 3, Peer: 2}, spec.Event{Kind: spec.VoteSent, Term: 3, Peer: 2, Since: since}),
	)
}

func TestSpec_ClusterClock(t *testing.T) {
	reading := spec.Reading{Term: 2, Earliest: start + 1000, Latest: start + 1000, Limit: start + length}
	with := func(change func(*spec.Reading)) spec.Reading {
		r := reading
		change(&r)
		return r
	}
	ticking := func(clock uint64, slew int64) []spec.Event {
		return step(start+2000, spec.Event{Kind: spec.ClusterClock, Clock: clock, At: start + 2000, Slew: slew})
	}
	told := slices.Concat(clocked(), tells(start+1000, reading))
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"no limits before":                 {"", slices.Concat(candidate(0, 0), step(50_000, serves()))},
		"limits that may run":              {"expiry", slices.Concat(candidate(length, 20_000), step(50_000+80_099, serves()))},
		"limits that have run out":         {"", slices.Concat(candidate(length, 20_000), step(50_000+80_101, serves()))},
		"a voter that has said nothing":    {"expiry", slices.Concat(candidate(length, 0), step(50_000+100_099, serves()))},
		"the time since the start":         {"expiry", slices.Concat(candidate(length, 1e9), step(50_000+50_099, serves()))},
		"a vote that says the truth":       {"", voter(20_000)},
		"a vote that says more":            {"report", voter(20_001)},
		"a clock below the ceiling before": {"clock", slices.Concat(candidate(0, 0), step(start, spec.Event{Kind: spec.ClusterClock, Clock: 100, At: start}))},
		"a clock that goes on":             {"", slices.Concat(clocked(), ticking(start+2000, 500))},
		"a clock that jumps":               {"clock", slices.Concat(clocked(), ticking(start+2001, 0))},
		"a clock that is too fast":         {"clock", slices.Concat(clocked(), ticking(start+2000, 501))},
		"a reading":                        {"", told},
		"a limit from the confirmation":    {"limit", slices.Concat(clocked(), tells(start+1000, with(func(r *spec.Reading) { r.Limit += 1000 })))},
		"a limit beyond the ceiling":       {"limit", slices.Concat(clocked(), tells(start+1000, with(func(r *spec.Reading) { r.Limit = ceiling })))},
		"a reading of another term":        {"limit", slices.Concat(clocked(), tells(start+1000, with(func(r *spec.Reading) { r.Term = 1 })))},
		"a reading that is wrong":          {"bounds", slices.Concat(clocked(), tells(start+1000, with(func(r *spec.Reading) { r.Latest-- })))},
		"a reading beyond its limit":       {"bounds", slices.Concat(clocked(), tells(start+length+1, with(func(r *spec.Reading) { r.Earliest, r.Latest = start+length+1, start+length+1 })))},
		"a reading that the log forbids":   {"limit", slices.Concat(clocked(), step(start+1000, off(3)), tells(start+1000, reading))},
		"a release while a limit runs":     {"release", slices.Concat(told, step(start+length, off(3)))},
		"a release after that":             {"", slices.Concat(told, step(start+length+1, off(3)))},
		"bounds as wide as they have to":   {"", slices.Concat(reader(), reads(22_000, 509_990, 512_013, 600_000))},
		"an earliest bound that is late":   {"bounds", slices.Concat(reader(), reads(22_000, 509_993, 512_013, 600_000))},
		"a latest bound that is early":     {"bounds", slices.Concat(reader(), reads(22_000, 509_990, 512_010, 600_000))},
		"bounds beyond the limit":          {"bounds", slices.Concat(reader(), reads(22_000, 509_990, 512_013, 512_012))},
		"a limit that nobody has told":     {"bounds", slices.Concat(reader(), reads(22_000, 509_990, 512_013, 600_001))},
		"an answer to another question": {"bounds", slices.Concat(reader()[:5], step(12_000, spec.Event{Kind: spec.ToldClock, Peer: 8, Token: 2, Cluster: 7, Reading: &spec.Reading{Term: 2, Limit: 9}}),
			reads(12_000, 0, 9, 9))},
		"a timestamp of now":                          {"", slices.Concat(told, asked(start+3000))},
		"a timestamp ahead of the clock":              {"axis", slices.Concat(told, asked(start+3001))},
		"a timestamp of when its request came":        {"", slices.Concat(told, asked(start+2000))},
		"a timestamp of before that":                  {"axis", slices.Concat(told, asked(start+1999))},
		"a timestamp of before that, and no readings": {"", slices.Concat(clocked(), asked(start+1999))},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, test.rule, test.history) })
	}
}
