package replica_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/check/golden"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/storage"
)

// The golden sets have every membership change that a log may hold, and whole data
// directories as a crash leaves them. A replica of a later version goes on from them.
// The directories are made here, since it takes a replica to write them; they lie with
// package storage, whose test reads them as well.

// goldenStart is the wall clock when the golden directories were written, and some time
// before the one by which they are read.
const goldenStart = 1_790_000_000_000_000_000

const directories = "../../host/storage/testdata/golden"

// TestGolden_EveryMembershipChangeIsCarriedOut lets a member of three find the change in
// its log.
func TestGolden_EveryMembershipChangeIsCarriedOut(t *testing.T) {
	set := golden.Open(t, "testdata/golden")
	for i, name := range []string{"add-learner", "remove", "add-voter"} {
		set.Keep(t, "change", name, func() ([]byte, any) {
			b := writtenChanges(t)[i]
			means, err := readChange(t, b)
			if err != nil {
				t.Fatal(err)
			}
			return b, means
		})
	}
	set.Check(t, "change", func(b []byte) (any, error) { return readChange(t, b) })
}

// writtenChanges returns the data of the log entries of three changes.
func writtenChanges(t *testing.T) (data [][]byte) {
	w := newWorld(t)
	m := w.start(1, t.TempDir(), members(1))
	w.tick(5)
	for _, c := range []replica.MemberChange{
		{Kind: replica.AddLearner, Member: oracle.Member{ID: 4, PeerAddr: "10.0.0.4:60001"}},
		{Kind: replica.Remove, Member: oracle.Member{ID: 4}},
	} {
		w.turn(m, &replica.Input{Change: &c})
		w.settle()
	}
	change, err := proto.Marshal(&raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(5))}},
		Context: oracle.AppendMember(nil, oracle.Member{ID: 5}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { data = append(data, change) }() // without a node to make a voter, as it would be
	for _, e := range m.proposals {
		if e.GetType() == raftpb.EntryConfChangeV2 {
			data = append(data, e.GetData())
		}
	}
	return data
}

// readChange tells what a change says, and which members there are after it.
func readChange(t *testing.T, b []byte) (any, error) {
	cc := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(b, cc); err != nil {
		return nil, err
	}
	m, err := oracle.DecodeMember(cc.GetContext())
	if err != nil {
		return nil, err
	}
	w, dir := newWorld(t), t.TempDir()
	w.start(1, dir, nil)
	state := oracle.State{Members: members(3)}
	err = w.machines[1].store.Save(storage.Write{
		Snapshot: &raftpb.Snapshot{Data: state.Append(nil), Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
		}},
		Entries:   []*raftpb.Entry{{Type: raftpb.EntryConfChangeV2.Enum(), Index: new(uint64(2)), Term: new(uint64(1)), Data: b}},
		HardState: &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(2))},
	})
	if err != nil {
		return nil, err
	}
	w.stop(1)
	r := w.start(1, dir, nil)
	w.settle()
	change := struct{ Type, NodeID string }{cc.GetChanges()[0].GetType().String(), fmt.Sprint(cc.GetChanges()[0].GetNodeId())}
	return map[string]any{"Changes": len(cc.GetChanges()), "Change": change, "Member": m, "Members": r.Members(), "Voters": r.Voters()}, nil
}

// goldenDirectories makes the data files of the golden directories, by name.
func goldenDirectories(t *testing.T) map[string][]byte {
	files := map[string][]byte{}
	w := newWorld(t)
	w.start(2, t.TempDir(), members(3))
	files["unelected-2"] = w.stop(2)
	w.start(4, t.TempDir(), nil)
	files["joining-4"] = w.stop(4)

	alone := t.TempDir()
	w.workers = 2
	for range 3 {
		w.start(1, alone, members(1))
		w.tick(50)
		files["alone-1"] = w.stop(1)
	}
	maps.Copy(files, clusterDirectories(t))
	maps.Copy(files, midwayDirectories(t))
	return files
}

// midwayDirectories lets three nodes crash with all of their log, while they are about to
// admit a fourth: the change is written on two of them, and committed nowhere.
func midwayDirectories(t *testing.T) map[string][]byte {
	w := newWorld(t)
	w.snapshotEvery, w.workers = 1000, 2
	for id := range uint64(3) {
		w.start(id+1, t.TempDir(), members(3))
	}
	w.greet()
	leader := w.leader()
	w.tick(30)
	w.turn(leader, &replica.Input{Behind: 0b10})
	w.settle()
	w.tick(4)
	c := replica.MemberChange{Kind: replica.AddLearner, Member: oracle.Member{ID: 4, PeerAddr: "10.0.0.4:60001"}}
	w.turn(leader, &replica.Input{Change: &c})
	for _, m := range w.list() {
		if m != leader {
			w.turn(m, &replica.Input{Messages: m.inbox})
			break
		}
	}
	files := map[string][]byte{}
	for id := range uint64(3) {
		files[fmt.Sprintf("midway-%d", id+1)] = w.stop(id + 1)
	}
	return files
}

// clusterDirectories lets three nodes restart, take a fourth in as a learner, make it a
// voter, and crash together.
func clusterDirectories(t *testing.T) map[string][]byte {
	w := newWorld(t)
	var dirs []string
	for id := range uint64(3) {
		dirs = append(dirs, t.TempDir())
		w.workers = int(id)
		w.start(id+1, dirs[id], members(3))
	}
	w.greet()
	w.leader()
	w.tick(40)
	w.stop(2)
	w.tick(10)
	w.workers = 1
	w.start(2, dirs[1], nil)
	w.greet()
	w.tick(20)
	w.start(4, t.TempDir(), nil)
	for _, kind := range []replica.MemberChangeKind{replica.AddLearner, replica.AddVoter} {
		c := replica.MemberChange{Kind: kind, Member: oracle.Member{ID: 4, PeerAddr: "peer4:1"}}
		w.turn(w.leader(), &replica.Input{Change: &c})
		w.settle()
		w.greet()
		w.tick(31)
	}
	w.turn(w.leader(), &replica.Input{Transfer: true})
	w.settle()
	w.tick(33)
	files := map[string][]byte{}
	for id := range uint64(4) {
		if n := len(w.machines[id+1].WorkerLeases()); n < 4 {
			t.Fatalf("node %d knows %d worker leases", id+1, n)
		}
		files[fmt.Sprintf("cluster-%d", id+1)] = w.stop(id + 1)
	}
	return files
}

// directory puts a golden data file into a directory of its own.
func directory(t *testing.T, file []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, storage.FileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readDirectory tells what storage recovers from a data file.
func readDirectory(t *testing.T, file []byte, id uint64) any {
	t.Helper()
	s, found, err := storage.Open(storage.Options{Dir: directory(t, file), NodeID: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	entries := []any{}
	for _, e := range found.Entries {
		entries = append(entries, map[string]any{"Index": e.GetIndex(), "Term": e.GetTerm(), "Type": e.GetType().String(), "Data": hex.EncodeToString(e.GetData())})
	}
	meta := found.Snapshot.GetMetadata()
	conf, err := protojson.Marshal(meta.GetConfState())
	if err != nil {
		t.Fatal(err)
	}
	h := found.HardState
	return map[string]any{
		"Identity": found.Identity, "Entries": entries,
		"HardState": map[string]any{"Term": h.GetTerm(), "Vote": h.GetVote(), "Commit": h.GetCommit()},
		"Snapshot": map[string]any{
			"Index": meta.GetIndex(), "Term": meta.GetTerm(), "Data": hex.EncodeToString(found.Snapshot.GetData()), "Conf": json.RawMessage(conf),
		},
	}
}

// TestGolden_AReplicaGoesOnFromEveryDirectory: the nodes whose directories a crash left
// together serve again, above all that was reserved. Directories that are alone start.
func TestGolden_AReplicaGoesOnFromEveryDirectory(t *testing.T) {
	set := golden.Open(t, directories)
	var made map[string][]byte
	for _, name := range []string{"unelected-2", "joining-4", "alone-1",
		"cluster-1", "cluster-2", "cluster-3", "cluster-4", "midway-1", "midway-2", "midway-3"} {
		set.Keep(t, "directory", name, func() ([]byte, any) {
			if made == nil {
				made = goldenDirectories(t)
			}
			return made[name], readDirectory(t, made[name], nodeOf(t, name))
		})
	}
	groups := map[string][]golden.Item{}
	for _, i := range set.Items("directory") {
		group, _, _ := strings.Cut(i.Name, "-")
		group = fmt.Sprintf("level%d %s", i.Level, group)
		groups[group] = append(groups[group], i)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		t.Run(group, func(t *testing.T) {
			t.Parallel() // the disk takes most of the time
			goOn(t, groups[group])
		})
	}
}

// nodeOf returns the node ID at the end of a name.
func nodeOf(t *testing.T, name string) (id uint64) {
	t.Helper()
	_, text, _ := strings.Cut(name, "-")
	if _, err := fmt.Sscan(text, &id); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return id
}

// goOn starts the nodes of a group. If it is a quorum, they have to serve.
func goOn(t *testing.T, group []golden.Item) {
	w := newWorld(t)
	w.workers = 1
	var latest oracle.State
	var voters int
	for _, i := range group {
		m := w.start(nodeOf(t, i.Name), directory(t, i.Bytes), nil)
		if s := stateIn(t, m.found); s.Ceiling >= latest.Ceiling {
			latest = s
		}
		voters = max(voters, m.Voters())
	}
	w.greet()
	w.tick(60)
	if len(group) <= voters/2 || voters == 0 {
		return
	}
	if ts := w.timestamp(); ts.Time < latest.Ceiling {
		t.Errorf("I2: %v, and the ceiling was %d", ts, latest.Ceiling)
	}
	for range 1500 { // those that the crash left over end in 1,000 ticks
		w.tick(1)
		if !slices.ContainsFunc(w.list(), func(m *machine) bool { return len(m.Status().Workers) == 0 }) {
			break
		}
	}
	for _, m := range w.list() {
		held := m.Status().Workers
		if len(held) != 1 {
			t.Fatalf("worker leases %v, refused: %+v", held, m.Status().WorkersRefused)
		}
		for _, l := range latest.Workers {
			if l.Worker == held[0].Worker && held[0].Start < l.End {
				t.Errorf("I9: %+v was granted while %+v is", held[0], l)
			}
		}
	}
}

// stateIn returns what a directory holds.
func stateIn(t *testing.T, found storage.Recovered) oracle.State {
	t.Helper()
	s := oracle.State{}
	if found.Snapshot != nil {
		var err error
		if s, err = oracle.DecodeState(found.Snapshot.GetData()); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range found.Entries {
		if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || e.GetIndex() > found.HardState.GetCommit() {
			continue
		}
		c, err := oracle.DecodeCommand(e.GetData())
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(0, c)
	}
	return s
}
