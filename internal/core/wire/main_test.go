package wire

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func hello(t testing.TB, kind FrameType, h Hello) []byte {
	t.Helper()
	b, err := AppendHello(nil, kind, h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encoded(t testing.TB, m *raftpb.Message) []byte {
	t.Helper()
	b, err := AppendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func heartbeat(from, to uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(from), To: new(to),
		Term: new(uint64(3)), Commit: new(uint64(41)), RejectHint: new(uint64(11)), Context: []byte("\x01\x00\x00\x00\x00\x00\x00\x00"),
	}
}

func heartbeatResp(from, to uint64) *raftpb.Message {
	m := heartbeat(from, to)
	m.Type, m.Commit = raftpb.MsgHeartbeatResp.Enum(), nil
	return m
}

// appendOf is a MsgApp with one entry of size bytes.
func appendOf(from, to uint64, size int) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(from), To: new(to), Term: new(uint64(3)),
		LogTerm: new(uint64(3)), Index: new(uint64(8)), Commit: new(uint64(8)),
		Entries: []*raftpb.Entry{{Term: new(uint64(3)), Index: new(uint64(9)), Data: make([]byte, size)}},
	}
}
