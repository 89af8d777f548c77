package replica_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// How scripts show things, in one line each.

var stages = map[replica.Stage]string{
	replica.StageGathering: "gathering", replica.StagePrepared: "prepared",
	replica.StageFormed: "formed", replica.StageJoining: "joining",
}

var roles = map[raft.StateType]string{
	raft.StateFollower: "follower", raft.StatePreCandidate: "pre-candidate", raft.StateCandidate: "candidate", raft.StateLeader: "leader",
}

// at shows a wall clock time in nanoseconds.
func (s *script) at(wall uint64) string {
	switch {
	case wall == 0:
		return "none"
	case wall == 1:
		return "1ns"
	}
	return signed(time.Duration(int64(wall) - int64(s.began)))
}

// atMillis shows a wall clock time in milliseconds.
func (s *script) atMillis(ms uint64) string {
	return signed((time.Duration(ms)*time.Millisecond - s.began).Truncate(time.Millisecond))
}

// signed shows a duration with its sign, and years as such.
func signed(d time.Duration) string {
	sign := "+"
	if d < 0 {
		sign, d = "-", -d
	}
	if d < year {
		return sign + d.String()
	}
	return fmt.Sprintf("%s%dy%v", sign, d/year, d%year)
}

// state shows what changes seldom: role, term, and whether a node serves.
func (s *script) state(n *node) string {
	st := n.Status()
	if st.Forming != "" {
		return stages[n.Hello().Stage]
	}
	text := fmt.Sprintf("%s in term %d", roles[st.Role], st.Term)
	switch {
	case st.Role == raft.StateFollower && st.Leader != 0:
		text = fmt.Sprintf("follower of %d in term %d", st.Leader, st.Term)
	case st.Role == raft.StateLeader && st.Serving:
		text += ", serving"
	case st.Role == raft.StateLeader:
		text += ", not serving"
	}
	if st.Leased {
		text += ", with a lease"
	}
	return text
}

// kind is the type of a message, and for what it is sent out of turn.
func kind(m *raftpb.Message) string {
	if string(m.GetContext()) == "CampaignTransfer" {
		return m.GetType().String() + " for a transfer"
	}
	return m.GetType().String()
}

// message shows a message without its two ends.
func (s *script) message(m *raftpb.Message) string {
	text := fmt.Sprintf("%s term=%d", kind(m), m.GetTerm())
	switch m.GetType() {
	case raftpb.MsgApp:
		text += fmt.Sprintf(" after=%d/%d commit=%d", m.GetLogTerm(), m.GetIndex(), m.GetCommit())
		if len(m.GetEntries()) > 0 {
			text += " " + s.entries(m.GetEntries())
		}
	case raftpb.MsgAppResp:
		text += fmt.Sprintf(" index=%d", m.GetIndex())
	case raftpb.MsgVote, raftpb.MsgPreVote:
		text += fmt.Sprintf(" last=%d/%d", m.GetLogTerm(), m.GetIndex())
	case raftpb.MsgHeartbeat:
		if len(m.GetContext()) == 0 {
			text += fmt.Sprintf(" commit=%d", m.GetCommit()) // a round has none
		}
	case raftpb.MsgSnap:
		text += " " + s.snapshot(m.GetSnapshot())
	case raftpb.MsgProp:
		text += " " + s.entries(m.GetEntries())
	}
	if len(m.GetContext()) == 8 {
		text += fmt.Sprintf(" round=%d", binary.LittleEndian.Uint64(m.GetContext()))
	}
	if m.GetType() == raftpb.MsgHeartbeat || m.GetType() == raftpb.MsgHeartbeatResp {
		if m.GetRejectHint() > 1 {
			text += fmt.Sprintf(" promise=%d", m.GetRejectHint()-1)
		}
	}
	if m.GetReject() {
		text += " rejected"
	}
	return text
}

func (s *script) entries(list []*raftpb.Entry) string {
	var words []string
	for _, e := range list {
		text := s.command(e)
		if e.GetIndex() != 0 {
			text = fmt.Sprintf("%d/%d %s", e.GetTerm(), e.GetIndex(), text)
		}
		words = append(words, text)
	}
	return "[" + strings.Join(words, "; ") + "]"
}

// command shows what a log entry does.
func (s *script) command(e *raftpb.Entry) string {
	if e.GetType() == raftpb.EntryConfChangeV2 {
		return confChange(e)
	}
	if len(e.GetData()) == 0 {
		return "empty"
	}
	c, err := oracle.DecodeCommand(e.GetData())
	if err != nil {
		return err.Error()
	}
	switch c.Kind {
	case oracle.KindReserve:
		return "reserve " + s.at(c.Target)
	case oracle.KindLevel:
		return fmt.Sprintf("raise the level to %d", c.Level)
	case oracle.KindRegister:
		return fmt.Sprintf("register %d, start %d", c.Member.ID, c.Member.Boot)
	case oracle.KindUpdate:
		return fmt.Sprintf("update %d: %s %s", c.Member.ID, c.Member.PeerAddr, c.Member.ClientAddr)
	case oracle.KindFloor:
		return "floor " + s.at(c.Target)
	case oracle.KindLease:
		l := c.Lease
		return fmt.Sprintf("lease to %s, session %d: %s to %s", holder(l.Node), l.Session, s.atMillis(l.From), s.atMillis(l.Until))
	case oracle.KindRelease:
		text := fmt.Sprintf("release by %s, session %d:", holder(c.Release.Node), c.Release.Session)
		for _, u := range c.Release.Used {
			text += fmt.Sprintf(" worker %d from %s", u.Worker, s.atMillis(u.Next))
		}
		return text
	}
	return fmt.Sprintf("command kind %d", c.Kind)
}

func confChange(e *raftpb.Entry) string {
	cc := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return err.Error()
	}
	text := "change:"
	if len(cc.GetChanges()) == 0 {
		text += " end of the joint configuration"
	}
	for _, c := range cc.GetChanges() {
		word := map[raftpb.ConfChangeType]string{
			raftpb.ConfChangeAddNode: "voter", raftpb.ConfChangeAddLearnerNode: "learner", raftpb.ConfChangeRemoveNode: "remove",
		}[c.GetType()]
		text += fmt.Sprintf(" %s %d", word, c.GetNodeId())
	}
	return text
}

func holder(node uint64) string {
	if node == 0 {
		return "a client"
	}
	return fmt.Sprintf("node %d", node)
}

// snapshot shows where a snapshot stands and what is in it.
func (s *script) snapshot(snap *raftpb.Snapshot) string {
	meta := snap.GetMetadata()
	text := fmt.Sprintf("snapshot=%d/%d voters=%d", meta.GetTerm(), meta.GetIndex(), meta.GetConfState().GetVoters())
	if l := meta.GetConfState().GetLearners(); len(l) > 0 {
		text += fmt.Sprintf(" learners=%d", l)
	}
	state, err := oracle.DecodeState(snap.GetData())
	if err != nil {
		return text + " " + err.Error()
	}
	return text + " ceiling=" + s.at(state.Ceiling)
}

// write shows what goes to disk.
func (s *script) write(w *replica.Write) string {
	var words []string
	if w.Snapshot != nil {
		words = append(words, s.snapshot(w.Snapshot))
	}
	if h := w.HardState; h != nil {
		words = append(words, hardState(h))
	}
	if len(w.Entries) > 0 {
		words = append(words, s.entries(w.Entries))
	}
	if w.Compact != nil {
		words = append(words, "its own "+s.snapshot(w.Compact))
	}
	if w.ClusterID != 0 {
		words = append(words, "the cluster's name")
	}
	return strings.Join(words, ", ")
}

func hardState(h *raftpb.HardState) string {
	return fmt.Sprintf("term=%d vote=%d commit=%d", h.GetTerm(), h.GetVote(), h.GetCommit())
}

func (s *script) answer(a *answered) string {
	if a.err.Code != "ok" {
		return a.err.Error()
	}
	var words []string
	for _, r := range a.ranges {
		text := fmt.Sprintf("%s/%d", s.at(r.First.Time), r.First.Index)
		if r.Count > 1 {
			text += fmt.Sprintf("..%d", r.Last().Index)
		}
		words = append(words, text)
	}
	return strings.Join(words, " ")
}

func (s *script) leaseAnswer(a replica.LeaseAnswer) string {
	switch {
	case a.Err != nil:
		return a.Err.Error()
	case a.End == 0:
		return "given back"
	}
	return fmt.Sprintf("worker %d, %s to %s", a.Worker, s.atMillis(a.Start), s.atMillis(a.End))
}
