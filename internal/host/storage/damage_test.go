package storage_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone/internal/host/storage"
)

func readFile(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, storage.FileName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, dir string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, storage.FileName), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantCorrupt checks that Open refuses the directory with a complete error, and leaves the
// file as it is.
func wantCorrupt(t testing.TB, dir string) *storage.CorruptError {
	t.Helper()
	before := readFile(t, dir)
	s, r, err := storage.Open(options(dir))
	if err == nil {
		_ = s.Close()
		t.Fatalf("Open accepted damaged data: %+v", r)
	}
	c, ok := errors.AsType[*storage.CorruptError](err)
	if !ok {
		t.Fatalf("Open: %v", err)
	}
	for _, want := range []string{c.Record, c.Reason, filepath.Join(dir, storage.FileName), "must not take part again", "leave the data of the other nodes alone"} {
		if want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if !bytes.Equal(before, readFile(t, dir)) {
		t.Error("Open changed a damaged file")
	}
	return c
}

// specimen returns a directory with every kind of record, closed. With deep, its
// log is a tree of several levels; otherwise it fits into the root page.
func specimen(t testing.TB, deep bool) (string, storage.Recovered) {
	t.Helper()
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 9, 1), HardState: hardState(1, 2, 5), ClusterID: 42})
	save(t, s, storage.Write{Compact: snapshot(4, 1, "state")})
	if deep {
		save(t, s, storage.Write{Entries: entries(10, 400, 2)})
	}
	save(t, s, storage.Write{HardState: hardState(3, 7, 8)})
	closeStore(t, s)
	r, err := storage.Peek(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, r
}

// edit changes the file through bbolt, as no disk fault could, and makes the state record
// consistent with it.
func edit(t testing.TB, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	editUnsealed(t, dir, func(tx *bbolt.Tx) error { return errors.Join(change(tx), storage.Reseal(tx)) })
}

func editUnsealed(t testing.TB, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, storage.FileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func putRecord(bucket string, key, payload []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).Put(key, storage.EncodeRecord(bucket, key, payload))
	}
}

func putState(s storage.State) func(*bbolt.Tx) error {
	return putRecord(storage.BucketMeta, []byte(storage.KeyState), storage.EncodeState(s))
}

func deleteRecord(bucket string, key []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Delete(key) }
}

// flipRecord changes one byte of a record, counted from its end.
func flipRecord(bucket string, key []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		record := bytes.Clone(b.Get(key))
		record[len(record)-1] ^= 1
		return b.Put(key, record)
	}
}

func copyRecord(bucket string, from, to []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		return b.Put(to, bytes.Clone(b.Get(from)))
	}
}

func TestStore_RefusesRottenRecord(t *testing.T) {
	for record, change := range map[string]func(*bbolt.Tx) error{
		"format":      flipRecord(storage.BucketMeta, []byte(storage.KeyFormat)),
		"identity":    flipRecord(storage.BucketMeta, []byte(storage.KeyIdentity)),
		"state":       flipRecord(storage.BucketMeta, []byte(storage.KeyState)),
		"snapshot":    flipRecord(storage.BucketMeta, []byte(storage.KeySnapshot)),
		"log entry 6": flipRecord(storage.BucketLog, storage.LogKey(6)),
	} {
		t.Run(record, func(t *testing.T) {
			dir, _ := specimen(t, false)
			edit(t, dir, change)
			if c := wantCorrupt(t, dir); !strings.Contains(c.Record, record) || !strings.Contains(c.Reason, "checksum") {
				t.Fatalf("wrong record or reason: %v", c)
			}
		})
	}
}

func TestStore_RefusesRecordsThatDoNotFitTogether(t *testing.T) {
	good := storage.State{HasHard: true, Term: 3, Vote: 7, Commit: 8, SnapshotIndex: 4, SnapshotTerm: 1, Last: 9, LastTerm: 1}
	with := func(change func(*storage.State)) func(*bbolt.Tx) error {
		s := good
		change(&s)
		return putState(s)
	}
	log := func(index, term uint64) func(*bbolt.Tx) error {
		return putRecord(storage.BucketLog, storage.LogKey(index), storage.EncodeEntry(entry(index, term, "")))
	}
	for name, test := range map[string]struct {
		change func(*bbolt.Tx) error
		reason string
	}{
		"an entry in another's place": {copyRecord(storage.BucketLog, storage.LogKey(5), storage.LogKey(6)), "log entry 6 * checksum"},
		"a record in another's place": {copyRecord(storage.BucketMeta, []byte(storage.KeyIdentity), []byte(storage.KeyState)), "record state * checksum"},
		"a gap in the log":            {deleteRecord(storage.BucketLog, storage.LogKey(7)), "log entry 8 * follows index 6"},
		"no first entry":              {deleteRecord(storage.BucketLog, storage.LogKey(5)), "log entry 6 * follows index 4"},
		"no last entry":               {deleteRecord(storage.BucketLog, storage.LogKey(9)), "log entry 8 * ends here"},
		"an entry too many":           {log(10, 1), "log entry 10 * ends here"},
		"an entry below the snapshot": {log(4, 1), "log entry 4 * overlap"},
		"a term that goes back":       {log(6, 0), "log entry 6 * below the term 1"},
		"a last term that differs":    {log(9, 2), "log entry 9 * ends here, in term 2"},
		"a key that is no index":      {putRecord(storage.BucketLog, []byte("abc"), nil), "log entry 616263 * no index"},
		"an entry of unknown type":    {putRecord(storage.BucketLog, storage.LogKey(6), []byte{0, 0, 0, 0, 0, 0, 0, 1, 9}), "log entry 6 * type 9"},
		"an entry cut short":          {putRecord(storage.BucketLog, storage.LogKey(6), []byte{0}), "log entry 6 * length"},
		"no snapshot":                 {deleteRecord(storage.BucketMeta, []byte(storage.KeySnapshot)), "record snapshot * missing"},
		"no state":                    {deleteRecord(storage.BucketMeta, []byte(storage.KeyState)), "record state * missing"},
		"no identity":                 {deleteRecord(storage.BucketMeta, []byte(storage.KeyIdentity)), "record identity * missing"},
		"no format":                   {deleteRecord(storage.BucketMeta, []byte(storage.KeyFormat)), "record format * missing"},
		"an identity of nobody":       {putRecord(storage.BucketMeta, []byte(storage.KeyIdentity), make([]byte, 32)), "record identity * zero"},
		"no snapshot in the snapshot": {putRecord(storage.BucketMeta, []byte(storage.KeySnapshot), []byte{0xFF}), "record snapshot * decoded"},
		"an unknown record":           {putRecord(storage.BucketMeta, []byte("extra"), nil), "extra * no such record"},
		"commit beyond the log":       {with(func(s *storage.State) { s.Commit = 10 }), "record state * commits index 10"},
		"commit before the snapshot":  {with(func(s *storage.State) { s.Commit = 3 }), "record state * commits index 3"},
		"another snapshot index":      {with(func(s *storage.State) { s.SnapshotIndex = 5 }), "record snapshot * should be at index 5"},
		"another snapshot term":       {with(func(s *storage.State) { s.SnapshotTerm = 0 }), "record snapshot * should be at index 4, term 0"},
		"a snapshot unknown to state": {with(func(s *storage.State) { s.SnapshotIndex, s.SnapshotTerm = 0, 0 }), "record snapshot * knows of none"},
		"a log before the snapshot":   {with(func(s *storage.State) { s.Last = 3 }), "record state * ends before the snapshot"},
		"no hard state":               {with(func(s *storage.State) { s.HasHard = false }), "record state * mark of a hard state"},
		"no log":                      {func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(storage.BucketLog)) }, "bucket \"log\" * missing"},
		"no records":                  {func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(storage.BucketMeta)) }, "bucket \"isotone\" * missing"},
		"an unknown bucket":           {func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("x")); return err }, "bucket \"x\" * no such bucket"},
		"nothing at all": {func(tx *bbolt.Tx) error {
			return errors.Join(tx.DeleteBucket([]byte(storage.BucketLog)), tx.DeleteBucket([]byte(storage.BucketMeta)))
		}, "bucket \"isotone\" * missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := specimen(t, false)
			edit(t, dir, test.change)
			c := wantCorrupt(t, dir)
			record, reason, _ := strings.Cut(test.reason, " * ")
			if !strings.Contains(c.Record, record) || !strings.Contains(c.Reason, reason) {
				t.Errorf("%v, want %q", c, test.reason)
			}
		})
	}
}

func TestStore_RefusesAnotherFormat(t *testing.T) {
	dir, _ := specimen(t, false)
	edit(t, dir, putRecord(storage.BucketMeta, []byte(storage.KeyFormat), storage.EncodeFormat(3)))
	edit(t, dir, putRecord(storage.BucketMeta, []byte("record of the future"), nil))
	_, _, err := storage.Open(options(dir))
	f, ok := errors.AsType[*storage.FormatError](err)
	if !ok || f.Have != 3 || f.Reads != storage.FormatNewest || !strings.Contains(err.Error(), "has format 3, and this version reads formats up to 2") {
		t.Fatalf("Open: %v", err)
	}
}

func TestStore_RefusesWhatIsNoDataFile(t *testing.T) {
	garbage := make([]byte, 64<<10)
	chaos := rand.NewChaCha8([32]byte{1})
	_, _ = chaos.Read(garbage)
	for name, content := range map[string][]byte{
		"empty": {}, "one byte": {1}, "zeros": make([]byte, 32<<10), "garbage": garbage, "text": []byte("hello\n"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, content)
			wantCorrupt(t, dir)
		})
	}
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, storage.FileName), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, _, err := storage.Open(options(dir)); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Fatalf("Open: %v", err)
		}
	})
	t.Run("data directory is a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{path, filepath.Join(path, "below")} {
			if _, _, err := storage.Open(options(dir)); err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("Open %s: %v", dir, err)
			}
		}
	})
}

func TestStore_RefusesAnUnreadableFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir, want := specimen(t, false)
	path := filepath.Join(dir, storage.FileName)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storage.Open(options(dir)); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, r := open(t, options(dir))
	wantSame(t, r, want)
}

func TestStore_RefusesAnOlderRecord(t *testing.T) {
	for name, change := range map[string]func(*bbolt.Tx) error{
		"log":      putRecord(storage.BucketLog, storage.LogKey(6), storage.EncodeEntry(entry(6, 1, "older"))),
		"snapshot": putRecord(storage.BucketMeta, []byte(storage.KeySnapshot), storage.EncodeSnapshot(snapshot(4, 1, "older"))),
		"identity": putRecord(storage.BucketMeta, []byte(storage.KeyIdentity),
			storage.EncodeIdentity(storage.Identity{NodeID: testNode, Incarnation: testIncarnation, Boot: 1})),
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := specimen(t, false)
			edit(t, dir, change)
			wantIntact(t, dir) // resealed: the record is valid
			dir, _ = specimen(t, false)
			editUnsealed(t, dir, func(tx *bbolt.Tx) error { return errors.Join(change(tx), storage.ResealTransaction(tx)) })
			if c := wantCorrupt(t, dir); !strings.Contains(c.Record, name) || !strings.Contains(c.Reason, "written last") {
				t.Errorf("%v", c)
			}
		})
	}
	t.Run("state", func(t *testing.T) {
		dir, _ := specimen(t, false)
		editUnsealed(t, dir, func(*bbolt.Tx) error { return nil })
		if c := wantCorrupt(t, dir); !strings.Contains(c.Record, "state") || !strings.Contains(c.Reason, "transaction") {
			t.Errorf("%v", c)
		}
	})
}

func wantIntact(t *testing.T, dir string) {
	t.Helper()
	if _, err := storage.Peek(dir); err != nil {
		t.Fatal(err)
	}
}
