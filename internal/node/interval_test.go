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
	"github.com/isotone/isotone/internal/steady"
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

func TestClusterClock_RunsBetweenEstimates(t *testing.T) {
	c := &clusterClock{on: true, clock: SystemClock{}}
	e, _ := estimated(t, time.Hour)
	c.known.Store(&knownClock{estimate: e})
	first, err := c.Now()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		next, err := c.Now()
		if err != nil || next.Earliest < first.Earliest || next.Latest < first.Latest {
			t.Fatalf("%+v after %+v, %v", next, first, err)
		}
		if next.Earliest > first.Latest {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the clock stands still at %+v", next)
		}
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
