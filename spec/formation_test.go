package spec_test

import (
	"slices"
	"testing"

	"github.com/isotone/isotone/spec"
)

// met is what node 2 or 3 says of itself to node 1. Their directories are 20 and 30.
func met(peer, cluster uint64, formed bool) spec.Event {
	return spec.Event{Kind: spec.Met, Peer: peer, Hello: &spec.Hello{Cluster: cluster, Formed: formed, Incarnation: 10 * peer, Tick: 10, Level: peer}}
}

// gathering is node 1 on an empty directory, which prepares cluster 7 after it has met some.
func gathering(hellos ...spec.Event) []spec.Event {
	return slices.Concat(on(1, spec.Event{Kind: spec.Start, Tick: 10}, spec.Event{Kind: spec.BeginStep}), on(1, hellos...), prepares(30))
}

// prepares is a first snapshot, with some directory of node 3.
func prepares(directory uint64) []spec.Event {
	return on(1, spec.Event{Kind: spec.Prepare, Cluster: 7, Ceiling: 100, Members: []spec.Member{{ID: 1, Incarnation: 10}, {ID: 2, Incarnation: 20}, {ID: 3, Incarnation: directory}}})
}

// forms is node 1, which is prepared, and takes part in the cluster after some have said more.
func forms(hellos ...spec.Event) []spec.Event {
	return slices.Concat(
		gathering(met(2, 0, false), met(3, 0, false)),
		on(1, spec.Event{Kind: spec.BeginStep}, spec.Event{Kind: spec.Restore, Index: 1, Cluster: 7, Config: &spec.Config{Voters: []uint64{1, 2, 3}}}),
		on(1, hellos...),
		on(1, spec.Event{Kind: spec.Form}),
	)
}

// raised is a leader that has met node 2 and proposes a feature level.
func raised(level uint64) []spec.Event {
	return slices.Concat(elected(1, 7, 2, 100), on(1, met(2, 7, true), spec.Event{Kind: spec.Restore, Index: 9, Cluster: 7, Config: &spec.Config{Voters: []uint64{1, 2}}},
		proposes(spec.Command{Level: level})))
}

// returns is node 1, which has on record that node 2 has started directory 20 for the 5th time, as the process 55, with the log to 100 on disk. Then that says some hello, after some time.
func returns(after int64, h spec.Hello) []spec.Event {
	h.Cluster, h.Tick = 7, 10
	return slices.Concat(
		on(1, spec.Event{Kind: spec.Start, Tick: 10},
			spec.Event{Kind: spec.Restore, Index: 1, Cluster: 7, Config: &spec.Config{Voters: []uint64{1, 2}}, Members: []spec.Member{{ID: 2, Incarnation: 20, Boot: 4}}}),
		at(second, 0,
			spec.Event{Kind: spec.Entry, Index: 2, Term: 2, Command: &spec.Command{Digest: 1, Register: &spec.Member{ID: 2, Incarnation: 20, Boot: 5, Session: 55}}},
			spec.Event{Kind: spec.Entry, Index: 3, Term: 2, Command: &spec.Command{Digest: 2, Reserve: 9, Durable: []spec.Member{{ID: 2, Durable: 100}}}}),
		at(second+after, 0, spec.Event{Kind: spec.Met, Peer: 2, Hello: &h}),
	)
}

func TestSpec_Admission(t *testing.T) {
	const soon, late = 5 * second, 11 * second
	twice := func(boot, session uint64) []spec.Event {
		again := spec.Hello{Cluster: 7, Tick: 10, Incarnation: 20, Boot: boot, Session: session, Last: 100}
		return slices.Concat(returns(late, spec.Hello{Incarnation: 20, Boot: 6, Session: 66, Last: 100}), on(1, spec.Event{Kind: spec.Met, Peer: 2, Hello: &again}))
	}
	otherTick := returns(late, spec.Hello{Incarnation: 20, Boot: 6, Session: 66, Last: 100})
	otherTick[len(otherTick)-1].Hello.Tick = 20
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"the process on record":               {"", returns(late, spec.Hello{Incarnation: 20, Boot: 5, Session: 55, Last: 7})},
		"the next start":                      {"", returns(late, spec.Hello{Incarnation: 20, Boot: 6, Session: 66, Last: 100})},
		"another directory":                   {"admission", returns(late, spec.Hello{Incarnation: 21, Boot: 6, Session: 66, Last: 100})},
		"a start before that on record":       {"admission", returns(late, spec.Hello{Incarnation: 20, Boot: 4, Session: 44, Last: 100})},
		"a copy":                              {"admission", returns(late, spec.Hello{Incarnation: 20, Boot: 5, Session: 56, Last: 100})},
		"an older log":                        {"admission", returns(late, spec.Hello{Incarnation: 20, Boot: 6, Session: 66, Last: 99})},
		"one that was let in before that":     {"", returns(soon, spec.Hello{Incarnation: 20, Boot: 6, Session: 66, Last: 99})},
		"another length of ticks":             {"admission", otherTick},
		"a process that connects again":       {"", twice(6, 66)},
		"another process of the same start":   {"admission", twice(6, 67)},
		"an earlier start, not on record yet": {"admission", twice(5, 55)},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, test.rule, test.history) })
	}
}

// applied says that a node has a state after the entry that it has applied.
func applied(node, state uint64) []spec.Event {
	return on(node, spec.Event{Kind: spec.State, Ceiling: 100, Serves: true, State: state})
}

func TestSpec_Formation(t *testing.T) {
	for name, test := range map[string]struct {
		rule    string
		history []spec.Event
	}{
		"all have said hello":               {"", gathering(met(2, 0, false), met(3, 0, false))},
		"one has not":                       {"formation", gathering(met(2, 0, false))},
		"another directory":                 {"formation", slices.Concat(gathering(met(2, 0, false), met(3, 0, false))[:4], prepares(31))},
		"a directory that is not on record": {"formation", slices.Concat(gathering(met(2, 0, false), met(3, 0, false))[:4], prepares(0))},
		"a floor above the ceiling":         {"formation", slices.Concat(gathering()[:2], on(1, spec.Event{Kind: spec.Met, Peer: 2, Hello: &spec.Hello{Incarnation: 20, Tick: 10, Floor: 101}}, met(3, 0, false)), prepares(30))},
		"prepared twice":                    {"formation", slices.Concat(forms(met(2, 7, false), met(3, 7, false)), prepares(30))},
		"all are prepared":                  {"", forms(met(2, 7, false), met(3, 7, false))},
		"one is not":                        {"formation", forms(met(2, 7, false))},
		"one is for another cluster":        {"admission", forms(met(2, 7, false), met(3, 8, false))[:9]},
		"one says that it is formed":        {"", forms(met(2, 7, true))},
		"a level that a voter knows":        {"", raised(2)},
		"a level that no voter knows":       {"level", raised(3)},
		"one state":                         {"", slices.Concat(elected(1, 7, 2, 100), applied(1, 5), applied(1, 5))},
		"two states":                        {"state", slices.Concat(elected(1, 7, 2, 100), applied(1, 5), applied(1, 6))},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, test.rule, test.history) })
	}
}
