package replica_test

import (
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// readWrite has a node carry out an operation of the oracle of reads and writes of a timeline, and returns the answer in milliseconds, or how it was refused.
func (c *cluster) readWrite(n *node, op timeline.Op, at uint64) (uint64, isotone.Code) {
	token := c.request(n, replica.Request{Mode: isotone.ReadQuorum, Timeline: "orders", Op: op, At: at, Counts: []uint64{1}})
	c.settle()
	if got := n.outcome(token); got != "ok" {
		return 0, got
	}
	r := n.answers[token].ranges[0]
	if r.Count != 1 || r.First.Index != 0 {
		c.t.Errorf("%v: %+v", op, r)
	}
	return r.First.Time, ""
}

// mustAsk is readWrite of what is not refused.
func (c *cluster) mustAsk(n *node, op timeline.Op, at uint64) uint64 {
	c.t.Helper()
	got, refused := c.readWrite(n, op, at)
	if refused != "" {
		c.t.Fatalf("node %d: %v: %q", n.id, op, refused)
	}
	return got
}

func TestReadWrite_GoesOnWithEveryOwner(t *testing.T) {
	o := newOwned(t, nil)
	last := uint64(0)
	for i := range 8 {
		owner := []*node{o.owner, o.leader, o.third}[i%3]
		o.grant(owner)
		o.tick(2)
		for _, n := range o.running() {
			if _, refused := o.readWrite(n, timeline.OpRead, 0); n != owner && refused != "not_leader" {
				t.Fatalf("node %d, which does not own it: %q", n.id, refused)
			}
		}
		read := o.mustAsk(owner, timeline.OpRead, 0)
		write := o.mustAsk(owner, timeline.OpWrite, 0)
		if read < last || write <= read {
			t.Fatalf("the next owner reads at %d after %d, and writes at %d", read, last, write)
		}
		if got := o.mustAsk(owner, timeline.OpRead, 0); got != read {
			t.Errorf("the write at %d is not applied, and reads move from %d to %d", write, read, got)
		}
		if got := o.mustAsk(owner, timeline.OpPeek, 0); got != write {
			t.Errorf("the latest write is at %d, not %d", got, write)
		}
		if got := o.mustAsk(owner, timeline.OpApply, write); got != write {
			t.Errorf("after the write at %d is applied reads are at %d", write, got)
		}
		last = write + uint64(i%2) // applied here, or known to be answered only
		if i%2 == 1 {
			last = o.mustAsk(owner, timeline.OpWrite, 0)
		}
	}
}

func TestReadWrite_StaysBelowTheCeiling(t *testing.T) {
	o := newOwned(t, nil)
	far := uint64(o.mono+time.Hour) / uint64(time.Millisecond)
	read := o.mustAsk(o.owner, timeline.OpRead, 0)
	if _, refused := o.readWrite(o.owner, timeline.OpApply, far); refused != "invalid_argument" {
		t.Errorf("a time of an hour ahead is applied: %q", refused)
	}
	if got := o.mustAsk(o.owner, timeline.OpRead, 0); got != read {
		t.Errorf("reads move from %d to %d", read, got)
	}
	o.does(o.leader, timeline.Command{Kind: timeline.KindFloor, Name: "orders", Time: far * uint64(time.Millisecond)})
	o.settle()
	if got := o.mustAsk(o.owner, timeline.OpApply, far); got != far {
		t.Errorf("once the floor is there, %d is applied", got)
	}
	full := false
	for range 100 { // a floor leaves room for a nanosecond
		_, refused := o.readWrite(o.owner, timeline.OpWrite, 0)
		full = full || refused == "overloaded"
	}
	if !full {
		t.Error("writes pass the ceiling")
	}
}

func TestReadWrite_FloorsAndDeletionsCount(t *testing.T) {
	o := newOwned(t, nil)
	write := o.mustAsk(o.owner, timeline.OpWrite, 0)
	floor := (write + 70) * uint64(time.Millisecond)
	o.does(o.leader, timeline.Command{Kind: timeline.KindFloor, Name: "orders", Time: floor})
	if got := o.mustAsk(o.owner, timeline.OpRead, 0); got < write+70 {
		t.Errorf("reads are at %d after the floor was raised to %d", got, write+70)
	}
	write = o.mustAsk(o.owner, timeline.OpPeek, 0)
	o.does(o.leader, timeline.Command{Kind: timeline.KindDelete, Name: "orders"})
	if _, refused := o.readWrite(o.leader, timeline.OpWrite, 0); refused != "not_found" {
		t.Errorf("a timeline that is deleted: %q", refused)
	}
	o.does(o.leader, creates("orders"))
	o.tick(2)
	g, _ := o.leader.Timelines().Group(timeline.GroupOf("orders"))
	if got := o.mustAsk(o.nodes[g.Owner], timeline.OpWrite, 0); got <= write {
		t.Errorf("created again it writes at %d, after %d", got, write)
	}
}

// TestReadWrite_WaitsForLeases of a former owner, and is answered by the lease of the present one.
func TestReadWrite_WaitsForLeases(t *testing.T) {
	o := newLeased(t)
	o.cutOff()
	byLease := func(op timeline.Op) uint64 {
		token := o.request(o.owner, replica.Request{Mode: isotone.ReadLease, Timeline: "orders", Op: op, Counts: []uint64{1}})
		if got := o.owner.outcome(token); got != "ok" {
			return 0
		}
		return o.owner.answers[token].ranges[0].First.Time
	}
	write := byLease(timeline.OpWrite)
	if write == 0 {
		t.Fatal("the owner does not answer by its lease")
	}
	o.grant(o.leader)
	token := o.request(o.leader, replica.Request{Mode: isotone.ReadQuorum, Timeline: "orders", Op: timeline.OpWrite, Counts: []uint64{1}})
	o.settle()
	o.leaderWaits(100*tick, func() bool { return o.leader.outcome(token) != "" })
	if got := o.leader.outcome(token); got != "ok" {
		t.Fatalf("the new owner: %q", got)
	}
	if byLease(timeline.OpRead) != 0 {
		t.Error("T8: the former owner still answers")
	}
	if got := o.leader.answers[token].ranges[0].First.Time; got <= write {
		t.Errorf("a write at %d after one at %d", got, write)
	}
}
