package storage_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestRecord_EncodingNeverChanges pins format 1: another encoding needs another
// format number.
func TestRecord_EncodingNeverChanges(t *testing.T) {
	identity := storage.Identity{ClusterID: 1, NodeID: 2, Incarnation: 3, Boot: 4}
	state := storage.State{HasHard: true, Term: 1, Vote: 2, Commit: 7, SnapshotIndex: 4, SnapshotTerm: 5, Last: 8, LastTerm: 9}
	for name, test := range map[string]struct {
		got  []byte
		want string
	}{
		"identity": {storage.EncodeIdentity(identity), "0000000000000001000000000000000200000000000000030000000000000004"},
		"state": {storage.EncodeState(state), "01" + "0000000000000000" +
			"0000000000000001" + "0000000000000002" + "0000000000000007" +
			"0000000000000004" + "0000000000000005" + "0000000000000008" + "0000000000000009" +
			"000000000000000000000000000000000000000000000000"},
		"entry": {storage.EncodeEntry(entry(6, 5, "hi")), "0000000000000005" + "00" + "6869"},
	} {
		if got := hex.EncodeToString(test.got); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(uint64(6), storage.EncodeEntry(entry(6, 5, "hi")))
	f.Add(uint64(0), []byte{})
	f.Fuzz(func(t *testing.T, index uint64, payload []byte) {
		e, err := storage.DecodeEntry(index, payload)
		if err != nil {
			return
		}
		if e.GetIndex() != index || !bytes.Equal(storage.EncodeEntry(e), payload) {
			t.Fatalf("%x decodes to %v", payload, e)
		}
	})
}

// FuzzDecodePayload tries the other payloads: whatever is accepted must be stable, and nothing
// may panic.
func FuzzDecodePayload(f *testing.F) {
	f.Add(storage.EncodeState(storage.State{HasHard: true, Term: 1, Commit: 2, Last: 2, LastTerm: 1}))
	f.Add(storage.EncodeIdentity(storage.Identity{NodeID: 1, Incarnation: 2, Boot: 3}))
	b, err := proto.Marshal(snapshot(3, 4, "data"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, payload []byte) {
		if again, err := storage.ReencodeState(payload); err == nil && !bytes.Equal(again, payload) {
			t.Fatalf("state %x becomes %x", payload, again)
		}
		if id, err := storage.DecodeIdentity(payload); err == nil && !bytes.Equal(storage.EncodeIdentity(id), payload) {
			t.Fatalf("identity %x decodes to %+v", payload, id)
		}
		_, _ = storage.DecodeSnapshot(payload)
	})
}
