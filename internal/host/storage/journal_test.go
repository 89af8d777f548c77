package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestJournal_SyncsOnce counts what a Save costs: one write, one sync, and no change of the size.
func TestJournal_SyncsOnce(t *testing.T) {
	dir := t.TempDir()
	var steps []string
	s, _ := open(t, storage.WithSteps(options(dir), func(step string) { steps = append(steps, step) }))
	size := s.Size()
	for i := range uint64(50) {
		steps = nil
		save(t, s, storage.Write{Entries: entries(i+1, i+1, 1), HardState: hardState(1, 1, i)})
		if got := strings.Join(steps, ", "); got != "record written, record synced" {
			t.Fatalf("steps of a Save: %s", got)
		}
		if s.Size() != size {
			t.Fatalf("the size changed from %d to %d", size, s.Size())
		}
	}
}

// TestJournal_SyncsTheNamesBeforeItOverwritesTheSpareFile: if the process is killed between the
// exchange of names and their sync, the spare file is still the data file on the disk.
func TestJournal_SyncsTheNamesBeforeItOverwritesTheSpareFile(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	closeStore(t, s)
	var steps []string
	s, _ = open(t, storage.WithSteps(options(dir), func(step string) { steps = append(steps, step) }))
	save(t, s, storage.Write{Snapshot: snapshot(9, 2, strings.Repeat("h", 5<<20))})
	replaced := "file written, file synced, file renamed, directory synced"
	if got, want := strings.Join(steps, ", "), "directory synced, "+replaced+", "+replaced; got != want {
		t.Errorf("steps: %s\nwant:  %s", got, want)
	}
}

// TestJournal_StartsANewFileWhenItIsFull fills several files with small and large records.
func TestJournal_StartsANewFileWhenItIsFull(t *testing.T) {
	dir := t.TempDir()
	var files int
	o := storage.WithSteps(options(dir), func(step string) {
		if step == "directory synced" {
			files++
		}
	})
	s, r := open(t, o)
	m := model{r}
	files = 0
	for i := uint64(1); files < 4; i++ {
		w := storage.Write{Entries: []*raftpb.Entry{entry(i, 1, strings.Repeat("x", int(i*i*7%20_000)))}, HardState: hardState(1, 1, i)}
		if i%50 == 0 {
			w.Compact = snapshot(i-3, 1, strings.Repeat("s", int(i)))
		}
		save(t, s, w)
		m.apply(w)
		if i > 5000 {
			t.Fatalf("only %d new files", files)
		}
	}
	huge := storage.Write{Snapshot: snapshot(1_000_000, 2, strings.Repeat("h", 5<<20))}
	save(t, s, huge)
	m.apply(huge)
	s, r = reopen(t, s, dir)
	wantSame(t, r, m.Recovered)
	large := s.Size()
	for i := range uint64(3) { // it shrinks again with the state
		w := storage.Write{Snapshot: snapshot(1_000_001+i, 2, "small")}
		save(t, s, w)
		m.apply(w)
	}
	s, r = reopen(t, s, dir)
	wantSame(t, r, m.Recovered)
	if s.Size() > large/2 {
		t.Errorf("the file has %d bytes for a small state, and had %d for a large one", s.Size(), large)
	}
}

// TestJournal_AFailedReplacementIsFinal: the next Open finds what was saved before.
func TestJournal_AFailedReplacementIsFinal(t *testing.T) {
	dir := t.TempDir()
	s, r := open(t, options(dir))
	save(t, s, storage.Write{Entries: entries(1, 3, 1)})
	spare := filepath.Join(dir, spareName)
	if err := errors.Join(os.Remove(spare), os.Mkdir(spare, 0o700)); err != nil {
		t.Fatal(err)
	}
	failed := s.Save(storage.Write{Snapshot: snapshot(9, 2, strings.Repeat("h", 5<<20))})
	if !errors.Is(failed, storage.ErrFailed) || !strings.Contains(failed.Error(), spare) {
		t.Fatalf("Save: %v", failed)
	}
	if err := os.Remove(spare); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(storage.Write{HardState: hardState(1, 1, 1)}); err != failed { //nolint:errorlint // the very same error
		t.Fatalf("Save after a failure: %v", err)
	}
	_, got := reopen(t, s, dir)
	r.Entries = entries(1, 3, 1)
	wantSame(t, got, r)
}

// TestJournal_TakesNoOtherNameOfTheDataFileForASpare: it would overwrite what it replaces.
func TestJournal_TakesNoOtherNameOfTheDataFileForASpare(t *testing.T) {
	for name, link := range map[string]func(from, to string) error{"hard link": os.Link, "symbolic link": os.Symlink} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, r := open(t, options(dir))
			save(t, s, storage.Write{Entries: entries(1, 3, 1)})
			closeStore(t, s)
			path, spare := filepath.Join(dir, storage.FileName), filepath.Join(dir, spareName)
			if err := errors.Join(os.Remove(spare), link(path, spare)); err != nil {
				t.Fatal(err)
			}
			var during []byte
			s, got := open(t, storage.WithSteps(options(dir), func(step string) {
				if step == "file written" {
					during = readFile(t, dir)
				}
			}))
			defer closeStore(t, s)
			r.Entries = entries(1, 3, 1)
			wantSame(t, got, r)
			before, err := storage.ReadJournal(during)
			if err != nil {
				t.Fatal(err)
			}
			if wantSame(t, before, r); before.Identity.Boot != 1 {
				t.Error("the data file was overwritten")
			}
		})
	}
}

// TestJournal_AFailedStepIsFinal: a write, sync or rename fails. Nothing of the Save is
// acknowledged, and the next process finds it whole or not at all.
func TestJournal_AFailedStepIsFinal(t *testing.T) {
	small := storage.Write{Entries: entries(4, 5, 1), HardState: hardState(1, 1, 4)}
	large := storage.Write{Snapshot: snapshot(9, 2, strings.Repeat("h", 5<<20))}
	for step, w := range map[string]storage.Write{
		"record written": small, "record synced": small,
		"file written": large, "file synced": large, "file renamed": large, "directory synced": large,
	} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			var fault error
			failing := ""
			s, r := open(t, storage.WithFaults(options(dir), func(now string) error {
				if now != failing {
					return nil
				}
				return fault
			}))
			save(t, s, storage.Write{Entries: entries(1, 3, 1)})
			before := model{r}
			before.apply(storage.Write{Entries: entries(1, 3, 1)})
			fault, failing = errors.New("input/output error"), step
			failed := s.Save(w)
			if !errors.Is(failed, storage.ErrFailed) || !errors.Is(failed, fault) {
				t.Fatalf("Save: %v", failed)
			}
			failing = ""
			if err := s.Save(w); err != failed { //nolint:errorlint // the very same error
				t.Fatalf("Save after a failure: %v", err)
			}
			after := before
			after.apply(w)
			s, r = reopen(t, s, dir)
			if difference(r, before.Recovered) != "" && difference(r, after.Recovered) != "" {
				t.Fatalf("recovered %+v", r)
			}
			save(t, s, storage.Write{HardState: hardState(7, 7, 0)})
		})
	}
}
