package storage_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/host/storage"
)

// script is a sequence of Saves with every kind of write.
func script() []storage.Write {
	return []storage.Write{
		{Entries: entries(1, 30, 1), HardState: hardState(1, 7, 10)},
		{ClusterID: 5},
		{Compact: snapshot(8, 1, "compacted")},
		{Entries: entries(20, 200, 2), HardState: hardState(2, 1, 19)},
		{HardState: hardState(3, 2, 150)},
		{Compact: snapshot(150, 2, "compacted again")},
		{Snapshot: snapshot(300, 4, "from the leader")},
		{Entries: entries(301, 303, 4), HardState: hardState(4, 2, 302)},
	}
}

func TestStore_CrashBetweenOrDuringSavesLosesNothing(t *testing.T) {
	dir := t.TempDir()
	var during []byte
	o := options(dir)
	o.BeforeCommit = func() error { during = readFile(t, dir); return nil }
	s, saved := open(t, o)
	copied := t.TempDir()
	recover := func(image []byte) storage.Recovered {
		t.Helper()
		writeFile(t, copied, image)
		s, r := open(t, options(copied))
		closeStore(t, s)
		return r
	}
	if !recover(during).Fresh {
		t.Fatal("a crash before the first commit did not leave a fresh directory")
	}
	for i, w := range script() {
		save(t, s, w)
		wantSame(t, recover(during), saved)
		after := recover(readFile(t, dir))
		if difference(after, saved) == "" {
			t.Fatalf("write %d changed nothing", i)
		}
		saved = after
	}
}

// TestStore_CrashDuringACommitKeepsTheStateBefore builds files that a crash can leave behind:
// any of the pages written before the first fdatasync, in any order, each torn anywhere, while
// the meta pages are still the old ones.
func TestStore_CrashDuringACommitKeepsTheStateBefore(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	s, saved := open(t, options(dir))
	before := readFile(t, dir)
	for _, w := range script() {
		save(t, s, w)
		after := readFile(t, dir)
		for range 40 {
			writeFile(t, copied, tear(random, before, after))
			r, err := storage.Peek(copied)
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, r, saved)
		}
		writeFile(t, copied, after)
		saved, _ = storage.Peek(copied)
		before = after
	}
}

// tear returns before with some of the changes that lead to after, except those
// of the two meta pages.
func tear(random *rand.Rand, before, after []byte) []byte {
	page := os.Getpagesize()
	image := make([]byte, max(len(before), len(after)))
	copy(image, before)
	for at := 2 * page; at < len(after); at += page {
		switch random.IntN(3) {
		case 0:
			copy(image[at:at+page], after[at:at+page])
		case 1:
			copy(image[at:at+page], after[at:at+random.IntN(page/512)*512])
		}
	}
	if random.IntN(2) == 0 { // the file may not have grown yet
		image = image[:len(before)]
	}
	return image
}

func TestStore_ResumesAnInterruptedCreation(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	o.BeforeCommit = func() error { return errors.New("power cut") }
	if _, _, err := storage.Open(o); !errors.Is(err, storage.ErrFailed) {
		t.Fatalf("Open: %v", err)
	}
	draft := filepath.Join(dir, storage.FileName+".new")
	if err := os.WriteFile(draft, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, r := open(t, options(dir))
	if !r.Fresh || r.Identity.Boot != 1 {
		t.Fatalf("recovered %+v", r)
	}
	_, again := reopen(t, s, dir)
	wantSame(t, again, r)

	// A creation that was interrupted before the rename.
	dir = t.TempDir()
	draft = filepath.Join(dir, storage.FileName+".new")
	if err := os.WriteFile(draft, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, r := open(t, options(dir)); !r.Fresh {
		t.Fatalf("recovered %+v", r)
	}
	if _, err := os.Stat(draft); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the draft is still there: %v", err)
	}
}

// TestStore_IsSoundToBoltItself compares the check of pages.go with bbolt's own.
func TestStore_IsSoundToBoltItself(t *testing.T) {
	for _, deep := range []bool{false, true} {
		dir, _ := specimen(t, deep)
		db, err := bbolt.Open(filepath.Join(dir, storage.FileName), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		err = db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

const victimDir = "STORAGE_TEST_VICTIM_DIR"

// TestVictim is not a test: it is the process that the next test kills. It saves entries
// without end and prints the index of each.
func TestVictim(t *testing.T) {
	dir := os.Getenv(victimDir)
	if dir == "" {
		t.Skip("only runs as a child of TestStore_KeepsWhatAKilledProcessAcknowledged")
	}
	s, r := open(t, options(dir))
	index := r.HardState.GetCommit()
	if n := len(r.Entries); n > 0 {
		index = r.Entries[n-1].GetIndex()
	}
	for {
		index++
		w := storage.Write{Entries: []*raftpb.Entry{entry(index, 1, "data")}, HardState: hardState(1, 1, index)}
		if index%20 == 0 {
			w.Compact = snapshot(index, 1, "state")
		}
		save(t, s, w)
		fmt.Println("saved", index)
	}
}

func TestStore_KeepsWhatAKilledProcessAcknowledged(t *testing.T) {
	dir := t.TempDir()
	for kill := range 3 {
		acknowledged := runVictim(t, dir, 15+9*kill)
		s, r := open(t, options(dir))
		last := r.Snapshot.GetMetadata().GetIndex() + uint64(len(r.Entries))
		if last != acknowledged && last != acknowledged+1 {
			t.Fatalf("acknowledged %d, recovered %d", acknowledged, last)
		}
		if r.HardState.GetCommit() != last {
			t.Fatalf("commit %d of %d", r.HardState.GetCommit(), last)
		}
		closeStore(t, s)
	}
}

// runVictim starts a victim, kills it after a number of Saves, and returns the last index that
// it acknowledged.
func runVictim(t *testing.T, dir string, saves int) (acknowledged uint64) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, seen := bufio.NewScanner(out), 0
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "saved %d", &acknowledged); err == nil {
			seen++
		}
		if seen == 1 {
			if _, _, err := storage.Open(options(dir)); !errors.Is(err, storage.ErrInUse) {
				t.Errorf("Open while another process has it: %v", err)
			}
		}
		if seen == saves {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if seen < saves {
		t.Fatalf("the victim ended after %d saves: %s", seen, stderr.String())
	}
	return acknowledged
}
