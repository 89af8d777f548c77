package protocoltrace

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/spec"
)

// clockBefore says what goes into a step about clocks.
func (r *recorder) clockBefore(in *replica.Input) {
	r.ticked, r.steady = in.Ticks > 0, in.Steady
	for _, c := range in.Clocks {
		r.add(spec.Event{Kind: spec.WallClock, Peer: c.ID, Clock: uint64(max(0, c.Wall))})
	}
	if f := in.RaiseFloor; f != nil {
		r.add(spec.Event{Kind: spec.RaiseFloor, Clock: f.Time})
	}
	for _, a := range in.ClockAnswers {
		r.add(spec.Event{Kind: spec.ToldClock, Peer: a.Peer, Token: a.Nonce, Cluster: a.Reading.Cluster, Reading: readingOf(a.Reading)})
	}
}

// clockAfter says how the clock of a leader goes on.
func (r *recorder) clockAfter(of *replica.Replica) {
	if r.interval == 0 {
		return
	}
	if c, runs := of.ClusterClock(); runs && c != r.clock {
		r.clock = c
		r.add(spec.Event{Kind: spec.ClusterClock, Clock: c.Base, At: c.At, Slew: c.Slew})
	}
}

// clockTold says what the node asks and tells others, and what its own process may use now, and by what it knows now until the earlier bound reaches the limit.
func (r *recorder) clockTold(of *replica.Replica, e *replica.Effects) {
	for _, q := range e.AskClock {
		r.add(spec.Event{Kind: spec.AskClock, Peer: q.Peer, Token: q.Nonce})
	}
	for _, a := range e.TellClock {
		r.add(spec.Event{Kind: spec.TellClock, Peer: a.Peer, Token: a.Nonce, Reading: readingOf(a.Reading)})
	}
	if r.interval == 0 || !e.ClockChanged && !r.ticked {
		return
	}
	at := r.steady
	for range 2 {
		b, good := of.ClockEstimate().Told(interval.At(at))
		if good {
			r.add(spec.Event{Kind: spec.Bounds, At: at, Reading: readingOf(b)})
		}
		if b.Earliest >= b.Limit {
			return
		}
		at += int64(b.Limit - b.Earliest)
	}
}

func readingOf(r interval.Reading) *spec.Reading {
	return &spec.Reading{Term: r.Term, Earliest: r.Earliest, Latest: r.Latest, Limit: r.Limit}
}

// proposedOf returns the entries of a write that this node has proposed as the leader, and that move time or its limits.
func (r *recorder) proposedOf(entries []*raftpb.Entry) (list []spec.Proposal) {
	for _, e := range entries {
		if !r.leads || e.GetTerm() != r.term || len(e.GetData()) == 0 || e.GetType() != raftpb.EntryNormal {
			continue
		}
		switch oracle.Kind(e.GetData()[0]) {
		case oracle.KindReserve, oracle.KindFloor, oracle.KindInterval, oracle.KindLevel:
			list = append(list, spec.Proposal{Index: e.GetIndex(), Command: commandOf(e)})
		}
	}
	return list
}

// reservedIn returns the largest ceiling that a recovered log asks for.
func reservedIn(entries []*raftpb.Entry) (ceiling uint64) {
	for _, e := range entries {
		ceiling = max(ceiling, commandOf(e).Reserve)
	}
	return ceiling
}

// reservationEpochs is how many epochs a reservation reaches ahead of the clock.
const reservationEpochs = 4
