package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/replica"
)

// forgetsSnapshot reports whether a follower forgets a snapshot: while its disk is busy a
// leader's snapshot comes, and then, from its successor whose log ends there, the entry behind
// it. Raft asks for two writes with a MsgStorageAppendResp each, of which only the first names
// the snapshot. Without that Raft never learns that the snapshot is applied: it applies nothing
// any more, and is not promotable, until it is restarted.
func forgetsSnapshot(t *testing.T, busy bool) bool {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f, o := c.followers(l)[0], c.followers(l)[1]
	c.tick(20)
	l.down, o.down = true, true // what comes is made below
	term, at := l.Status().Term, f.Hello().LastIndex+100
	f.stalled = true
	if busy { // something is being written
		c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
			Type: raftpb.MsgApp.Enum(), From: new(l.id), To: new(f.id), Term: new(term), LogTerm: new(term), Index: new(f.Hello().LastIndex),
			Commit: new(f.Hello().LastIndex), Entries: []*raftpb.Entry{{Index: new(f.Hello().LastIndex + 1), Term: new(term)}},
		}}})
		if f.flying == nil {
			t.Fatal("nothing is under way")
		}
	}
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgSnap.Enum(), From: new(l.id), To: new(f.id), Term: new(term),
		Snapshot: &raftpb.Snapshot{Data: f.disk.snap.GetData(), Metadata: &raftpb.SnapshotMetadata{
			ConfState: f.disk.snap.GetMetadata().GetConfState(), Index: new(at), Term: new(term),
		}},
	}}})
	c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
		Type: raftpb.MsgApp.Enum(), From: new(o.id), To: new(f.id), Term: new(term + 1), LogTerm: new(term), Index: new(at), Commit: new(at),
		Entries: []*raftpb.Entry{{Index: new(at + 1), Term: new(term + 1)}},
	}}})
	f.stalled = false
	c.flush(f)
	for i := range uint64(20) {
		c.turn(f, &replica.Input{Messages: []*raftpb.Message{{
			Type: raftpb.MsgApp.Enum(), From: new(o.id), To: new(f.id), Term: new(term + 1), LogTerm: new(term + 1), Index: new(at + 1 + i), Commit: new(at + 1 + i),
			Entries: []*raftpb.Entry{{Index: new(at + 2 + i), Term: new(term + 1)}},
		}}})
		c.flush(f)
	}
	return f.Status().Applied < at+20
}

func TestWrite_ASnapshotIsNotForgottenByTheEntriesThatFollowIt(t *testing.T) {
	for _, busy := range []bool{false, true} {
		if forgetsSnapshot(t, busy) {
			t.Errorf("disk busy %v: it applies nothing any more", busy)
		}
	}
}

// TestWrite_AnAcknowledgedEntryCountsInTheNextVote goes on from there: the follower has
// acknowledged the entry behind the snapshot, which may therefore be committed, and Raft's log
// ends at the snapshot again. It votes for a candidate that lacks the entry.
func TestWrite_AnAcknowledgedEntryCountsInTheNextVote(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	f, o := c.followers(l)[0], c.followers(l)[1]
	c.tick(20)
	l.down, o.down = true, true
	term, at := l.Status().Term, f.Hello().LastIndex+100
	var sent []*raftpb.Message
	step := func(ticks int, m *raftpb.Message) {
		c.mono += tick
		in := &replica.Input{Mono: c.mono, Now: uint64(c.mono), Ticks: ticks}
		if m != nil {
			in.Messages = []*raftpb.Message{m}
		}
		e := f.Step(in)
		sent = append(sent, e.Send...)
		if e.Write != nil {
			f.flying = e.Write
		}
	}
	flush := func() {
		for f.flying != nil {
			w := f.flying
			f.disk.save(w)
			f.flying = nil
			e := f.Step(&replica.Input{Mono: c.mono, Now: uint64(c.mono), Persisted: w})
			sent = append(sent, e.Send...)
			if e.Write != nil {
				f.flying = e.Write
			}
		}
	}
	last := f.Hello().LastIndex
	step(0, &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(l.id), To: new(f.id), Term: new(term), LogTerm: new(term), Index: new(last),
		Commit: new(last), Entries: []*raftpb.Entry{{Index: new(last + 1), Term: new(term)}},
	}) // from here on its disk is busy
	step(0, &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(l.id), To: new(f.id), Term: new(term),
		Snapshot: &raftpb.Snapshot{Data: f.disk.snap.GetData(), Metadata: &raftpb.SnapshotMetadata{
			ConfState: f.disk.snap.GetMetadata().GetConfState(), Index: new(at), Term: new(term),
		}},
	})
	step(0, &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(o.id), To: new(f.id), Term: new(term + 1), LogTerm: new(term), Index: new(at), Commit: new(at),
		Entries: []*raftpb.Entry{{Index: new(at + 1), Term: new(term + 1)}},
	})
	flush()
	acknowledged := false
	for _, m := range sent {
		acknowledged = acknowledged || m.GetType() == raftpb.MsgAppResp && m.GetTo() == o.id && !m.GetReject() && m.GetIndex() == at+1 && m.GetTerm() == term+1
	}
	if !acknowledged {
		t.Fatalf("it has not acknowledged index %d: %v", at+1, sent)
	}
	for range 60 { // its leader is gone, and it may vote
		step(1, nil)
		flush()
	}
	sent = nil
	step(0, &raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: new(l.id), To: new(f.id), Term: new(term + 2), LogTerm: new(term), Index: new(at),
	})
	flush()
	for _, m := range sent {
		if m.GetType() == raftpb.MsgVoteResp && !m.GetReject() {
			t.Errorf("it has acknowledged index %d of term %d to its leader, and votes for a candidate whose log ends at index %d of term %d", at+1, term+1, at, term)
		}
	}
}
