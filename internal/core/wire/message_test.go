package wire

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// trip sends m over the wire format and returns it with the frame type it took.
func trip(t testing.TB, m *raftpb.Message) (*raftpb.Message, FrameType) {
	t.Helper()
	b := encoded(t, m)
	var d Decoder
	d.Feed(b)
	f, ok, err := d.Next()
	if !ok || err != nil {
		t.Fatalf("no frame: %v", err)
	}
	got, err := ParseMessage(f)
	if err != nil {
		t.Fatal(err)
	}
	return got, f.Type
}

func TestMessage_HeartbeatsTakeTheFixedForm(t *testing.T) {
	quiet := heartbeat(1, 2)
	quiet.Context = nil
	for _, c := range []struct {
		m    *raftpb.Message
		want FrameType
	}{
		{heartbeat(1, 2), FrameHeartbeat}, {quiet, FrameHeartbeat}, {heartbeatResp(2, 1), FrameHeartbeatResp},
	} {
		got, kind := trip(t, c.m)
		if kind != c.want || !proto.Equal(got, c.m) {
			t.Errorf("frame type %d: got %v, want %v", kind, got, c.m)
		}
	}
}

func TestMessage_UnusualHeartbeatsFallBackToProtobuf(t *testing.T) {
	for name, change := range map[string]func(*raftpb.Message){
		"no promise":      func(m *raftpb.Message) { m.RejectHint = nil },
		"no term":         func(m *raftpb.Message) { m.Term = nil },
		"no commit":       func(m *raftpb.Message) { m.Commit = nil },
		"no type":         func(m *raftpb.Message) { m.Type = nil },
		"empty context":   func(m *raftpb.Message) { m.Context = []byte{} },
		"long context":    func(m *raftpb.Message) { m.Context = make([]byte, 16) },
		"zero index":      func(m *raftpb.Message) { m.Index = new(uint64(0)) },
		"reject":          func(m *raftpb.Message) { m.Reject = new(false) },
		"vote":            func(m *raftpb.Message) { m.Vote = new(uint64(2)) },
		"empty snapshot":  func(m *raftpb.Message) { m.Snapshot = new(raftpb.Snapshot) },
		"unknown field":   func(m *raftpb.Message) { m.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) },
		"resp and commit": func(m *raftpb.Message) { m.Type = raftpb.MsgHeartbeatResp.Enum() },
	} {
		m := heartbeat(1, 2)
		change(m)
		if got, kind := trip(t, m); kind != FrameMessage || !proto.Equal(got, m) {
			t.Errorf("%s: frame type %d, got %v, want %v", name, kind, got, m)
		}
	}
}

// If raft filled in its heartbeats differently, they would still work, but silently lose
// the fixed-size form.
func TestMessage_HeartbeatsOfRaftItselfAreCompact(t *testing.T) {
	leader, follower := rawNode(t, 1), rawNode(t, 2)
	nodes := map[uint64]*node{1: leader, 2: follower}
	if err := leader.Campaign(); err != nil {
		t.Fatal(err)
	}
	kinds := settle(t, nodes)
	if len(kinds) == 0 || leader.Status().RaftState != raft.StateLeader {
		t.Fatalf("no leader after %v", kinds)
	}
	leader.ReadIndex([]byte("read"))
	kinds = settle(t, nodes)
	if len(kinds) < 2 || kinds[0] != FrameHeartbeat || kinds[1] != FrameHeartbeatResp {
		t.Fatalf("a round took frame types %v", kinds)
	}
}

type node struct {
	*raft.RawNode
	storage *raft.MemoryStorage
}

func rawNode(t *testing.T, id uint64) *node {
	t.Helper()
	storage := raft.NewMemoryStorage()
	snap := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}},
	}}
	if err := storage.ApplySnapshot(snap); err != nil {
		t.Fatal(err)
	}
	n, err := raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, Applied: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, Logger: &quietRaft{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &node{n, storage}
}

// settle passes messages through the wire format until none are left, and returns their
// frame types.
func settle(t *testing.T, nodes map[uint64]*node) (kinds []FrameType) {
	t.Helper()
	for {
		busy := false
		for _, id := range []uint64{1, 2} {
			n := nodes[id]
			for n.HasReady() {
				busy = true
				rd := n.Ready()
				if err := n.storage.Append(rd.Entries); err != nil {
					t.Fatal(err)
				}
				for _, m := range rd.Messages {
					if err := CheckMessage(m, id, 3-id); err != nil {
						t.Fatal(err)
					}
					if k := m.GetType(); k == raftpb.MsgHeartbeat || k == raftpb.MsgHeartbeatResp {
						m.RejectHint = new(uint64(1)) // as the replica does
					}
					got, kind := trip(t, m)
					kinds = append(kinds, kind)
					if err := nodes[3-id].Step(got); err != nil {
						t.Fatal(err)
					}
				}
				n.Advance(rd)
			}
		}
		if !busy {
			return kinds
		}
	}
}

type quietRaft struct{ raft.DefaultLogger }

func (quietRaft) Debug(...any)            {}
func (quietRaft) Debugf(string, ...any)   {}
func (quietRaft) Info(...any)             {}
func (quietRaft) Infof(string, ...any)    {}
func (quietRaft) Warning(...any)          {}
func (quietRaft) Warningf(string, ...any) {}

func TestMessage_RefusesOneThatIsTooLarge(t *testing.T) {
	b, err := AppendMessage([]byte("prefix"), appendOf(1, 2, MessageSizeMax))
	if !errors.Is(err, ErrFrameSize) || string(b) != "prefix" {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

func TestMessage_RefusesMalformedPayloads(t *testing.T) {
	for _, f := range []Frame{
		{FrameHeartbeat, make([]byte, 32)},
		{FrameHeartbeat, make([]byte, 39)},
		{FrameHeartbeat, make([]byte, 41)},
		{FrameHeartbeatResp, make([]byte, 24)},
		{FrameUpdate + 1, make([]byte, 40)},
		{FrameHeartbeatResp, nil},
		{FrameMessage, []byte{0xff}},
		{FrameHello, nil},
		{0, nil},
	} {
		if m, err := ParseMessage(f); !errors.Is(err, ErrProtocol) {
			t.Errorf("type %d of %d bytes: %v, %v", f.Type, len(f.Payload), m, err)
		}
	}
}

func TestCheckMessage_AllowsOnlyWhatTravels(t *testing.T) {
	allowed := map[raftpb.MessageType]bool{
		raftpb.MsgApp: true, raftpb.MsgAppResp: true, raftpb.MsgVote: true, raftpb.MsgVoteResp: true,
		raftpb.MsgPreVote: true, raftpb.MsgPreVoteResp: true, raftpb.MsgSnap: true,
		raftpb.MsgHeartbeat: true, raftpb.MsgHeartbeatResp: true, raftpb.MsgTimeoutNow: true,
	}
	for number := range raftpb.MessageType_name {
		kind := raftpb.MessageType(number)
		m := &raftpb.Message{Type: &kind, From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(3))}
		if kind == raftpb.MsgSnap {
			m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(4))}}
		}
		if err := CheckMessage(m, 1, 2); (err == nil) != allowed[kind] {
			t.Errorf("%v: %v", kind, err)
		}
	}
	if err := CheckMessage(&raftpb.Message{Type: raftpb.MessageType(99).Enum(), Term: new(uint64(1))}, 0, 0); err == nil {
		t.Error("a type that does not exist passes")
	}
}

func TestCheckMessage_RefusesWhatWouldHarmRaft(t *testing.T) {
	for name, change := range map[string]func(*raftpb.Message){
		"forged sender":  func(m *raftpb.Message) { m.From = new(uint64(3)) },
		"other receiver": func(m *raftpb.Message) { m.To = new(uint64(3)) },
		"no term":        func(m *raftpb.Message) { m.Term = nil },
		"term 0":         func(m *raftpb.Message) { m.Term = new(uint64(0)) },
		"short context": func(m *raftpb.Message) {
			m.Type, m.Entries, m.Context = raftpb.MsgHeartbeatResp.Enum(), nil, []byte("abc")
		},
		"gap in the entries": func(m *raftpb.Message) { m.Entries[0].Index = new(uint64(10)) },
		"responses":          func(m *raftpb.Message) { m.Responses = []*raftpb.Message{heartbeat(1, 2)} },
		"entries in a vote":  func(m *raftpb.Message) { m.Type = raftpb.MsgVote.Enum() },
		"no snapshot":        func(m *raftpb.Message) { m.Type, m.Entries = raftpb.MsgSnap.Enum(), nil },
	} {
		m := appendOf(1, 2, 1)
		if err := CheckMessage(m, 1, 2); err != nil {
			t.Fatal(err)
		}
		change(m)
		if err := CheckMessage(m, 1, 2); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckMessage_AProposalIsOneEntryWithoutAPlace(t *testing.T) {
	proposal := func(entries ...*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgProp.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(3)), Entries: entries,
		}
	}
	entry := func(change func(*raftpb.Entry)) *raftpb.Entry {
		e := &raftpb.Entry{Data: []byte("lease")}
		if change != nil {
			change(e)
		}
		return e
	}
	if err := CheckMessage(proposal(entry(nil)), 1, 2); err != nil {
		t.Fatal(err)
	}
	withSnapshot := proposal(entry(nil))
	withSnapshot.Snapshot = &raftpb.Snapshot{}
	for name, m := range map[string]*raftpb.Message{
		"none":          proposal(),
		"two":           proposal(entry(nil), entry(nil)),
		"of no data":    proposal(entry(func(e *raftpb.Entry) { e.Data = nil })),
		"with an index": proposal(entry(func(e *raftpb.Entry) { e.Index = new(uint64(1)) })),
		"with a term":   proposal(entry(func(e *raftpb.Entry) { e.Term = new(uint64(1)) })),
		"to change the members": proposal(entry(func(e *raftpb.Entry) {
			e.Type = raftpb.EntryConfChangeV2.Enum()
		})),
		"with a snapshot": withSnapshot,
	} {
		if err := CheckMessage(m, 1, 2); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Heartbeats of any content arrive as protobuf would deliver them, and no payload
// makes the parser panic.
func FuzzMessage(f *testing.F) {
	f.Add(true, uint8(0), uint64(1), uint64(2), uint64(3), uint64(4), []byte("12345678"))
	f.Add(false, uint8(0x10), uint64(1), uint64(2), uint64(3), uint64(4), []byte("12345678"))
	f.Add(false, uint8(0), uint64(1), uint64(2), uint64(3), uint64(0), []byte(nil))
	f.Add(false, uint8(0xff), uint64(1), uint64(2), uint64(1<<63), uint64(0), []byte("\x08\x03\x10\x02"))
	f.Fuzz(func(t *testing.T, resp bool, unset uint8, from, to, term, commit uint64, context []byte) {
		m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: &term, Commit: &commit, Context: context}
		if resp {
			m.Type, m.Commit = raftpb.MsgHeartbeatResp.Enum(), nil
		}
		for bit, clear := range []func(){
			func() { m.From = nil }, func() { m.To = nil }, func() { m.Term = nil }, func() { m.Commit = nil },
			func() { m.RejectHint = &commit },
		} {
			if unset&(1<<bit) != 0 {
				clear()
			}
		}
		got, _ := trip(t, m)
		plain, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want := new(raftpb.Message)
		if err := proto.Unmarshal(plain, want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) || !proto.Equal(got, m) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for kind := range FrameHeartbeatResp + 2 {
			if m, err := ParseMessage(Frame{kind, context}); err == nil {
				_ = CheckMessage(m, from, to)
				_, _ = trip(t, m)
			}
		}
	})
}
