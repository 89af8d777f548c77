package replica

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/mutant"
	"github.com/isotone/isotone/internal/core/oracle"
)

// At most two writes exist: one in flight, which the caller makes durable, and one that
// collects what follows. However long a disk hangs, the second holds only the difference:
// the latest hard state, the entries that the disk lacks, and the latest message of each
// kind for each peer. Raft asks for a write for every append and probe of the leader. See
// docs/decisions/0009-the-log-waits-for-nobody.md.

// unwrittenEntriesMax bounds the log entries that the disk lacks (I7): the reservations of
// almost seven minutes. Beyond it a leader proposes nothing and a follower drops appends as
// if the network had lost them.
const unwrittenEntriesMax = 4096

// responseKinds is the number of kinds of messages to one peer that can wait for a write:
// responses to appends, votes and pre-votes, each granting or rejecting; vote requests; and
// Raft's messages to itself about its log and about a snapshot.
const responseKinds = 9

// Write is what the caller makes durable in one transaction and then returns in
// Input.Persisted. The fields apply in the order Snapshot, Entries, Compact.
type Write struct {
	// HardState is Raft's term, vote and commit index; nil if unchanged.
	HardState *raftpb.HardState
	// Entries replace the log from the index of the first one on.
	Entries []*raftpb.Entry
	// Snapshot, from the leader, replaces the whole log; nil if there is none.
	Snapshot *raftpb.Snapshot
	// Compact is this replica's own snapshot, nil if there is none: the log up to its index
	// may be deleted.
	Compact *raftpb.Snapshot
	// ClusterID is the cluster's ID, to be kept with the identity of the directory; 0 if
	// unchanged.
	ClusterID uint64

	// responses wait for the write, for this node or for others.
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

// appendEntries replaces log from the index of the first entry on. It leaves the array of
// log as it is.
func appendEntries(log, entries []*raftpb.Entry) []*raftpb.Entry {
	keep := len(log)
	for keep > 0 && log[keep-1].GetIndex() >= entries[0].GetIndex() {
		keep--
	}
	return append(log[:keep:keep], entries...)
}

// addResponse makes a message wait for w, in place of an older one of its kind. The newer
// message implies the older: an earlier term is over, and a larger index acknowledges smaller
// ones. Losing a message to another node is harmless anyway. MsgStorageAppendResp, to this
// node, is about all entries that are not durable, so the newest holds even if its index is
// smaller because the log was truncated. One with a snapshot is the only one that has it: it
// is kept, and released first.
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

// write collects what Raft's append message m asks for. requests wait for it as well.
func (r *Replica) write(m *raftpb.Message, requests []*raftpb.Message) {
	w := &Write{Entries: m.GetEntries(), Snapshot: m.GetSnapshot(), responses: append(requests, r.answerVotes(m.GetResponses())...)}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		w.HardState = &raftpb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
	}
	if w.Snapshot == nil {
		w.Compact = r.ownSnapshot
	}
	r.ownSnapshot = nil // a snapshot from the leader is newer
	if r.nameUnsaved {
		w.ClusterID, r.nameUnsaved = r.state.ClusterID, false
	}
	w.responses = r.mutateResponses(w.responses)
	if r.collecting == nil {
		r.collecting = &Write{}
	}
	r.collecting.merge(w)
}

// answerVotes notes this node's answers to candidates and returns those messages that wait for
// the disk. A pre-vote does not: it binds nobody, so nothing has to be remembered. Raft has it wait
// for whatever is being written.
func (r *Replica) answerVotes(responses []*raftpb.Message) (wait []*raftpb.Message) {
	for _, m := range responses {
		own := m.GetTo() == r.cfg.Self.NodeID
		if !own && (m.GetType() == raftpb.MsgPreVoteResp || m.GetType() == raftpb.MsgVoteResp) {
			r.answeredVote(m)
			r.stateAnswered(m)
		}
		switch {
		case m.GetType() != raftpb.MsgPreVoteResp:
			wait = append(wait, m)
		case own:
			r.stepRaft(m)
		default:
			r.effects.Send = append(r.effects.Send, m)
		}
	}
	return wait
}

// lengthenAppends adds to a leader's appends in msgs what follows in the log and is written with
// msgs. Raft sends a new leader's first entry by itself and the next ones when it is acknowledged:
// one round trip and one commit later. An append is a piece of the leader's log, which only grows
// within its term, so it may always be longer.
func (r *Replica) lengthenAppends(msgs []*raftpb.Message) {
	if r.role != raft.StateLeader {
		return
	}
	for _, m := range msgs {
		if m.GetTo() == raft.LocalAppendThread && len(m.GetEntries()) > 0 {
			r.lengthen(msgs, m.GetEntries())
		}
	}
}

// lengthen adds to the appends in msgs those entries that follow their last one.
func (r *Replica) lengthen(msgs []*raftpb.Message, log []*raftpb.Entry) {
	for i, m := range msgs {
		n := len(m.GetEntries())
		goesOn := func(o *raftpb.Message) bool { return o.GetType() == raftpb.MsgApp && o.GetTo() == m.GetTo() }
		if m.GetType() != raftpb.MsgApp || m.GetTerm() != r.term || n == 0 || slices.ContainsFunc(msgs[i+1:], goesOn) {
			continue
		}
		first, next := log[0].GetIndex(), m.GetEntries()[n-1].GetIndex()+1
		if next >= first && next <= log[len(log)-1].GetIndex() {
			m.Entries = append(m.GetEntries()[:n:n], log[r.mutateLengthen(next-first):]...)
		}
	}
}

// startWrite gives the collected write to the caller, unless one is in flight. A write that
// changes nothing on disk only releases its messages; startWrite reports that, because Raft
// may then be ready again.
func (r *Replica) startWrite() (released bool) {
	if r.inFlight != nil || r.collecting == nil {
		return false
	}
	w := r.collecting
	r.collecting = nil
	if w.isEmpty() {
		r.releaseResponses(w)
		return true
	}
	r.inFlight, r.effects.Write = w, w
	return false
}

// writePersisted takes a durable write into the log that Raft reads and releases its
// messages.
func (r *Replica) writePersisted(w *Write) {
	if w != r.inFlight {
		panic("I8: a write became durable that is not in flight")
	}
	r.inFlight = nil
	if w.Snapshot != nil {
		if err := r.snapshotPersisted(w.Snapshot); err != nil {
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
		r.durable.term, r.voted = w.HardState.GetTerm(), w.HardState.GetVote()
	}
	r.releaseResponses(w)
	r.countGrants()
}

// releaseResponses sends the messages that waited for w.
func (r *Replica) releaseResponses(w *Write) {
	for _, m := range w.responses {
		if m.GetTo() != r.cfg.Self.NodeID {
			r.effects.Send = append(r.effects.Send, m)
			continue
		}
		_ = r.raw.Step(m)
		r.observe()
	}
}

// unwritten returns how many log entries the disk lacks.
func (r *Replica) unwritten() (count int) {
	if r.inFlight != nil {
		count += len(r.inFlight.Entries)
	}
	if r.collecting != nil {
		count += len(r.collecting.Entries)
	}
	return count
}

// propose proposes c as leader. It returns false while leadership is being transferred or
// the log is full.
func (r *Replica) propose(c oracle.Command) bool { return r.proposeEncoded(c.Append(nil)) }

func (r *Replica) proposeEncoded(data []byte) bool {
	return r.hasRoom(2) && !r.isLeaving() && r.raw.Propose(data) == nil
}

// isLeaving reports whether the log holds the removal of this node, proposed by an earlier
// leader and not applied yet. As leader it steps down when it applies that, and cannot tell
// the others that it is committed. Of two voters, the other one can only be elected if this
// node votes for it, and so must have all that is in this node's log: nothing may follow but
// the entry with which Raft opens the term, without which nothing is committed.
func (r *Replica) isLeaving() bool {
	if len(r.conf.GetVotersOutgoing()) > 0 && !slices.Contains(r.conf.GetVoters(), r.cfg.Self.NodeID) {
		return true
	}
	var lists [][]*raftpb.Entry
	if last, err := r.log.LastIndex(); err == nil && last > r.applied {
		if kept, err := r.log.Entries(r.applied+1, last+1, math.MaxUint64); err == nil {
			lists = append(lists, kept)
		}
	}
	for _, w := range []*Write{r.inFlight, r.collecting} {
		if w != nil {
			lists = append(lists, w.Entries)
		}
	}
	for _, list := range lists {
		if slices.ContainsFunc(list, r.removesThisNode) {
			return true
		}
	}
	return false
}

// removesThisNode reports whether e, if it is not applied yet, removes this node.
func (r *Replica) removesThisNode(e *raftpb.Entry) bool {
	if e.GetType() != raftpb.EntryConfChangeV2 || e.GetIndex() <= r.applied {
		return false
	}
	cc := &raftpb.ConfChangeV2{}
	if proto.Unmarshal(e.GetData(), cc) != nil {
		return false
	}
	return slices.ContainsFunc(cc.GetChanges(), func(c *raftpb.ConfChangeSingle) bool {
		return c.GetType() == raftpb.ConfChangeRemoveNode && c.GetNodeId() == r.cfg.Self.NodeID
	})
}

// hasRoom reports whether the log may grow by so many entries that the disk lacks. A leader
// asks for one more than it proposes, for the entry with which Raft opens a term.
func (r *Replica) hasRoom(entries int) bool {
	return r.unwritten()+entries <= unwrittenEntriesMax || mutant.On(mutant.UnboundedLog)
}
