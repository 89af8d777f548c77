package node_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/node"
)

func TestNeedsPeers_UntilTheClusterIsFormed(t *testing.T) {
	snapshot := func(index uint64, addrs ...string) *raftpb.Snapshot {
		state := oracle.State{}
		for i, addr := range addrs {
			state.AddMember(oracle.Member{ID: uint64(i + 1), PeerAddr: addr})
		}
		return &raftpb.Snapshot{Data: state.Append(nil), Metadata: &raftpb.SnapshotMetadata{Index: new(index), Term: new(uint64(1))}}
	}
	entries := []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(2))}}
	for name, tt := range map[string]struct {
		rec  storage.Recovered
		want bool
	}{
		"an empty directory":                {storage.Recovered{}, true},
		"prepared, and not formed":          {storage.Recovered{Snapshot: snapshot(1, "", "")}, true},
		"just formed":                       {storage.Recovered{Snapshot: snapshot(1, "", ""), Entries: entries}, false},
		"one has not registered":            {storage.Recovered{Snapshot: snapshot(9, "a:1", "")}, false},
		"all have registered":               {storage.Recovered{Snapshot: snapshot(9, "a:1", "b:1")}, false},
		"all have registered, with entries": {storage.Recovered{Snapshot: snapshot(9, "a:1"), Entries: entries}, false},
	} {
		if got, err := node.NeedsPeers(tt.rec); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tt.want)
		}
	}
	bad := &raftpb.Snapshot{Data: []byte("x"), Metadata: &raftpb.SnapshotMetadata{}}
	if _, err := node.NeedsPeers(storage.Recovered{Snapshot: bad}); err == nil {
		t.Error("a snapshot that cannot be decoded is no error")
	}
}
