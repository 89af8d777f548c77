package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isotone/isotone/internal/check/golden"
	"github.com/isotone/isotone/internal/core/interval"
)

// The golden set has every kind of frame that any version has sent. Later versions must
// read the same from them.

// goldenFrame is the meaning of a frame. Only the fields of its type are set.
type goldenFrame struct {
	Type    FrameType
	Hello   *Hello          `json:",omitempty"`
	Refusal *Refusal        `json:",omitempty"`
	Clock   int64           `json:",omitempty"`
	Nonce   uint64          `json:",omitempty"`
	Reading *goldenReading  `json:",omitempty"`
	Message json.RawMessage `json:",omitempty"`
	Part    string          `json:",omitempty"`
	// Round and Fence are of an owner of timelines, with the session as Nonce.
	Round uint64 `json:",omitempty"`
	Fence uint64 `json:",omitempty"`
}

// goldenReading is an interval.Reading.
type goldenReading struct{ Cluster, Term, Earliest, Latest, Limit uint64 }

// readGolden parses one frame as a connection does.
func readGolden(b []byte) (any, error) {
	var d Decoder
	d.Feed(b)
	f, ok, err := d.Next()
	if err != nil || !ok {
		return nil, fmt.Errorf("no whole frame: %w", err)
	}
	if rest, more, err := d.Next(); more || err != nil {
		return nil, fmt.Errorf("after it: frame type %d, %w", rest.Type, err)
	}
	g := goldenFrame{Type: f.Type}
	switch f.Type {
	case FrameHello, FrameWelcome, FrameUpdate:
		var h Hello
		h, err = ParseHello(f.Payload)
		g.Hello = &h
	case FrameRefusal:
		g.Refusal, err = ParseRefusal(f.Payload)
	case FrameReady, FramePing:
		if len(f.Payload) > 0 {
			err = fmt.Errorf("%d bytes in a frame that is empty", len(f.Payload))
		}
	case FrameClock:
		g.Clock, err = parseClock(f.Payload)
	case FrameClockAsk:
		g.Nonce, err = parseClockAsk(f.Payload)
	case FrameClockTold:
		var r interval.Reading
		g.Nonce, r, err = parseClockTold(f.Payload)
		g.Reading = new(goldenReading(r))
	case FrameOwnerAsk, FrameOwnerTold:
		c := newCodec()
		c.OnOwnerAsk(func(session, round uint64) { g.Nonce, g.Round = session, round })
		c.OnOwnerTold(func(session, round, fence uint64) { g.Nonce, g.Round, g.Fence = session, round, fence })
		_, err = c.Parse(nil, b)
	case FramePart, FrameLastPart:
		g.Part = string(f.Payload)
	case FrameMessage, FrameHeartbeat, FrameHeartbeatResp:
		g.Message, err = readGoldenMessage(f)
	default:
		err = fmt.Errorf("frame type %d is unknown", f.Type)
	}
	return g, err
}

// readGoldenMessage parses a message that a peer may send.
func readGoldenMessage(f Frame) (json.RawMessage, error) {
	m, err := ParseMessage(f)
	if err != nil {
		return nil, err
	}
	if err := CheckMessage(m, m.GetFrom(), m.GetTo()); err != nil {
		return nil, err
	}
	return goldenMessage(m)
}

func goldenMessage(m *raftpb.Message) (json.RawMessage, error) { return protojson.Marshal(m) }

func goldenHellos() map[string]Hello {
	return map[string]Hello{
		"zero": {},
		"first-start": {
			NodeID: 2, Incarnation: 0x2222, Boot: 1, Session: 0xA2, VotersHash: 0x0123456789ABCDEF, Term: 1, LastIndex: 1,
			TickNanos: 10_000_000, ClientAddr: "localhost:8080",
		},
		"member": {
			ClusterID: 77, NodeID: 3, Incarnation: 0x3333, Boot: 12, Session: 0xA3, VotersHash: 0x0123456789ABCDEF,
			Term: 9, LastIndex: 5000, TickNanos: 10_000_000, ClientAddr: "node3.example:8080",
		},
		"gathering": {
			NodeID: 2, Incarnation: 0x2222, Boot: 1, Session: 0xA2, VotersHash: 0x0123456789ABCDEF, TickNanos: 10_000_000,
			ClientAddr: "localhost:8080", Level: 1, Stage: 1, Founders: "1,2,3", PeerAddr: "10.0.0.2:60001",
		},
		"preferred": {
			ClusterID: 77, NodeID: 1<<48 | 3, Incarnation: 0x3333, Boot: 12, Session: 0xA3, Term: 9, LastIndex: 5000, TickNanos: 10_000_000,
			ClientAddr: "node3.example:8080", Level: 1, Stage: 3, PeerAddr: "10.0.0.3:60001", Priority: -7,
		},
		"restoring": {
			NodeID: 2, Incarnation: 0x2222, Boot: 1, Session: 0xA2, VotersHash: 0x0123456789ABCDEF, TickNanos: 10_000_000,
			ClientAddr: "localhost:8080", Level: 1, Stage: 1, Founders: "1,2,3", PeerAddr: "10.0.0.2:60001",
			SeedDigest: strings.Repeat("0f", 32), SeedFloor: 1_790_000_000_000_000_000,
		},
		"layout": {
			NodeID: 2, Incarnation: 0x2222, Boot: 1, Session: 0xA2, VotersHash: 0x0123456789ABCDEF, TickNanos: 10_000_000,
			ClientAddr: "localhost:8080", Level: 1, Stage: 1, Founders: "1,2,3", PeerAddr: "10.0.0.2:60001", Layout: "41/5/5/12@1288834974657",
		},
		"configured": {
			ClusterID: 77, NodeID: 3, Incarnation: 0x3333, Boot: 12, Session: 0xA3, VotersHash: 0x0123456789ABCDEF, Term: 9, LastIndex: 5000,
			TickNanos: 10_000_000, ClientAddr: "node3.example:8080", Level: 1, Stage: 3, PeerAddr: "10.0.0.3:60001", Configured: true,
		},
		"formed": {
			ClusterID: 77, NodeID: 3, Incarnation: 0x3333, Boot: 12, Session: 0xA3, VotersHash: 0x0123456789ABCDEF,
			Term: 9, LastIndex: 5000, TickNanos: 10_000_000, ClientAddr: "node3.example:8080", Level: 1, Stage: 3, PeerAddr: "10.0.0.3:60001",
		},
		"joining": {ClusterID: 77, NodeID: 4, Incarnation: 0x4444, Boot: 1, Session: 0xA4, TickNanos: 10_000_000},
		"max": {
			ClusterID: math.MaxUint64, NodeID: math.MaxUint64, Incarnation: math.MaxUint64, Boot: math.MaxUint64,
			Session: math.MaxUint64, VotersHash: math.MaxUint64, Term: math.MaxUint64, LastIndex: math.MaxUint64,
			TickNanos: math.MaxUint64, ClientAddr: strings.Repeat("x", clientAddrSizeMax),
		},
	}
}

// goldenCodes are all codes that a node sends.
var goldenCodes = []RefusalCode{
	RefusedVersion, RefusedWrongNode, RefusedNotMember, RefusedHello, RefusedWrongCluster, RefusedSettings, RefusedWiped, RefusedStale,
	RefusedCloned, "removed", "stopping", RefusedFormed, RefusedFounders, RefusedLevel,
}

func goldenReadings() map[string]interval.Reading {
	return map[string]interval.Reading{
		"told": {
			Cluster: 77, Term: 9, Earliest: 1_790_000_000_000_000_000, Latest: 1_790_000_000_000_120_000, Limit: 1_790_000_000_100_000_000,
		},
		"told-min": {Term: 1},
		"told-max": {Cluster: math.MaxUint64, Term: math.MaxUint64, Earliest: math.MaxInt64, Latest: math.MaxInt64, Limit: math.MaxInt64},
	}
}

func goldenMessages() map[string]*raftpb.Message {
	// of returns a message from node 1 to node 2 in term 7.
	of := func(kind raftpb.MessageType, set func(*raftpb.Message)) *raftpb.Message {
		m := &raftpb.Message{Type: kind.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(7))}
		if set != nil {
			set(m)
		}
		return m
	}
	at := func(m *raftpb.Message, logTerm, index uint64) {
		m.LogTerm, m.Index = new(logTerm), new(index)
	}
	entry := func(kind raftpb.EntryType, term, index uint64, data string) *raftpb.Entry {
		return &raftpb.Entry{Type: kind.Enum(), Term: new(term), Index: new(index), Data: []byte(data)}
	}
	largest := of(raftpb.MsgHeartbeat, func(m *raftpb.Message) {
		m.RejectHint = new(uint64(math.MaxUint64))
		m.Commit, m.Context = new(uint64(math.MaxUint64)), []byte("\xff\xff\xff\xff\xff\xff\xff\xff")
		m.From, m.To, m.Term = new(uint64(math.MaxUint64)), new(uint64(math.MaxUint64)), new(uint64(math.MaxUint64))
	})
	return map[string]*raftpb.Message{
		"heartbeat":           of(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Commit = new(uint64(41)) }),
		"heartbeat-context":   heartbeat(1, 2),
		"heartbeat-max":       largest,
		"heartbeat-unusual":   of(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Context = []byte("more than eight bytes") }),
		"heartbeat-response":  of(raftpb.MsgHeartbeatResp, nil),
		"heartbeat-r-context": heartbeatResp(2, 1),
		"heartbeat-r-unusual": of(raftpb.MsgHeartbeatResp, func(m *raftpb.Message) { m.Context = []byte("more than eight bytes") }),
		"append": of(raftpb.MsgApp, func(m *raftpb.Message) {
			at(m, 6, 40)
			m.Commit = new(uint64(39))
			m.Entries = []*raftpb.Entry{
				entry(raftpb.EntryNormal, 7, 41, ""), entry(raftpb.EntryNormal, 7, 42, "a command"), entry(raftpb.EntryConfChangeV2, 7, 43, "a change"),
			}
		}),
		"append-nothing": of(raftpb.MsgApp, func(m *raftpb.Message) { at(m, 6, 40); m.Commit = new(uint64(40)) }),
		"appended":       of(raftpb.MsgAppResp, func(m *raftpb.Message) { m.Index, m.Commit = new(uint64(43)), new(uint64(40)) }),
		"append-refused": of(raftpb.MsgAppResp, func(m *raftpb.Message) {
			at(m, 5, 40)
			m.Reject, m.RejectHint = new(true), new(uint64(30))
		}),
		"vote":          of(raftpb.MsgVote, func(m *raftpb.Message) { at(m, 6, 40) }),
		"vote-transfer": of(raftpb.MsgVote, func(m *raftpb.Message) { at(m, 6, 40); m.Context = []byte("CampaignTransfer") }),
		"voted":         of(raftpb.MsgVoteResp, nil),
		"vote-refused":  of(raftpb.MsgVoteResp, func(m *raftpb.Message) { m.Reject = new(true) }),
		"pre-vote":      of(raftpb.MsgPreVote, func(m *raftpb.Message) { at(m, 6, 40) }),
		"pre-voted":     of(raftpb.MsgPreVoteResp, nil),
		"pre-refused":   of(raftpb.MsgPreVoteResp, func(m *raftpb.Message) { m.Reject = new(true) }),
		"timeout-now":   of(raftpb.MsgTimeoutNow, nil),
		"propose":       of(raftpb.MsgProp, func(m *raftpb.Message) { m.Entries = []*raftpb.Entry{{Data: []byte("a command")}} }),
		"snapshot": of(raftpb.MsgSnap, func(m *raftpb.Message) {
			m.Snapshot = &raftpb.Snapshot{Data: []byte("a state"), Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(40)), Term: new(uint64(6)),
				ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}, AutoLeave: new(false)},
			}}
		}),
	}
}

func TestGolden_EveryFrameEverSentIsRead(t *testing.T) {
	set := golden.Open(t, "testdata/golden")
	keep := func(kind, name string, g goldenFrame, frame []byte) {
		set.Keep(t, kind, name, func() ([]byte, any) { return frame, g })
	}
	for _, name := range sorted(goldenHellos()) {
		h := goldenHellos()[name]
		keep("hello", name, goldenFrame{Type: FrameHello, Hello: &h}, hello(t, FrameHello, h))
		keep("update", name, goldenFrame{Type: FrameUpdate, Hello: &h}, hello(t, FrameUpdate, h))
		keep("welcome", name, goldenFrame{Type: FrameWelcome, Hello: &h}, hello(t, FrameWelcome, h))
	}
	for _, code := range goldenCodes {
		r := Refusalf(code, "node %d is refused, and été says why", 3)
		keep("refusal", strings.ReplaceAll(string(code), "_", "-"), goldenFrame{Type: FrameRefusal, Refusal: r}, AppendRefusal(nil, r))
	}
	longest := Refusalf(RefusalCode(strings.Repeat("x", refusalCodeSizeMax)), "%s", strings.Repeat("x", refusalMessageSizeMax))
	keep("refusal", "max", goldenFrame{Type: FrameRefusal, Refusal: longest}, AppendRefusal(nil, longest))
	keep("sign", "ready", goldenFrame{Type: FrameReady}, AppendReady(nil))
	keep("sign", "ping", goldenFrame{Type: FramePing}, AppendPing(nil))
	clocks := map[string]int64{"clock": 1_790_000_000_000_000_000, "clock-zero": 0, "clock-min": math.MinInt64, "clock-max": math.MaxInt64}
	for _, name := range sorted(clocks) {
		now := clocks[name]
		keep("sign", name, goldenFrame{Type: FrameClock, Clock: now}, AppendClock(nil, now))
	}
	for _, name := range sorted(goldenReadings()) {
		r, nonce := goldenReadings()[name], uint64(0x0123456789ABCDEF)
		keep("interval", name, goldenFrame{Type: FrameClockTold, Nonce: nonce, Reading: new(goldenReading(r))}, AppendClockTold(nil, nonce, r))
	}
	keep("interval", "ask", goldenFrame{Type: FrameClockAsk, Nonce: math.MaxUint64}, AppendClockAsk(nil, math.MaxUint64))
	for _, name := range sorted(goldenMessages()) {
		frame := encoded(t, goldenMessages()[name])
		means, err := goldenMessage(goldenMessages()[name])
		if err != nil {
			t.Fatal(err)
		}
		keep("message", name, goldenFrame{Type: FrameType(frame[lengthSize]), Message: means}, frame)
	}
	keep("owner", "ask", goldenFrame{Type: FrameOwnerAsk, Nonce: math.MaxUint64, Round: 7}, AppendOwnerAsk(nil, math.MaxUint64, 7))
	keep("owner", "told", goldenFrame{Type: FrameOwnerTold, Nonce: 1, Round: 7, Fence: 1 << 40}, AppendOwnerTold(nil, 1, 7, 1<<40))
	for i, frame := range sent(t, goldenMessages()["propose"], 17) {
		keep("part", fmt.Sprint("propose-", i), goldenFrame{Type: frame.kind, Part: frame.payload}, frameOf(frame.kind, frame.payload))
	}
	for _, kind := range []string{"hello", "welcome", "update", "refusal", "sign", "interval", "message", "part", "owner"} {
		set.Check(t, kind, readGolden)
	}
}

func sorted[V any](samples map[string]V) []string {
	var names []string
	for name := range samples {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
