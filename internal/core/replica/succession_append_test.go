package replica_test

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// carriesReservation reports whether an append has the entry that opens a term and a reservation.
func carriesReservation(m *raftpb.Message) bool {
	list := m.GetEntries()
	if len(list) != 2 || len(list[0].GetData()) != 0 {
		return false
	}
	command, err := oracle.DecodeCommand(list[1].GetData())
	return err == nil && command.Kind == oracle.KindReserve
}

// appendsWhatDoesNotFollow reports whether a leader sends an append with an entry that does not
// follow the one before (I8). A follower would acknowledge an index that it does not have, or never
// end its turn, so it is not delivered.
func appendsWhatDoesNotFollow(t *testing.T) (broken bool) {
	c := newCluster(t, 3, nil)
	lengthened := 0
	c.drop = func(m *raftpb.Message) bool {
		list := m.GetEntries()
		if m.GetType() == raftpb.MsgApp && len(list) > 1 {
			lengthened++
			broken = broken || list[0].GetIndex() != m.GetIndex()+1 || !isContiguous(list)
		}
		return broken
	}
	for range 3 {
		if c.tick(50); broken {
			return true
		}
		c.turn(c.leader(), &replica.Input{Transfer: true})
		c.settle()
	}
	if lengthened < 3 {
		t.Errorf("%d appends with several entries, want some of each leader", lengthened)
	}
	return broken
}

// isContiguous reports whether each entry of a log follows the one before.
func isContiguous(log []*raftpb.Entry) bool {
	for i, e := range log {
		if e.GetIndex() != log[0].GetIndex()+uint64(i) {
			return false
		}
	}
	return true
}

func TestSuccession_EntriesOfAnAppendFollowOneAnother(t *testing.T) {
	if appendsWhatDoesNotFollow(t) {
		t.Error("I8: a leader sends an append with an entry that does not follow the one before")
	}
}

// TestSuccession_AppendsAreLengthenedOnlyByWhatFollows compares the logs after many changes of
// leader.
func TestSuccession_AppendsAreLengthenedOnlyByWhatFollows(t *testing.T) {
	c, _ := ledBy1(t, 3)
	for round := range uint64(30) {
		c.lead(round%3 + 1)
		c.must(c.nodes[round%3+1])
		c.tick(int(round % 4 * 5))
	}
	c.tick(5)
	want := c.nodes[1].disk.entries
	for _, n := range c.running() {
		if len(n.disk.entries) != len(want) || !isContiguous(n.disk.entries) {
			t.Fatalf("node %d has %d entries, node 1 %d", n.id, len(n.disk.entries), len(want))
		}
		for i, e := range n.disk.entries {
			if e.GetIndex() != want[i].GetIndex() || e.GetTerm() != want[i].GetTerm() || !bytes.Equal(e.GetData(), want[i].GetData()) {
				t.Fatalf("node %d has entry %d/%d where node 1 has %d/%d", n.id, e.GetTerm(), e.GetIndex(), want[i].GetTerm(), want[i].GetIndex())
			}
		}
	}
}
