package storage_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/host/storage"
)

const (
	testNode        = 7
	testIncarnation = 0xABCDEF
)

func entry(index, term uint64, data string) *raftpb.Entry {
	e := &raftpb.Entry{Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum()}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

func entries(first, last, term uint64) (es []*raftpb.Entry) {
	for i := first; i <= last; i++ {
		es = append(es, entry(i, term, strings.Repeat("x", int(i%40))))
	}
	return es
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

func snapshot(index, term uint64, data string) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: []byte(data), Metadata: &raftpb.SnapshotMetadata{
		Index: new(index), Term: new(term),
		ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 7}, AutoLeave: new(false)},
	}}
}

func options(dir string) storage.Options {
	return storage.Options{Dir: dir, NodeID: testNode, Incarnation: testIncarnation}
}

// open opens the directory and closes it when the test ends.
func open(t testing.TB, o storage.Options) (*storage.Store, storage.Recovered) {
	t.Helper()
	s, r, err := storage.Open(o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, r
}

func save(t testing.TB, s *storage.Store, writes ...storage.Write) {
	t.Helper()
	if err := s.Save(writes...); err != nil {
		t.Fatalf("Save: %v", err)
	}
}

func closeStore(t testing.TB, s *storage.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// reopen closes s and returns what the next Open finds.
func reopen(t testing.TB, s *storage.Store, dir string) (*storage.Store, storage.Recovered) {
	t.Helper()
	closeStore(t, s)
	return open(t, options(dir))
}

// difference returns how two recoveries differ, or "" if they hold the same data. Fresh and the
// boot count do not belong to the data.
func difference(got, want storage.Recovered) string {
	got.Identity.Boot, want.Identity.Boot = 0, 0
	switch {
	case got.Identity != want.Identity:
		return "identity"
	case (got.HardState == nil) != (want.HardState == nil) || !proto.Equal(got.HardState, want.HardState):
		return "hard state"
	case (got.Snapshot == nil) != (want.Snapshot == nil) || !proto.Equal(got.Snapshot, want.Snapshot):
		return "snapshot"
	case len(got.Entries) != len(want.Entries):
		return "number of entries"
	}
	for i := range got.Entries {
		if !proto.Equal(got.Entries[i], want.Entries[i]) {
			return "entry " + want.Entries[i].String()
		}
	}
	return ""
}

func wantSame(t testing.TB, got, want storage.Recovered) {
	t.Helper()
	if d := difference(got, want); d != "" {
		t.Fatalf("recovered data differs in %s:\n got %+v\nwant %+v", d, got, want)
	}
}

func TestStore_CreatesDirectoryForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	_, r := open(t, options(dir))
	if !r.Fresh || r.HardState != nil || r.Snapshot != nil || r.Entries != nil {
		t.Fatalf("a new directory recovered %+v", r)
	}
	want := storage.Identity{NodeID: testNode, Incarnation: testIncarnation, Boot: 1}
	if r.Identity != want {
		t.Fatalf("identity %+v, want %+v", r.Identity, want)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, storage.FileName): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), mode)
		}
	}
}

func TestStore_CountsEveryBootAndKeepsItsIncarnation(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	for boot := uint64(2); boot <= 4; boot++ {
		closeStore(t, s)
		o := options(dir)
		o.Incarnation = 0 // unneeded, and another one must not replace the first
		var r storage.Recovered
		s, r = open(t, o)
		if r.Fresh || r.Identity.Boot != boot || r.Identity.Incarnation != testIncarnation {
			t.Fatalf("boot %d: recovered %+v", boot, r)
		}
	}
}

func TestStore_StartsFromTheFirstSnapshot(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	first := snapshot(1, 1, "first")
	save(t, s, storage.Write{Snapshot: first, HardState: hardState(1, 0, 1), ClusterID: 99})
	_, r := reopen(t, s, dir)
	wantSame(t, r, storage.Recovered{
		Identity:  storage.Identity{ClusterID: 99, NodeID: testNode, Incarnation: testIncarnation},
		HardState: hardState(1, 0, 1), Snapshot: first,
	})
}

func TestStore_RecoversWhatWasSaved(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	conf := entry(4, 2, "conf")
	conf.Type = raftpb.EntryConfChangeV2.Enum()
	log := append(entries(1, 3, 2), conf)
	save(t, s,
		storage.Write{Entries: log[:2], HardState: hardState(2, 3, 1)},
		storage.Write{Entries: log[2:], ClusterID: 99},
		storage.Write{},
	)
	_, r := reopen(t, s, dir)
	wantSame(t, r, storage.Recovered{
		Identity:  storage.Identity{ClusterID: 99, NodeID: testNode, Incarnation: testIncarnation},
		HardState: hardState(2, 3, 1), Entries: log,
	})
}

func TestStore_ReplacesTheLogFromTheFirstEntryOn(t *testing.T) {
	dir := t.TempDir()
	s, first := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 9, 1)})
	save(t, s, storage.Write{Entries: entries(4, 5, 3)})
	_, r := reopen(t, s, dir)
	first.Entries = append(entries(1, 3, 1), entries(4, 5, 3)...)
	wantSame(t, r, first)
}

func TestStore_ReceivedSnapshotReplacesTheLogAndLiftsCommit(t *testing.T) {
	dir := t.TempDir()
	s, first := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 9, 1), HardState: hardState(1, 7, 2)})
	save(t, s, storage.Write{Snapshot: snapshot(6, 2, "leader"), Entries: entries(7, 8, 3)})
	_, r := reopen(t, s, dir)
	first.HardState = hardState(1, 7, 6)
	first.Snapshot = snapshot(6, 2, "leader")
	first.Entries = entries(7, 8, 3)
	wantSame(t, r, first)
}

func TestStore_FirstSnapshotBringsAHardState(t *testing.T) {
	dir := t.TempDir()
	s, first := open(t, options(dir))
	save(t, s, storage.Write{Snapshot: snapshot(6, 2, "leader")})
	_, r := reopen(t, s, dir)
	first.HardState, first.Snapshot = hardState(2, 0, 6), snapshot(6, 2, "leader")
	wantSame(t, r, first)
}

func TestStore_CompactDropsEntriesUpToTheSnapshot(t *testing.T) {
	dir := t.TempDir()
	s, first := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 500, 1), HardState: hardState(1, 7, 400)})
	save(t, s, storage.Write{Compact: snapshot(400, 1, "mine")})
	save(t, s, storage.Write{Compact: snapshot(300, 1, "too late, ignored")})
	// Raft may still send entries that were compacted; they are left out.
	save(t, s, storage.Write{Entries: entries(399, 502, 1)}, storage.Write{Entries: entries(2, 3, 1)})
	_, r := reopen(t, s, dir)
	first.HardState, first.Snapshot, first.Entries = hardState(1, 7, 400), snapshot(400, 1, "mine"), entries(401, 502, 1)
	wantSame(t, r, first)
}

func TestStore_RefusesWhatRaftCannotAskFor(t *testing.T) {
	tests := map[string]storage.Write{
		"does not follow":             {Entries: []*raftpb.Entry{entry(11, 2, ""), entry(13, 2, "")}},
		"would leave a gap":           {Entries: entries(12, 12, 2)},
		"below the term":              {Entries: entries(11, 11, 1)},
		"unknown type":                {Entries: []*raftpb.Entry{{Index: new(uint64(11)), Term: new(uint64(2)), Type: raftpb.EntryType(9).Enum()}}},
		"commit 11 is beyond":         {HardState: hardState(2, 0, 11)},
		"commit 8 is beyond":          {Entries: entries(6, 7, 3)},
		"snapshot 11 is beyond":       {Compact: snapshot(11, 2, "")},
		"the log has term 2":          {Compact: snapshot(7, 1, "")},
		"is not above the stored one": {Snapshot: snapshot(5, 2, "")},
		"belongs to cluster":          {ClusterID: 2},
	}
	for reason, write := range tests {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			s, first := open(t, options(dir))
			save(t, s, storage.Write{Entries: entries(1, 10, 2), HardState: hardState(2, 0, 8), Compact: snapshot(5, 2, "s"), ClusterID: 1})
			err := s.Save(write)
			if !errors.Is(err, storage.ErrFailed) || !strings.Contains(err.Error(), reason) {
				t.Fatalf("Save: %v", err)
			}
			_, r := reopen(t, s, dir)
			first.Identity.ClusterID = 1
			first.HardState, first.Snapshot, first.Entries = hardState(2, 0, 8), snapshot(5, 2, "s"), entries(6, 10, 2)
			wantSame(t, r, first)
		})
	}
}

func TestStore_RefusesOversizedWrites(t *testing.T) {
	fits := entry(1, 1, "")
	fits.Data = bytes.Repeat([]byte{1}, storage.EntryDataBytesMax)
	huge := entry(2, 1, "")
	huge.Data = bytes.Repeat([]byte{1}, storage.EntryDataBytesMax+1)
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	save(t, s, storage.Write{Entries: []*raftpb.Entry{fits}})
	err := s.Save(storage.Write{Entries: []*raftpb.Entry{huge}})
	limit, ok := errors.AsType[*storage.LimitError](err)
	if !ok || limit.Max != storage.EntryDataBytesMax || limit.Size != len(huge.Data) {
		t.Fatalf("Save of a huge entry: %v", err)
	}
	s, r := reopen(t, s, dir)
	if len(r.Entries) != 1 || !proto.Equal(r.Entries[0], fits) {
		t.Fatalf("recovered %d entries", len(r.Entries))
	}
	err = s.Save(storage.Write{Snapshot: snapshot(3, 1, strings.Repeat("s", storage.SnapshotBytesMax))})
	if _, ok := errors.AsType[*storage.LimitError](err); !ok {
		t.Fatalf("Save of a huge snapshot: %v", err)
	}
}

// BenchmarkStore_Save saves what a leader saves for a reservation.
func BenchmarkStore_Save(b *testing.B) {
	s, _ := open(b, options(b.TempDir()))
	var took []time.Duration
	for index := uint64(1); b.Loop(); index++ {
		w := storage.Write{
			Entries:   []*raftpb.Entry{entry(index, 1, "a reservation, encoded in few bytes")},
			HardState: hardState(1, 1, index-1),
		}
		if index%4096 == 0 {
			w.Compact = snapshot(index-1, 1, "state")
		}
		began := time.Now()
		save(b, s, w)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkStore_Open opens a directory with as many entries as lie between two snapshots. It is written
// anew then, as it is when it is full.
func BenchmarkStore_Open(b *testing.B) {
	dir := b.TempDir()
	s, _ := open(b, options(dir))
	var log []*raftpb.Entry
	for i := range uint64(4096) {
		log = append(log, entry(i+1, 1, "a reservation, encoded in few bytes"))
	}
	save(b, s, storage.Write{Entries: log})
	closeStore(b, s)
	for b.Loop() {
		s, _ := open(b, options(dir))
		closeStore(b, s)
	}
}
