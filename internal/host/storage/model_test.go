package storage_test

import (
	"errors"
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/isotone/isotone/internal/host/storage"
)

// model is a Store in memory: the simplest implementation of [Write].
type model struct{ storage.Recovered }

func (m *model) snapshotIndex() uint64 { return m.Snapshot.GetMetadata().GetIndex() }
func (m *model) lastIndex() uint64     { return m.snapshotIndex() + uint64(len(m.Entries)) }

func (m *model) termAt(index uint64) uint64 {
	if index == m.snapshotIndex() {
		return m.Snapshot.GetMetadata().GetTerm()
	}
	return m.Entries[index-m.snapshotIndex()-1].GetTerm()
}

func (m *model) apply(w storage.Write) {
	if w.Snapshot != nil {
		m.Snapshot, m.Entries = w.Snapshot, nil
		m.liftCommit()
	}
	if len(w.Entries) > 0 {
		keep := w.Entries[0].GetIndex() - m.snapshotIndex() - 1
		m.Entries = append(m.Entries[:keep:keep], w.Entries...)
	}
	if w.HardState != nil {
		m.HardState = w.HardState
		m.liftCommit()
	}
	if w.Compact != nil {
		m.Entries = m.Entries[w.Compact.GetMetadata().GetIndex()-m.snapshotIndex():]
		m.Snapshot = w.Compact
		m.liftCommit()
	}
	if w.ClusterID != 0 {
		m.Identity.ClusterID = w.ClusterID
	}
}

func (m *model) liftCommit() {
	if m.Snapshot == nil {
		return
	}
	if m.HardState == nil {
		m.HardState = hardState(m.Snapshot.GetMetadata().GetTerm(), 0, 0)
	}
	commit := max(m.HardState.GetCommit(), m.snapshotIndex())
	m.HardState = hardState(m.HardState.GetTerm(), m.HardState.GetVote(), commit)
}

// draw returns a write that raft could make, and applies it.
func (m *model) draw(t *rapid.T) storage.Write {
	var w storage.Write
	step := func(part storage.Write) { m.apply(part) }
	if rapid.IntRange(0, 9).Draw(t, "receive") == 0 {
		w.Snapshot = snapshot(m.lastIndex()+rapid.Uint64Range(1, 30).Draw(t, "ahead"), m.termAt(m.lastIndex())+1,
			rapid.StringN(0, 50, -1).Draw(t, "state"))
		step(storage.Write{Snapshot: w.Snapshot})
	}
	if rapid.Bool().Draw(t, "append") {
		w.Entries = m.drawEntries(t)
		step(storage.Write{Entries: w.Entries})
	}
	if rapid.Bool().Draw(t, "vote") {
		w.HardState = hardState(rapid.Uint64Range(0, 99).Draw(t, "term"), rapid.Uint64Range(0, 3).Draw(t, "for"),
			rapid.Uint64Range(m.HardState.GetCommit(), m.lastIndex()).Draw(t, "commit"))
		step(storage.Write{HardState: w.HardState})
	}
	if rapid.IntRange(0, 3).Draw(t, "compact") == 0 && m.HardState.GetCommit() > m.snapshotIndex() {
		index := rapid.Uint64Range(m.snapshotIndex()+1, m.HardState.GetCommit()).Draw(t, "at")
		w.Compact = snapshot(index, m.termAt(index), rapid.StringN(0, 50, -1).Draw(t, "state"))
		step(storage.Write{Compact: w.Compact})
	}
	if m.Identity.ClusterID == 0 && rapid.IntRange(0, 5).Draw(t, "name") == 0 {
		w.ClusterID = rapid.Uint64Min(1).Draw(t, "cluster")
		step(storage.Write{ClusterID: w.ClusterID})
	}
	return w
}

// drawEntries returns entries that follow some entry which is not committed.
func (m *model) drawEntries(t *rapid.T) (es []*raftpb.Entry) {
	first := rapid.Uint64Range(max(m.HardState.GetCommit(), m.snapshotIndex()), m.lastIndex()).Draw(t, "after") + 1
	term := m.termAt(first - 1)
	count := rapid.OneOf(rapid.Uint64Range(1, 4), rapid.Uint64Range(1, 150)).Draw(t, "count")
	data := rapid.OneOf(rapid.StringN(0, 40, -1), rapid.StringN(3000, 5000, -1)).Draw(t, "data")
	for i := range count {
		if rapid.IntRange(0, 20).Draw(t, "election") == 0 {
			term++
		}
		es = append(es, entry(first+i, term, data[:int(i)*7%(len(data)+1)]))
	}
	es[0].Type = raftpb.EntryType(rapid.Int32Range(0, 2).Draw(t, "type")).Enum()
	return es
}

func TestStore_BehavesAsItsModel(t *testing.T) {
	defer storage.SetSpareSectors(100)()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "storage")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var fault error
		o := options(dir)
		o.BeforeCommit = func() error { return fault }
		s, r, err := storage.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		m := model{r}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			next := m
			var writes []storage.Write
			for range rapid.IntRange(0, 3).Draw(t, "writes") {
				writes = append(writes, next.draw(t))
			}
			if rapid.IntRange(0, 9).Draw(t, "fault") == 0 {
				fault = errors.New("fault")
			}
			if err := s.Save(writes...); err == nil {
				m = next
			} else if fault == nil {
				t.Fatal(err)
			}
			if fault == nil && !rapid.Bool().Draw(t, "reopen") {
				continue
			}
			fault = nil
			_ = s.Close()
			if s, r, err = storage.Open(o); err != nil {
				t.Fatal(err)
			}
			if d := difference(r, m.Recovered); d != "" {
				t.Fatalf("differs in %s:\n got %+v\nwant %+v", d, r, m.Recovered)
			}
		}
	})
}
