package node

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

// StepFault stops this process (SIGSTOP) at a step that a test has named, so that the test can kill
// it, or another process, exactly there. The test writes "WHO STEP" to a file that several
// processes may share: WHO is a node ID, "leader", or "any". The first process that matches
// renames the file by appending "." and its process ID, and stops. Steps are reached rarely: only
// they look at the file.
//
// A nil StepFault does nothing; normal nodes have one. Its methods are safe for concurrent use.
type StepFault struct {
	path string
	node uint64
}

// NewStepFault returns the fault of a node that follows the file at path.
func NewStepFault(path string, node uint64) *StepFault { return &StepFault{path: path, node: node} }

// Reached stops this process if the test waits for this step.
func (f *StepFault) Reached(step string) { f.reached(false, step) }

func (f *StepFault) reached(leads bool, step string) {
	if f == nil {
		return
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return // the test waits for nothing
	}
	who, armed, _ := strings.Cut(string(b), " ")
	if armed != step || who != "any" && who != strconv.FormatUint(f.node, 10) && (who != "leader" || !leads) {
		return
	}
	if os.Rename(f.path, fmt.Sprintf("%s.%d", f.path, os.Getpid())) == nil { // nobody else was first
		stopSelf()
	}
}

// operatorReached is reached for the steps of a request of an operator.
func (n *Node) operatorReached(step string) {
	if n.cfg.Steps != nil {
		n.cfg.Steps.reached(n.Status().Role == "leader", step)
	}
}

// coreSteps tells a StepFault which steps the core of a node reaches. It only looks. It belongs
// to the core loop's goroutine, but for written.
type coreSteps struct {
	fault *StepFault
	core  *core

	mu      sync.Mutex
	leads   bool              // as of the latest turn
	changes map[uint64]string // by log index: entries that were seen and not applied yet
	sending []string          // steps that are reached once this turn's output was written

	role    raft.StateType
	serving bool
	member  bool // some member is known
}

// newCoreSteps returns nil without a fault.
func newCoreSteps(f *StepFault, c *core) *coreSteps {
	if f == nil {
		return nil
	}
	return &coreSteps{fault: f, core: c, changes: map[uint64]string{}, member: len(c.replica.Members()) > 0}
}

func (s *coreSteps) reached(step string) { s.fault.reached(s.leads, step) }

// before looks at the input of a step of the replica.
func (s *coreSteps) before(in *replica.Input) {
	for _, m := range in.Messages {
		switch m.GetType() {
		case raftpb.MsgTimeoutNow:
			s.reached("timeout-now received")
		case raftpb.MsgSnap:
			s.reached("snapshot received")
		case raftpb.MsgApp:
			for _, name := range s.note(m.GetEntries()) {
				s.reached(name + " received")
			}
		}
	}
	for _, h := range in.Hellos {
		if !s.member || s.isNew(h.NodeID) {
			s.reached("hello received")
		}
	}
}

// isNew reports whether a member has never connected.
func (s *coreSteps) isNew(id uint64) bool {
	for _, m := range s.core.replica.Members() {
		if m.ID == id {
			return m.Incarnation == 0
		}
	}
	return false
}

// after looks at the effects of a step of the replica, none of which is carried out yet.
func (s *coreSteps) after(e *replica.Effects) {
	status := s.core.replica.Status()
	led, served := s.role == raft.StateLeader, s.serving
	s.role, s.serving = status.Role, status.Serving
	s.mu.Lock()
	s.leads = status.Role == raft.StateLeader
	s.mu.Unlock()
	s.proposed(e)
	for _, name := range s.applied(status.Applied) {
		s.reached(name + " applied")
	}
	switch {
	case led && !s.leads:
		s.fault.reached(true, "deposed")
	case !led && s.leads:
		s.reached("elected")
	}
	if !served && s.serving {
		s.reached("opened")
	}
	if !s.member && len(s.core.replica.Members()) > 0 {
		s.member = true
		s.reached("snapshot restored")
	}
}

// proposed looks for entries and messages that are about to be written or sent.
func (s *coreSteps) proposed(e *replica.Effects) {
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
		s.reached(name + " proposed")
		s.sending = append(s.sending, name+" sent")
	}
}

// flushed is called when the output of a turn was written.
func (s *coreSteps) flushed() {
	for _, step := range s.sending {
		s.reached(step)
	}
	s.sending = s.sending[:0]
}

// written is called by the disk's goroutine when a write is durable, before anybody is told.
func (s *coreSteps) written(w *replica.Write) {
	if s == nil {
		return
	}
	s.mu.Lock()
	leads := s.leads
	s.mu.Unlock()
	if w.Snapshot != nil {
		s.fault.reached(leads, "snapshot written")
	}
	for _, e := range w.Entries {
		if name := changeOf(e); name != "" {
			s.fault.reached(leads, name+" written")
		}
	}
}

// note remembers the changes of membership among entries, and returns the names of new ones.
func (s *coreSteps) note(entries []*raftpb.Entry) (names []string) {
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
func (s *coreSteps) applied(index uint64) (names []string) {
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
