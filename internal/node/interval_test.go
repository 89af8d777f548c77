package node

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/peer"
	"github.com/isotone/isotone/internal/host/steady"
)

// estimated returns what a process knows that was told of the clock just now, for limit.
func estimated(t *testing.T, limit time.Duration) (e interval.Estimate, told interval.Reading) {
	const at = 1_790_000_000_000_000_000
	told = interval.Reading{Cluster: 5, Term: 3, Earliest: at, Latest: at, Limit: at + uint64(limit)}
	sent := steady.Now()
	if !e.Take(sent, steady.Now(), told) {
		t.Fatal("a first reading contradicts nothing")
	}
	return e, told
}

func TestClusterClock_TellsWhatIsKnown(t *testing.T) {
	good, told := estimated(t, time.Hour)
	old, _ := estimated(t, 0)
	for name, tt := range map[string]struct {
		clock *clusterClock
		known *knownClock
		want  error
		bound bool // the earlier bound counts
	}{
		"off":         {&clusterClock{}, &knownClock{estimate: good, cluster: 77}, isotone.ErrNotFound, false},
		"at first":    {&clusterClock{on: true, clock: SystemClock{}}, nil, isotone.ErrNoLeader, false},
		"nothing":     {&clusterClock{on: true, clock: SystemClock{}}, &knownClock{cluster: 77}, isotone.ErrNoLeader, false},
		"good":        {&clusterClock{on: true, clock: SystemClock{}}, &knownClock{estimate: good, cluster: 77}, nil, true},
		"old":         {&clusterClock{on: true, clock: SystemClock{}}, &knownClock{estimate: old, cluster: 77}, isotone.ErrNoLeader, true},
		"wrong rates": {&clusterClock{on: true, clock: SystemClock{}}, &knownClock{estimate: good, cluster: 77, broken: true}, isotone.ErrClock, false},
	} {
		if tt.known != nil {
			tt.clock.known.Store(tt.known)
		}
		r, err := tt.clock.Now()
		if !errors.Is(err, tt.want) || (tt.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if bound := r.Term == told.Term && r.Cluster == 77 && r.Earliest >= told.Earliest; bound != tt.bound || !bound && r != (interval.Reading{}) {
			t.Errorf("%s: %+v", name, r)
		}
		if err == nil && (r.Latest < r.Earliest || r.Limit != told.Limit || r.Latest > r.Limit) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// scripted is a clock whose steady readings a test sets.
type scripted struct {
	SystemClock
	steady interval.Instant
}

func (c *scripted) Steady() interval.Instant { return c.steady }

// The latest bound may go back, as the upper line of a steady clock may: a new anchor narrows it. No
// earliest bound does, and no latest one is below an earliest bound that was told before.
func TestClusterClock_RunsBetweenEstimates(t *testing.T) {
	const at = 1_790_000_000_000_000_000
	told := interval.Reading{Cluster: 5, Term: 3, Earliest: at, Latest: at, Limit: at + uint64(time.Hour)}
	var e interval.Estimate
	if !e.Take(interval.At(0), interval.At(0), told) {
		t.Fatal("a first reading contradicts nothing")
	}
	clock := &scripted{}
	c := &clusterClock{on: true, clock: clock}
	c.known.Store(&knownClock{estimate: e})
	before := told
	for _, reading := range []interval.Instant{
		interval.At(0), interval.At(1e6), {Lo: 2e6, Hi: 2e6 + 25_000}, interval.At(2e6), {Lo: 1e9, Hi: 1e9 + 25_000},
	} {
		clock.steady = reading
		next, err := c.Now()
		if err != nil || next.Earliest < before.Earliest || next.Latest < before.Earliest || next.Limit != told.Limit {
			t.Fatalf("%+v after %+v, %v", next, before, err)
		}
		lo, hi := uint64(reading.Lo), uint64(reading.Hi)
		if low, high := at+lo-lo/1000, at+hi+hi/1000; next.Earliest != low || next.Latest < high || next.Latest > high+1 {
			t.Errorf("%+v when the steady clock shows %+v", next, reading)
		}
		before = next
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// One peer cannot make the input of a turn long.
func TestPeerConn_ClockFramesAreBounded(t *testing.T) {
	n := &Node{}
	n.clock.on = true
	p := &peerConn{core: &core{node: n}, stream: &peer.Stream{}}
	other := replica.ClockAsk{Peer: 9, Nonce: 1}
	p.core.next.ClockAsks = []replica.ClockAsk{other}
	for nonce := range uint64(1000) {
		p.askedClock(nonce)
		p.toldClock(nonce, interval.Reading{Term: 1, Latest: math.MaxInt64})
	}
	asks, answers := p.core.next.ClockAsks, p.core.next.ClockAnswers
	if len(asks) != 1+clockFramesMax || asks[0] != other || asks[1].Nonce != 0 || len(answers) != clockFramesMax || answers[0].Reading.Term != 1 {
		t.Errorf("%d questions, %d answers", len(asks), len(answers))
	}
	p.core.reset()
	if in := &p.core.next; len(in.ClockAsks)+len(in.ClockAnswers) != 0 {
		t.Error("the next turn has them again")
	}
	n.clock.on = false
	p.askedClock(1)
	p.toldClock(1, interval.Reading{})
	if in := &p.core.next; len(in.ClockAsks)+len(in.ClockAnswers) != 0 {
		t.Error("a node that reads no cluster clock takes them in")
	}
}
