package stops

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
)

// Steps stops this process (SIGSTOP) at a step that a test has named, so that the test can kill
// it, or another process, exactly there. The test writes "WHO STEP" to a file that several
// processes may share: WHO is a node ID, "leader", or "any". The first process that matches
// renames the file by appending "." and its process ID, and stops. Steps are reached rarely: only
// they look at the file.
//
// It only looks at a node. Before, After and Flushed belong to the goroutine of the node's core; Reached and Written may
// be called by any.
type Steps struct {
	path string
	node uint64

	mu    sync.Mutex
	leads bool // as of the latest turn

	changes map[uint64]string // by log index: entries that were seen and not applied yet
	sending []string          // steps that are reached once this turn's output was written
	role    raft.StateType
	serving bool
	begun   bool // a step of the replica was seen
	member  bool // some member is known
}

// NewSteps returns the steps of a node, which follow the file at path.
func NewSteps(path string, node uint64) *Steps {
	return &Steps{path: path, node: node, changes: map[uint64]string{}}
}

// Reached stops this process if the test waits for this step.
func (s *Steps) Reached(step string) {
	s.mu.Lock()
	leads := s.leads
	s.mu.Unlock()
	s.reached(leads, step)
}

func (s *Steps) reached(leads bool, step string) {
	b, err := os.ReadFile(s.path)
	if err != nil {
		return // the test waits for nothing
	}
	who, armed, _ := strings.Cut(string(b), " ")
	if armed != step || who != "any" && who != strconv.FormatUint(s.node, 10) && (who != "leader" || !leads) {
		return
	}
	if os.Rename(s.path, fmt.Sprintf("%s.%d", s.path, os.Getpid())) == nil { // nobody else was first
		stopSelf()
	}
}

// Before looks at the input of a step of the replica.
func (s *Steps) Before(r *replica.Replica, in *replica.Input) {
	if !s.begun {
		s.begun, s.member = true, len(r.Members()) > 0
	}
	for _, m := range in.Messages {
		switch m.GetType() {
		case raftpb.MsgTimeoutNow:
			s.Reached("timeout-now received")
		case raftpb.MsgSnap:
			s.Reached("snapshot received")
		case raftpb.MsgApp:
			for _, name := range s.note(m.GetEntries()) {
				s.Reached(name + " received")
			}
		}
	}
	for _, h := range in.Hellos {
		if !s.member || isNew(r, h.NodeID) {
			s.Reached("hello received")
		}
	}
}

// isNew reports whether a member has never connected.
func isNew(r *replica.Replica, id uint64) bool {
	for _, m := range r.Members() {
		if m.ID == id {
			return m.Incarnation == 0
		}
	}
	return false
}

// After looks at the effects of a step of the replica, none of which is carried out yet.
func (s *Steps) After(r *replica.Replica, e *replica.Effects) {
	status := r.Status()
	led, served := s.role == raft.StateLeader, s.serving
	s.role, s.serving = status.Role, status.Serving
	s.mu.Lock()
	s.leads = status.Role == raft.StateLeader
	s.mu.Unlock()
	s.proposed(e)
	for _, name := range s.applied(status.Applied) {
		s.Reached(name + " applied")
	}
	switch {
	case led && !s.leads:
		s.reached(true, "deposed")
	case !led && s.leads:
		s.Reached("elected")
	}
	if !served && s.serving {
		s.Reached("opened")
	}
	if !s.member && len(r.Members()) > 0 {
		s.member = true
		s.Reached("snapshot restored")
	}
}

// proposed looks for entries and messages that are about to be written or sent.
func (s *Steps) proposed(e *replica.Effects) {
	var names []string
	if e.Write != nil {
		names = s.note(e.Write.Entries)
	}
	for _, m := range e.Send {
		switch m.GetType() {
		case raftpb.MsgApp:
			names = append(names, s.note(m.GetEntries())...)
		case raftpb.MsgTimeoutNow:
			names = append(names, "timeout-now")
		case raftpb.MsgSnap:
			names = append(names, "snapshot")
		}
	}
	for _, name := range names {
		s.Reached(name + " proposed")
		s.sending = append(s.sending, name+" sent")
	}
}

// Flushed is called when the output of a turn was written.
func (s *Steps) Flushed() {
	for _, step := range s.sending {
		s.Reached(step)
	}
	s.sending = s.sending[:0]
}

// Written is called by the disk's goroutine when a write is durable, before anybody is told.
func (s *Steps) Written(w *replica.Write) {
	s.mu.Lock()
	leads := s.leads
	s.mu.Unlock()
	if w.Snapshot != nil {
		s.reached(leads, "snapshot written")
	}
	for _, e := range w.Entries {
		if name := changeOf(e); name != "" {
			s.reached(leads, name+" written")
		}
	}
}

// note remembers the changes of membership among entries, and returns the names of new ones.
func (s *Steps) note(entries []*raftpb.Entry) (names []string) {
	for _, e := range entries {
		name := changeOf(e)
		if name != "" && s.changes[e.GetIndex()] != name {
			s.changes[e.GetIndex()] = name
			names = append(names, name)
		}
	}
	return names
}

// applied forgets the changes up to an index, and returns their names.
func (s *Steps) applied(index uint64) (names []string) {
	for i, name := range s.changes {
		if i <= index {
			delete(s.changes, i)
			names = append(names, name)
		}
	}
	return names
}

// changeOf names the change of membership, or of a member's record, that an entry holds; "" for
// any other entry.
func changeOf(e *raftpb.Entry) string {
	if e.GetType() == raftpb.EntryConfChangeV2 {
		cc := &raftpb.ConfChangeV2{}
		if proto.Unmarshal(e.GetData(), cc) != nil {
			return ""
		}
		switch changes := cc.GetChanges(); {
		case len(changes) == 0:
			return "leave"
		case len(changes) > 1:
			return "joint"
		case changes[0].GetType() == raftpb.ConfChangeAddLearnerNode:
			return "add"
		case changes[0].GetType() == raftpb.ConfChangeRemoveNode:
			return "remove"
		}
		return "promote"
	}
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return ""
	}
	switch oracle.Kind(e.GetData()[0]) {
	case oracle.KindRegister:
		return "register"
	case oracle.KindUpdate:
		return "update"
	}
	return ""
}
