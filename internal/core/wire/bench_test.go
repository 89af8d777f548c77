package wire

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func TestHeartbeat_CostsNoAllocationToEncodeAndOneToDecode(t *testing.T) {
	m, buf := heartbeat(1, 2), make([]byte, 0, 128)
	if n := testing.AllocsPerRun(100, func() { buf, _ = AppendMessage(buf[:0], m) }); n != 0 {
		t.Errorf("encoding: %v allocations", n)
	}
	f := Frame{FrameHeartbeat, payload(t, buf)}
	if n := testing.AllocsPerRun(100, func() { sink, _ = ParseMessage(f) }); n != 1 {
		t.Errorf("decoding: %v allocations", n)
	}
}

var sink *raftpb.Message

func BenchmarkHeartbeatEncode(b *testing.B) {
	m, buf := heartbeat(1, 2), make([]byte, 0, 128)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = AppendMessage(buf[:0], m)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkHeartbeatDecode(b *testing.B) {
	frame := encoded(b, heartbeat(1, 2))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	var d Decoder
	for b.Loop() {
		d.Feed(frame)
		f, _, err := d.Next()
		if err != nil {
			b.Fatal(err)
		}
		sink, _ = ParseMessage(f)
		_ = CheckMessage(sink, 1, 2)
		_, _, _ = d.Next()
	}
}
