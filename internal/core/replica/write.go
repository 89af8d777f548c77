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

// tail is the end of the log: what is proposed, and what the disk lacks.
type tail struct {
	*facts
	// inFlight is the write that the caller makes durable, collecting what has to follow it;
	// nil if there is none. nameUnsaved and ownSnapshot go into the next write.
	inFlight, collecting *Write
	nameUnsaved          bool             // the cluster's ID is new
	ownSnapshot          *raftpb.Snapshot // made by takeSnapshot; nil if there is none
	fence                uint64           // see noteFences
}

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

// write collects what Raft's append message m asks for, and the messages that wait for it.
func (t *tail) write(m *raftpb.Message, responses []*raftpb.Message) {
	w := &Write{Entries: m.GetEntries(), Snapshot: m.GetSnapshot(), responses: responses}
	t.noteFences(w.Snapshot, w.Entries)
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		w.HardState = &raftpb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
	}
	if w.Snapshot == nil {
		w.Compact = t.ownSnapshot
	}
	t.ownSnapshot = nil // a snapshot from the leader is newer
	if t.nameUnsaved {
		w.ClusterID, t.nameUnsaved = t.state.ClusterID, false
	}
	w.responses = t.mutateResponses(w.responses)
	if t.collecting == nil {
		t.collecting = &Write{}
	}
	t.collecting.merge(w)
}

// answerVotes notes this node's answers to candidates and returns those messages that wait for
// the disk. A pre-vote does not: it binds nobody, so nothing has to be remembered. Raft has it wait
// for whatever is being written.
func (r *Replica) answerVotes(responses []*raftpb.Message) (wait []*raftpb.Message) {
	for _, m := range responses {
		own := m.GetTo() == r.cfg.Self.NodeID
		if !own && (m.GetType() == raftpb.MsgPreVoteResp || m.GetType() == raftpb.MsgVoteResp) {
			r.succession.answeredVote(m)
			r.interval.stateAnswered(m)
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
func (t *tail) lengthenAppends(msgs []*raftpb.Message) {
	if t.role != raft.StateLeader {
		return
	}
	for _, m := range msgs {
		if m.GetTo() == raft.LocalAppendThread && len(m.GetEntries()) > 0 {
			t.lengthen(msgs, m.GetEntries())
		}
	}
}

// lengthen adds to the appends in msgs those entries that follow their last one.
func (t *tail) lengthen(msgs []*raftpb.Message, log []*raftpb.Entry) {
	for i, m := range msgs {
		n := len(m.GetEntries())
		goesOn := func(o *raftpb.Message) bool { return o.GetType() == raftpb.MsgApp && o.GetTo() == m.GetTo() }
		if m.GetType() != raftpb.MsgApp || m.GetTerm() != t.term || n == 0 || slices.ContainsFunc(msgs[i+1:], goesOn) {
			continue
		}
		first, next := log[0].GetIndex(), m.GetEntries()[n-1].GetIndex()+1
		if next >= first && next <= log[len(log)-1].GetIndex() {
			m.Entries = append(m.GetEntries()[:n:n], log[t.mutateLengthen(next-first):]...)
		}
	}
}

// startWrite gives the collected write to the caller, unless one is in flight. A write that
// changes nothing on disk only releases its messages; startWrite reports that, because Raft
// may then be ready again.
func (r *Replica) startWrite() (released bool) {
	if r.tail.inFlight != nil || r.tail.collecting == nil {
		return false
	}
	w := r.tail.collecting
	r.tail.collecting = nil
	if w.isEmpty() {
		r.releaseResponses(w)
		return true
	}
	r.tail.inFlight, r.effects.Write = w, w
	return false
}

// writePersisted takes a durable write into the log that Raft reads and releases its
// messages.
func (r *Replica) writePersisted(w *Write) {
	if w != r.tail.inFlight {
		panic("I8: a write became durable that is not in flight")
	}
	r.tail.inFlight = nil
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
func (t *tail) unwritten() (count int) {
	if t.inFlight != nil {
		count += len(t.inFlight.Entries)
	}
	if t.collecting != nil {
		count += len(t.collecting.Entries)
	}
	return count
}

// propose proposes c as leader. It returns false while leadership is being transferred or
// the log is full.
func (t *tail) propose(c oracle.Command) bool { return t.proposeEncoded(c.Append(nil)) }

func (t *tail) proposeEncoded(data []byte) bool {
	return t.hasRoom(2) && !t.isLeaving() && t.raw.Propose(data) == nil
}

// isLeaving reports whether the log holds the removal of this node, proposed by an earlier
// leader and not applied yet. As leader it steps down when it applies that, and cannot tell
// the others that it is committed. Of two voters, the other one can only be elected if this
// node votes for it, and so must have all that is in this node's log: nothing may follow but
// the entry with which Raft opens the term, without which nothing is committed.
func (t *tail) isLeaving() bool {
	if len(t.conf.GetVotersOutgoing()) > 0 && !slices.Contains(t.conf.GetVoters(), t.cfg.Self.NodeID) {
		return true
	}
	var lists [][]*raftpb.Entry
	if last, err := t.log.LastIndex(); err == nil && last > t.applied {
		if kept, err := t.log.Entries(t.applied+1, last+1, math.MaxUint64); err == nil {
			lists = append(lists, kept)
		}
	}
	for _, w := range []*Write{t.inFlight, t.collecting} {
		if w != nil {
			lists = append(lists, w.Entries)
		}
	}
	for _, list := range lists {
		if slices.ContainsFunc(list, t.removesThisNode) {
			return true
		}
	}
	return false
}

// removesThisNode reports whether e, if it is not applied yet, removes this node.
func (t *tail) removesThisNode(e *raftpb.Entry) bool {
	if e.GetType() != raftpb.EntryConfChangeV2 || e.GetIndex() <= t.applied {
		return false
	}
	cc := &raftpb.ConfChangeV2{}
	if proto.Unmarshal(e.GetData(), cc) != nil {
		return false
	}
	return slices.ContainsFunc(cc.GetChanges(), func(c *raftpb.ConfChangeSingle) bool {
		return c.GetType() == raftpb.ConfChangeRemoveNode && c.GetNodeId() == t.cfg.Self.NodeID
	})
}

// hasRoom reports whether the log may grow by so many entries that the disk lacks. A leader
// asks for one more than it proposes, for the entry with which Raft opens a term.
func (t *tail) hasRoom(entries int) bool {
	return t.unwritten()+entries <= unwrittenEntriesMax || mutant.On(mutant.UnboundedLog)
}
