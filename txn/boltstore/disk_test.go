package boltstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/storetest"
)

// machine is a machine with a file, whose fsyncs can be held or fail, and which can crash. While a sync is held
// or fails, bbolt shows the transaction already, and the disk has what was there before.
type machine struct {
	t    *testing.T
	file *bbolt.DB

	mu      sync.Mutex
	hold    chan struct{} // syncs wait until it is closed, if it is not nil
	broken  bool
	syncing chan struct{} // gets an element when a commit is held or has failed
	disk    []byte        // what a crash leaves, if that is not what the file has
}

var errSync = errors.New("input/output error")

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, syncing: make(chan struct{}, 1)}
	m.file = m.open(nil)
	d := acquire(m.file)
	d.commit = m.commit
	t.Cleanup(d.release)
	return m
}

// open opens a file with a content.
func (m *machine) open(content []byte) *bbolt.DB {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "file")
	if content != nil {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	file, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = file.Close() })
	return file
}

func (m *machine) commit(tx *bbolt.Tx) error {
	m.mu.Lock()
	hold, broken := m.hold, m.broken
	if (hold != nil || broken) && m.disk == nil {
		content, err := os.ReadFile(m.file.Path())
		if err != nil {
			m.t.Error(err)
		}
		m.disk = content
	}
	m.mu.Unlock()
	err := tx.Commit()
	if hold == nil && !broken || err != nil {
		return err
	}
	select {
	case m.syncing <- struct{}{}:
	default:
	}
	if hold != nil {
		<-hold
	}
	return errSync
}

func (m *machine) store(file *bbolt.DB) *Store {
	m.t.Helper()
	s, err := Open(file, Options{Name: "s"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.Close)
	return s
}

func (m *machine) startHolding() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = make(chan struct{})
}

func (m *machine) startBreaking() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = true
}

// crash ends the machine, and returns the file as the next start finds it.
func (m *machine) crash() *bbolt.DB {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	content := m.disk
	if content == nil {
		var err error
		if content, err = os.ReadFile(m.file.Path()); err != nil {
			m.t.Fatal(err)
		}
	}
	if m.hold != nil {
		close(m.hold)
	}
	return m.open(content)
}

func newFaults(t *testing.T) storetest.Faults {
	m := newMachine(t)
	return storetest.Faults{
		Store: m.store(m.file), Hold: m.startHolding, Break: m.startBreaking,
		FailOver: func() txn.Store { return m.store(m.crash()) },
	}
}

func TestStore_AnswersWithWhatIsOnTheDisk(t *testing.T) { storetest.RunDurable(t, newFaults) }

func set(next uint64) txn.Change { return txn.Change{Next: next, Lock: []byte("l")} }

// TestRead_WaitsForTheSync has readers of another store in the file, too, and one that gives up.
func TestRead_WaitsForTheSync(t *testing.T) {
	m := newMachine(t)
	writer, reader := m.store(m.file), m.store(m.file)
	m.startHolding()
	written := make(chan error, 1)
	go func() {
		_, err := writer.Write(t.Context(), []byte("k"), set(1))
		written <- err
	}()
	<-m.syncing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if row, _, err := reader.Read(ctx, []byte("k"), 1, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read during the sync of a write: %+v, %v", row, err)
	}
	read := make(chan error, 1)
	go func() {
		_, _, err := reader.Read(t.Context(), []byte("k"), 1, 0)
		read <- err
	}()
	close(m.hold)
	// The sync fails in the end, and that is final for both.
	for name, failed := range map[string]chan error{"write": written, "read": read} {
		if err := <-failed; !errors.Is(err, ErrFailed) {
			t.Errorf("the %s after the sync has failed: %v", name, err)
		}
	}
}

// refusesAfterAFailedSync returns what a store, another one in its file, and one that is opened later do after
// a sync has failed.
func refusesAfterAFailedSync(t *testing.T) (all []error) {
	m := newMachine(t)
	writer, other := m.store(m.file), m.store(m.file)
	m.startBreaking()
	_, err := writer.Write(t.Context(), []byte("k"), set(1))
	all = append(all, err)
	m.mu.Lock()
	m.broken = false // the system has forgotten
	m.mu.Unlock()
	for _, s := range []*Store{writer, other} {
		_, _, err = s.Read(t.Context(), []byte("k"), 1, 0)
		all = append(all, err)
		_, err = s.Scan(t.Context(), txn.Range{Limit: 1}, 1)
		all = append(all, err)
		_, err = s.Points(t.Context())
		all = append(all, err, s.Raise(t.Context(), txn.Points{Safe: 1}))
		_, err = s.Write(t.Context(), []byte("other"), set(1))
		all = append(all, err)
		s.Close()
	}
	_, err = Open(m.file, Options{Name: "later"})
	return append(all, err)
}

func TestStore_RefusesEverythingAfterAFailedSync(t *testing.T) {
	for i, err := range refusesAfterAFailedSync(t) {
		if !errors.Is(err, ErrFailed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// TestOpen_SyncsTheFile is about what a process has left in the file that was killed before it was synced.
func TestOpen_SyncsTheFile(t *testing.T) {
	m := newMachine(t)
	m.store(m.file).Close()
	m.startBreaking()
	if _, err := Open(m.file, Options{Name: "s"}); !errors.Is(err, ErrFailed) {
		t.Errorf("a store that exists was opened without a sync: %v", err)
	}
}

// TestDisk_IsForgottenWithItsLastStore keeps the list of files short.
func TestDisk_IsForgottenWithItsLastStore(t *testing.T) {
	file := (&machine{t: t}).open(nil)
	var stores []*Store
	for _, name := range []string{"a", "b"} {
		s, err := Open(file, Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	for i, s := range stores {
		s.Close()
		s.Close()
		disks.mu.Lock()
		_, known := disks.of[file]
		disks.mu.Unlock()
		if last := i == len(stores)-1; known == last {
			t.Errorf("after %d of %d stores were closed, the file is known: %v", i+1, len(stores), known)
		}
	}
}
