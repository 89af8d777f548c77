package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// What goes to disk. At most two writes exist at a time: the one that the caller makes
// durable, and one that collects everything that came after it. However long a disk
// stands still, the second one only holds what differs from the disk: the latest hard
// state, the entries that the disk lacks, and of the messages that wait for it the latest
// of each kind for each peer. Raft by itself asks for a write for every append and probe
// of a leader that believes this node alive.

// unwrittenEntriesMax bounds the log entries that the disk lacks (I7). Beyond it a leader
// proposes nothing and a follower drops appends, as if the network had lost them. The
// reservations of almost seven minutes.
const unwrittenEntriesMax = 4096

// responseKinds is how many kinds of messages for one peer can wait for a write: appends,
// votes and pre-votes, granted and rejected, the request for a vote, and Raft's own notes of
// its log and of a snapshot.
const responseKinds = 9

// Write is what has to become durable, in one transaction, before its messages may
// be sent. The caller returns it in Input.Persisted after that.
type Write struct {
	// HardState is nil when unchanged.
	HardState *raftpb.HardState
	// Entries replace everything in the log from the first one's index on.
	Entries []*raftpb.Entry
	// Snapshot came from the leader and replaces the whole log, before Entries.
	Snapshot *raftpb.Snapshot
	// Compact is this replica's own snapshot: the log up to its index can go.
	Compact *raftpb.Snapshot
	// ClusterID, when not 0, is the name of the cluster, to be kept beside the
	// identity of the directory.
	ClusterID uint64

	// responses are released by durability: to this node, or to others.
	responses []*raftpb.Message
}

// isEmpty reports whether w changes nothing on disk.
func (w *Write) isEmpty() bool {
	return w.HardState == nil && len(w.Entries) == 0 && w.Snapshot == nil && w.Compact == nil && w.ClusterID == 0
}

// merge adds a later write to w.
func (w *Write) merge(o *Write) {
	if o.Snapshot != nil {
		w.Snapshot, w.Entries, w.Compact = o.Snapshot, nil, nil
	}
	if len(o.Entries) > 0 {
		w.Entries = appendEntries(w.Entries, o.Entries)
	}
	if o.HardState != nil {
		w.HardState = o.HardState
	}
	if o.Compact != nil {
		w.Compact = o.Compact
	}
	if o.ClusterID != 0 {
		w.ClusterID = o.ClusterID
	}
	for _, m := range o.responses {
		w.addResponse(m)
	}
}

// appendEntries returns log with the entries from the first one's index on replaced.
func appendEntries(log, entries []*raftpb.Entry) []*raftpb.Entry {
	keep := len(log)
	for keep > 0 && log[keep-1].GetIndex() >= entries[0].GetIndex() {
		keep--
	}
	return append(log[:keep:keep], entries...)
}

// addResponse lets a message wait for w, in place of an older one of its kind. The older
// one says nothing that the newer one does not: a peer's earlier term is over, and a larger
// index acknowledges the smaller ones. Losing a message to another node is harmless in any
// case. What Raft tells itself of its log (MsgStorageAppendResp) is about all entries that
// are not durable yet, so the newest holds, though its index may be smaller: the log was cut.
// But a snapshot is only in the one that came with it, which is kept, and released first.
func (w *Write) addResponse(m *raftpb.Message) {
	for i, o := range w.responses {
		if mutant.On(mutant.QueueResponses) || o.GetType() != m.GetType() || o.GetTo() != m.GetTo() || o.GetReject() != m.GetReject() ||
			(o.GetSnapshot() == nil) != (m.GetSnapshot() == nil) && !mutant.On(mutant.MergeSnapshotNotes) {
			continue
		}
		if m.GetType() == raftpb.MsgStorageAppendResp || m.GetTerm() > o.GetTerm() ||
			m.GetTerm() == o.GetTerm() && m.GetIndex() >= o.GetIndex() {
			w.responses[i] = m
		}
		return
	}
	w.responses = append(w.responses, m)
}

// write turns Raft's append message into a write, on which further messages depend.
func (r *Replica) write(m *raftpb.Message, also []*raftpb.Message) {
	w := &Write{Entries: m.GetEntries(), Snapshot: m.GetSnapshot(), responses: append(also, m.GetResponses()...)}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		w.HardState = &raftpb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
	}
	if w.Snapshot == nil {
		w.Compact = r.compact
	}
	r.compact = nil // a snapshot from the leader is newer than one of our own
	if r.naming {
		w.ClusterID, r.naming = r.state.ClusterID, false
	}
	w.responses = r.mutateResponses(w.responses)
	if r.next == nil {
		r.next = &Write{}
	}
	r.next.merge(w)
}

// handOut gives out what has collected, unless the caller is still at the write before.
// It reports whether messages were released that had nothing to wait for: then Raft may
// have something ready again.
func (r *Replica) handOut() (released bool) {
	if r.flying != nil || r.next == nil {
		return false
	}
	w := r.next
	r.next = nil
	if w.isEmpty() {
		r.release(w)
		return true
	}
	r.flying, r.effects.Write = w, w
	return false
}

// persisted takes a durable write into the log that Raft reads, and releases the
// messages that waited for it.
func (r *Replica) persisted(w *Write) {
	if w != r.flying {
		panic("I8: what became durable is not what was given out")
	}
	r.flying = nil
	if w.Snapshot != nil {
		if err := r.persistedSnapshot(w.Snapshot); err != nil {
			r.effects.Fatal = err
			return
		}
	}
	if len(w.Entries) > 0 {
		if err := r.log.Append(w.Entries); err != nil {
			panic(fmt.Sprintf("replica: append durable entries: %v", err))
		}
		r.durable.index = w.Entries[len(w.Entries)-1].GetIndex()
	}
	if w.HardState != nil {
		r.durable.term = w.HardState.GetTerm()
	}
	r.release(w)
}

// release sends the messages that waited for w.
func (r *Replica) release(w *Write) {
	for _, m := range w.responses {
		if m.GetTo() != r.cfg.Self.NodeID {
			r.effects.Send = append(r.effects.Send, m)
			continue
		}
		_ = r.raw.Step(m)
		r.observe()
	}
}

// unwritten is how many log entries the disk lacks.
func (r *Replica) unwritten() (count int) {
	if r.flying != nil {
		count += len(r.flying.Entries)
	}
	if r.next != nil {
		count += len(r.next.Entries)
	}
	return count
}

// propose makes c a proposal of this leader. It reports whether Raft took it: it does not
// while a transfer is under way or the log is full.
func (r *Replica) propose(c oracle.Command) bool { return r.proposeEncoded(c.Append(nil)) }

func (r *Replica) proposeEncoded(data []byte) bool {
	return r.hasRoom(2) && r.raw.Propose(data) == nil
}

// hasRoom reports whether the log may grow by some entries that the disk lacks. A leader
// leaves room for the entry with which Raft opens a term.
func (r *Replica) hasRoom(entries int) bool {
	return r.unwritten()+entries <= unwrittenEntriesMax || mutant.On(mutant.UnboundedLog)
}
