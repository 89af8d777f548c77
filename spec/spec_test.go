package spec_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/spec"
)

// on gives events to the only process of a node.
func on(node uint64, list ...spec.Event) []spec.Event {
	for i := range list {
		list[i].Node, list[i].Process = node, node
	}
	return list
}

// elected begins a process that is the only voter of a cluster, leads in a term, and has reserved time.
func elected(node, cluster, term, ceiling uint64) []spec.Event {
	return on(node,
		spec.Event{Kind: spec.Start, Cluster: cluster, Tick: 10},
		spec.Event{Kind: spec.Restore, Cluster: cluster, Config: &spec.Config{Voters: []uint64{node}}},
		spec.Event{Kind: spec.BeginStep, At: 1},
		spec.Event{Kind: spec.Vote, Term: term, Peer: node},
		spec.Event{Kind: spec.BeginStep, At: 2},
		spec.Event{Kind: spec.Durable, Term: term, Peer: node},
		spec.Event{Kind: spec.Role, Term: term, Leads: true},
		spec.Event{Kind: spec.Entry, Index: 1, Term: term, Command: &spec.Command{Digest: 1, Reserve: ceiling}},
	)
}

// answered is a request, and its answer from one time to another.
func answered(node, token, first, last uint64) []spec.Event {
	return on(node,
		spec.Event{Kind: spec.BeginStep, At: int64(token)},
		spec.Event{Kind: spec.Request, Token: token},
		spec.Event{Kind: spec.Answer, Token: token, Ranges: []spec.Range{{First: spec.Timestamp{Time: first}, Last: spec.Timestamp{Time: last}}}},
	)
}

// follower begins a process that has run for long, and follows the leader 9 of term 2, which it has promised to vote for nobody else.
func follower(ticks uint64) []spec.Event {
	return on(1,
		spec.Event{Kind: spec.Start, Term: 1, Tick: 10},
		spec.Event{Kind: spec.BeginStep, At: 1},
		spec.Event{Kind: spec.Tick, Count: 50},
		spec.Event{Kind: spec.Role, Term: 2},
		spec.Event{Kind: spec.BeginStep, At: 2},
		spec.Event{Kind: spec.Asked, Term: 2, Peer: 9, Round: 1, Count: 10},
		spec.Event{Kind: spec.Confirm, Term: 2, Peer: 9, Round: 1, Count: 10},
		spec.Event{Kind: spec.BeginStep, At: 3},
		spec.Event{Kind: spec.Tick, Count: ticks},
	)
}

// TestSpec_Rules: the last event of each history is refused by a rule, "" if it is permitted. All others are permitted.
func TestSpec_Rules(t *testing.T) {
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"answers that grow":                 {"", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 5, 9), answered(1, 4, 10, 10))},
		"an answer at the ceiling":          {"ceiling", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 5, 100))},
		"an answer below the one before":    {"arrival", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 5, 9), answered(1, 4, 9, 10))},
		"an answer that ends before":        {"once", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 9, 5))},
		"an answer to nobody":               {"arrival", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 5, 9)[2:])},
		"a restored cluster that is below":  {"order", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 50, 50), elected(2, 8, 2, 100), answered(2, 3, 40, 40))},
		"a restored cluster that is above":  {"", slices.Concat(elected(1, 7, 2, 100), answered(1, 3, 50, 50), elected(2, 8, 2, 100), answered(2, 3, 60, 60))},
		"an answer without a reservation":   {"opening", slices.Concat(elected(1, 7, 2, 100)[:7], answered(1, 3, 5, 9))},
		"two leaders of a term":             {"leader", slices.Concat(elected(1, 7, 2, 100), elected(2, 7, 2, 100)[:7])},
		"a leader without its term on disk": {"disk", slices.Concat(elected(1, 7, 2, 100)[:5], on(1, spec.Event{Kind: spec.Role, Term: 2, Leads: true}))},
		"logs that differ":                  {"log", slices.Concat(elected(1, 7, 2, 100), elected(2, 7, 3, 100))},
		"a gap in a log":                    {"log", slices.Concat(elected(1, 7, 2, 100), on(1, spec.Event{Kind: spec.Entry, Index: 3, Term: 2, Command: &spec.Command{}}))},
		"a second vote in a term":           {"vote", slices.Concat(follower(10), on(1, spec.Event{Kind: spec.Vote, Term: 3, Peer: 4}, spec.Event{Kind: spec.Vote, Term: 3, Peer: 5}))},
		"a vote within a promise":           {"promise", slices.Concat(follower(9), on(1, spec.Event{Kind: spec.Vote, Term: 3, Peer: 4}))},
		"a vote after a promise":            {"", slices.Concat(follower(10), on(1, spec.Event{Kind: spec.Vote, Term: 3, Peer: 4}))},
		"a vote that a leader asked for":    {"", slices.Concat(follower(9), on(1, spec.Event{Kind: spec.Vote, Term: 3, Peer: 4, Transfer: true}))},
		"a vote after a start":              {"start", on(1, spec.Event{Kind: spec.Start, Term: 1}, spec.Event{Kind: spec.BeginStep}, spec.Event{Kind: spec.Tick, Count: 9}, spec.Event{Kind: spec.Vote, Term: 2, Peer: 4})},
		"a promise that nobody asked for":   {"promise", slices.Concat(follower(1), on(1, spec.Event{Kind: spec.Confirm, Term: 2, Peer: 9, Round: 2, Count: 11}))},
		"a confirmation of a former term":   {"confirmation", slices.Concat(follower(1), on(1, spec.Event{Kind: spec.BeginStep}, spec.Event{Kind: spec.Confirm, Term: 1, Peer: 8, Round: 2}))},
		"a vote that is not on disk":        {"disk", slices.Concat(follower(10), on(1, spec.Event{Kind: spec.Vote, Term: 3, Peer: 4}, spec.Event{Kind: spec.VoteSent, Term: 3, Peer: 4}))},
		"an acknowledgement ahead of disk":  {"disk", slices.Concat(follower(1), on(1, spec.Event{Kind: spec.Durable, Term: 2, Index: 4}, spec.Event{Kind: spec.Ack, Term: 2, Index: 5, Peer: 9}))},
		"a process that has not started":    {"event", on(1, spec.Event{Kind: spec.BeginStep})},
		"an unknown kind":                   {"event", on(1, spec.Event{Kind: spec.Start}, spec.Event{Kind: "bogus"})},
	} {
		t.Run(name, func(t *testing.T) {
			refuses(t, test.rule, test.history)
		})
	}
}

// refuses wants the last event of a history to be refused by a rule, "" for none, and all others to be permitted.
func refuses(t *testing.T, rule string, history []spec.Event) {
	t.Helper()
	s := spec.New()
	for i, e := range history {
		v := s.Step(e)
		switch last := i == len(history)-1; {
		case v == nil && last && rule != "":
			t.Errorf("permitted, want it refused by the rule %q", rule)
		case v != nil && (!last || v.Rule != rule || v.Number != uint64(i)):
			t.Fatalf("%v; want the last event refused by %q", v, rule)
		}
	}
	if s.Events() != uint64(len(history)) {
		t.Errorf("%d events of %d were counted", s.Events(), len(history))
	}
}

// TestSpec_ARoundThatIsLongOver: what a voter has said of it is forgotten, and counts for nothing. In the round that would have replaced it, nobody was asked.
func TestSpec_ARoundThatIsLongOver(t *testing.T) {
	history := elected(1, 0, 2, 100)
	history = append(history, on(1, spec.Event{Kind: spec.Ask, Peer: 2, Term: 2, Round: 1})...)
	history = append(history, on(2, spec.Event{Kind: spec.Start, Term: 2, Tick: 10})...)
	for round := uint64(1); round <= 1100; round++ {
		if round != 65 {
			history = append(history, on(1, spec.Event{Kind: spec.Ask, Peer: 2, Term: 2, Round: round})...)
		}
		history = append(history, on(2, spec.Event{Kind: spec.Confirm, Peer: 1, Term: 2, Round: round})...)
	}
	refuses(t, "", append(history, on(1, spec.Event{Kind: spec.Confirmed, Peer: 2, Term: 2, Round: 1})...))
	refuses(t, "confirmation", append(history, on(1, spec.Event{Kind: spec.Ask, Peer: 2, Term: 2, Round: 1101}, spec.Event{Kind: spec.Confirmed, Peer: 2, Term: 2, Round: 1101})...))
}

// TestSpec_ALeaderThatWasPaused hears what a voter has confirmed before, which has confirmed many rounds of another one since.
func TestSpec_ALeaderThatWasPaused(t *testing.T) {
	history := elected(1, 0, 2, 100)
	history = append(history, on(1, spec.Event{Kind: spec.Ask, Peer: 2, Term: 2, Round: 1})...)
	history = append(history, on(2, spec.Event{Kind: spec.Start, Term: 2, Tick: 10}, spec.Event{Kind: spec.Confirm, Peer: 1, Term: 2, Round: 1})...)
	for round := uint64(1); round <= 1100; round++ {
		history = append(history, on(2, spec.Event{Kind: spec.Confirm, Peer: 3, Term: 3, Round: round})...)
	}
	refuses(t, "", append(history, on(1, spec.Event{Kind: spec.Confirmed, Peer: 2, Term: 2, Round: 1})...))
}

// TestSpec_AVoteThatIsNotOnDisk: a candidate that has only its term on disk does not lead in it: it could vote for another one after a restart.
func TestSpec_AVoteThatIsNotOnDisk(t *testing.T) {
	leads := func(vote uint64) []spec.Event {
		return on(1,
			spec.Event{Kind: spec.Start, Cluster: 1, Tick: 10},
			spec.Event{Kind: spec.Restore, Cluster: 1, Config: &spec.Config{Voters: []uint64{1}}},
			spec.Event{Kind: spec.BeginStep, At: 1},
			spec.Event{Kind: spec.Vote, Term: 1, Peer: 1},
			spec.Event{Kind: spec.Durable, Term: 1, Peer: vote},
			spec.Event{Kind: spec.Role, Term: 1, Leads: true},
		)
	}
	refuses(t, "disk", leads(0))
	refuses(t, "", leads(1))
}

// TestSpec_APromiseLastsFromTheLatestQuestion that asked for as much.
func TestSpec_APromiseLastsFromTheLatestQuestion(t *testing.T) {
	history := append(follower(15), on(1,
		spec.Event{Kind: spec.Asked, Term: 2, Peer: 9, Round: 2, Count: 9},
		spec.Event{Kind: spec.Confirm, Term: 2, Peer: 9, Round: 2, Count: 9},
		spec.Event{Kind: spec.Vote, Term: 3, Peer: 8},
	)...)
	refuses(t, "promise", history)
}
