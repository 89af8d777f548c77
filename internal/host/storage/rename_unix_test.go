//go:build unix && !aix && !solaris

package storage_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestStore_LeavesASpareFileWhereNamesCannotBeExchanged: it shows that there is a data file.
func TestStore_LeavesASpareFileWhereNamesCannotBeExchanged(t *testing.T) {
	defer storage.RenameOnly()()
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	for start := range 3 {
		var r storage.Recovered
		if s, r = reopen(t, s, dir); r.Fresh || r.Identity.Boot != uint64(start+2) {
			t.Fatalf("%+v", r)
		}
	}
	save(t, s, script()[0])
	closeStore(t, s)
	if i := imageOf(t, dir); i.spare == nil {
		t.Error("there is no spare file")
	}
	if err := os.Remove(dir + "/" + storage.FileName); err != nil {
		t.Fatal(err)
	}
	if err := storage.CheckNew(dir); err == nil {
		t.Error("nobody notices that the data file is gone")
	}
}

// TestStore_CreatesNothingWhereAnotherProcessDoes, even if somebody has deleted the file that both lock.
func TestStore_CreatesNothingWhereAnotherProcessDoes(t *testing.T) {
	dir := t.TempDir()
	removeLock := func() {
		if err := os.Remove(dir + "/isotone.lock"); err != nil {
			t.Fatal(err)
		}
	}
	var during, after error
	first := storage.WithSteps(options(dir), func(step string) {
		switch step {
		case "file synced":
			if during == nil {
				removeLock()
				_, _, during = storage.Open(options(dir))
			}
		case "file renamed":
			removeLock()
			_, _, after = storage.Open(options(dir))
		}
	})
	s, r := open(t, first)
	for _, err := range []error{during, after} {
		if !errors.Is(err, storage.ErrInUse) {
			t.Errorf("%v", err)
		}
	}
	save(t, s, script()[0])
	_, again := reopen(t, s, dir)
	m := model{r}
	m.apply(script()[0])
	wantSame(t, again, m.Recovered)
}

// TestStore_DoesNotGoOnInAFileThatWasReplaced while it waited for the lock of that file.
func TestStore_DoesNotGoOnInAFileThatWasReplaced(t *testing.T) {
	defer storage.RenameOnly()()
	defer storage.SetSpareSectors(8)()
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	if err := os.Remove(dir + "/isotone.lock"); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	waiting := make(chan struct{})
	restore := storage.OnWait(sync.OnceFunc(func() { close(waiting) }))
	defer restore()
	go func() {
		_, _, err := storage.Open(options(dir))
		second <- err
	}()
	<-waiting
	for term := range uint64(20) { // some need a new file
		save(t, s, storage.Write{HardState: &raftpb.HardState{Term: new(term + 1), Vote: new(uint64(0)), Commit: new(uint64(0))}})
	}
	if err := <-second; !errors.Is(err, storage.ErrInUse) {
		t.Errorf("%v", err)
	}
	_ = os.Remove(dir + "/isotone.lock")
}
