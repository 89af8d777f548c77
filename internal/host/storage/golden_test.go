package storage_test

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isotone/isotone/internal/check/golden"
	"github.com/isotone/isotone/internal/host/storage"
)

// TestGolden_EveryDirectoryEverWrittenIsRead reads data files as a crash leaves them, of single
// nodes and of clusters, with and without snapshots, entries and worker leases. The test of
// package replica writes them and runs replicas on them.
func TestGolden_EveryDirectoryEverWrittenIsRead(t *testing.T) {
	set := golden.Open(t, "testdata/golden")
	items := set.Items("directory")
	if len(items) == 0 {
		t.Error("there are none")
	}
	for _, i := range items {
		var means struct{ Identity storage.Identity }
		if err := json.Unmarshal(i.Want, &means); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		writeFile(t, dir, i.Bytes)
		s, r, err := storage.Open(storage.Options{Dir: dir, NodeID: means.Identity.NodeID})
		if err != nil {
			t.Errorf("%s: %v", &i, err)
			continue
		}
		i.Compare(t, plain(t, r))
		// By now this version has written to it as well.
		closeStore(t, s)
		_, again := open(t, storage.Options{Dir: dir, NodeID: means.Identity.NodeID})
		wantSame(t, again, r)
	}
}

// TestGolden_EveryJournalEverWrittenIsRead reads journals as a crash leaves them.
func TestGolden_EveryJournalEverWrittenIsRead(t *testing.T) {
	set := golden.Open(t, "testdata/golden")
	for name, write := range map[string]func() []byte{
		"fresh": func() []byte {
			defer storage.SetSpareSectors(8)()
			dir := t.TempDir()
			open(t, options(dir))
			return readFile(t, dir)
		},
		"records": func() []byte {
			file, _, _ := journalSpecimen(t, longWrite())
			return file
		},
		"torn": func() []byte { // the second of three sectors of the last record is missing
			file, _, _ := journalSpecimen(t, longWrite())
			payloads := journalPayloads(file)
			before := buildJournal(0xABCDEF, 24, payloads[:len(payloads)-1]...)
			after := buildJournal(0xABCDEF, 24-len(payloads[len(payloads)-1])/sectorContentBytes-1, payloads...)
			return torn(before, after, changedSectors(before, after), func(i int) bool { return i != 1 })
		},
	} {
		set.Keep(t, "journal", name, func() ([]byte, any) {
			file := write()
			r, err := storage.ReadJournal(file)
			if err != nil {
				t.Fatal(err)
			}
			return file, plain(t, r)
		})
	}
	set.Check(t, "journal", func(file []byte) (any, error) {
		dir := t.TempDir()
		writeFile(t, dir, file)
		r, err := storage.Peek(dir)
		if err != nil {
			return nil, err
		}
		s, again := open(t, options(dir))
		again.Identity.Boot--
		wantSame(t, again, r)
		closeStore(t, s)
		return plain(t, r), nil
	})
}

// plain returns what was recovered in the form of the golden set.
func plain(t *testing.T, r storage.Recovered) any {
	t.Helper()
	entries := []any{}
	for _, e := range r.Entries {
		entries = append(entries, map[string]any{
			"Index": e.GetIndex(), "Term": e.GetTerm(), "Type": e.GetType().String(), "Data": hex.EncodeToString(e.GetData()),
		})
	}
	meta, h := r.Snapshot.GetMetadata(), r.HardState
	conf, err := protojson.Marshal(meta.GetConfState())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"Identity": r.Identity, "Entries": entries,
		"HardState": map[string]any{"Term": h.GetTerm(), "Vote": h.GetVote(), "Commit": h.GetCommit()},
		"Snapshot": map[string]any{
			"Index": meta.GetIndex(), "Term": meta.GetTerm(), "Data": hex.EncodeToString(r.Snapshot.GetData()), "Conf": json.RawMessage(conf),
		},
	}
}
