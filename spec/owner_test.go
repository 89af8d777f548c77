package spec_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/spec"
)

// TestSpec_FencesThatAreCutOff: a voter tells the fences of its log, but for those that a later leader has replaced, also before that is written.
func TestSpec_FencesThatAreCutOff(t *testing.T) {
	received := on(1,
		spec.Event{Kind: spec.Start, Term: 3},
		spec.Event{Kind: spec.BeginStep, At: 1},
		spec.Event{Kind: spec.Entry, Index: 1, Term: 3, Command: &spec.Command{Fence: true}},
		spec.Event{Kind: spec.Append, Index: 1, Fences: []uint64{1, 3}},
		spec.Event{Kind: spec.BeginStep, At: 2},
	)
	later := on(1, spec.Event{Kind: spec.Role, Term: 4})
	cut := on(1, spec.Event{Kind: spec.Cut, Index: 3})
	tells := func(index uint64) []spec.Event {
		return on(1, spec.Event{Kind: spec.TellFence, Peer: 9, Token: 5, Round: 1, Index: index})
	}
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"in its term":           {"fence", slices.Concat(received, tells(2))},
		"in a later term":       {"fence", slices.Concat(received, later, tells(1))},
		"once it is cut off":    {"", slices.Concat(received, cut, tells(1))},
		"one before that":       {"fence", slices.Concat(received, cut, tells(0))},
		"one of the later term": {"fence", slices.Concat(received, cut, later, on(1, spec.Event{Kind: spec.Append, Index: 3, Fences: []uint64{4}}, spec.Event{Kind: spec.BeginStep, At: 3}), tells(3))},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, test.rule, test.history) })
	}
}

// TestSpec_AnOwnersOwnFence: one that is not applied when its round begins counts no more once a later leader has cut it off.
func TestSpec_AnOwnersOwnFence(t *testing.T) {
	asked := on(1,
		spec.Event{Kind: spec.Start, Term: 3, Tick: 10},
		spec.Event{Kind: spec.Restore, Index: 5, Config: &spec.Config{Voters: []uint64{1, 2, 3}}},
		spec.Event{Kind: spec.Append, Index: 6, Fences: []uint64{6}},
		spec.Event{Kind: spec.BeginStep, At: 100},
		spec.Event{Kind: spec.Request, Token: 7, Timeline: "x"},
		spec.Event{Kind: spec.AskFence, Peer: 2, Round: 1},
		spec.Event{Kind: spec.BeginStep, At: 110},
	)
	answer := on(1,
		spec.Event{Kind: spec.ToldFence, Peer: 2, Round: 1, Index: 5},
		spec.Event{Kind: spec.Answer, Token: 7, Tenure: &spec.Tenure{Owner: 1, Session: 1}, Ranges: []spec.Range{{First: spec.Timestamp{Time: 9}, Last: spec.Timestamp{Time: 9}}}},
	)
	refuses(t, "fences", slices.Concat(asked, answer))
	refuses(t, "", slices.Concat(asked, on(1, spec.Event{Kind: spec.Cut, Index: 6}), answer))
	refuses(t, "", slices.Concat(asked, on(1, spec.Event{Kind: spec.Append, Index: 6}), answer))
}
