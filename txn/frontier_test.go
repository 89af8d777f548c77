package txn_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

// group is a group of writers, as a cluster keeps it.
type group struct {
	oracle *oracle
	mu     sync.Mutex
	open   map[isotone.Timestamp64]bool // stamps that are not decided: true for a doubt
}

// groupStamp is a stamp of a group.
type groupStamp struct {
	group *group
	at    isotone.Timestamp
}

func (g *group) begin(ctx context.Context) (groupStamp, error) {
	t, err := g.oracle.Timestamp64(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.open[t] = false
	}
	return groupStamp{g, t.Timestamp()}, err
}

func (s groupStamp) Stamp() isotone.Timestamp { return s.at }

func (s groupStamp) Done() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	delete(s.group.open, isotone.Timestamp64From(s.at))
}

func (s groupStamp) Unknown() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	s.group.open[isotone.Timestamp64From(s.at)] = true
}

// frontier returns the frontier.
func (g *group) frontier() isotone.Timestamp {
	g.mu.Lock()
	defer g.mu.Unlock()
	if stamps := slices.Sorted(maps.Keys(g.open)); len(stamps) > 0 {
		return (stamps[0] - 1).Timestamp()
	}
	return g.oracle.last.Timestamp()
}

// seal ends the sessions of all writers: it has the stores refuse their stamps, and the frontier pass them.
func (g *group) seal(f *fixture) {
	f.Helper()
	fence, err := txn.NewFence(map[string]txn.Store{"s": f.store})
	if err == nil {
		err = fence.Seal(f.ctx, g.oracle.last.Timestamp())
	}
	if err != nil {
		f.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.open)
}

func newFrontierFixture(t *testing.T) (*fixture, *group) {
	g := &group{open: map[isotone.Timestamp64]bool{}}
	f := newFixture(t, func(o *txn.Options) { o.Frontier = txn.Frontier(g.begin) })
	g.oracle = f.oracle
	return f, g
}

// wantAt reads keys at a frontier, which must neither wait nor write.
func (f *fixture) wantAt(frontier isotone.Timestamp, pairs ...string) {
	f.Helper()
	db := f.open(func(o *txn.Options) {
		o.Sleep = func(context.Context, time.Duration) error {
			f.Error("a reader at the frontier has waited")
			return nil
		}
	})
	f.store.onWrite = func(key string, _ txn.Change) func() (bool, error) {
		f.Errorf("a reader at the frontier has written to %s", key)
		return nil
	}
	defer func() { f.store.onWrite = nil }()
	tx, err := db.AtFrontier(frontier)
	if err != nil {
		f.Fatal(err)
	}
	all, _, err := tx.Scan(f.ctx, "s", nil, nil, 100)
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if got := f.get(tx, pairs[i]); got != pairs[i+1] {
			f.Errorf("%s = %q at the frontier, want %q", pairs[i], got, pairs[i+1])
		}
		found := slices.ContainsFunc(all, func(p txn.Pair) bool {
			return string(p.Key) == pairs[i] && string(p.Value) == pairs[i+1]
		})
		if !found {
			f.Errorf("%s = %q is not in the scan %q", pairs[i], pairs[i+1], all)
		}
	}
}

func TestFrontier_ReadersPassOverTheLocksOfTheDead(t *testing.T) {
	f, g := newFrontierFixture(t)
	f.set("a", "old", "b", "old")
	before := g.frontier()
	f.crash(func(key string, c txn.Change) bool { return isCommit(c) })
	f.wantAt(before, "a", "old", "b", "old")
	f.wantAt(g.frontier(), "a", "old", "b", "old")
	g.seal(f)
	f.wantAt(g.frontier(), "a", "old", "b", "old")
	if got := f.locks(); len(got) != 2 {
		t.Errorf("%q are locked, want a and b", got)
	}
}

func TestFrontier_ReadersFindTheRecordOfTheDead(t *testing.T) {
	f, g := newFrontierFixture(t)
	f.set("a", "old", "b", "old")
	before := g.frontier()
	f.crash(func(key string, c txn.Change) bool { return key == "b" && isCommit(c) })
	f.wantAt(before, "a", "old", "b", "old")
	g.seal(f)
	f.wantAt(g.frontier(), "a", "new", "b", "new")
	if got := f.locks(); len(got) != 1 || got[0] != "b" {
		t.Errorf("%q are locked, want b", got)
	}
}

func TestFrontier_WaitsForTheSecondaries(t *testing.T) {
	f, g := newFrontierFixture(t)
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if isCommit(c) && len(g.open) != 1 {
			t.Errorf("%s is committed, and %d stamps are open", key, len(g.open))
		}
		return nil
	}
	commit := f.set("a", "1", "b", "2")
	f.store.onWrite = nil
	if f := isotone.Timestamp64From(g.frontier()); f < commit || len(g.open) != 0 {
		t.Errorf("the frontier is %v after a commit at %v", f, commit)
	}
	f.wantAt(g.frontier(), "a", "1", "b", "2")
}

// lateCommit has the write of a primary have no answer, and arrive when the frontier has been read. It returns the value at the first frontier before and after that, and
// once the writer has lost its session.
func lateCommit(t *testing.T) string {
	f, g := newFrontierFixture(t)
	f.set("a", "old")
	var late func() (bool, error)
	f.store.onWrite = func(key string, c txn.Change) func() (bool, error) {
		if !isCommit(c) {
			return nil
		}
		late = func() (bool, error) { return f.store.Store.Write(f.ctx, []byte(key), c) }
		return drop
	}
	tx := f.begin()
	f.put(tx, "a", "new")
	f.wantError(tx.Commit(f.ctx), txn.ErrUnknown)
	f.store.onWrite = nil
	read := func(frontier isotone.Timestamp) string {
		tx, err := f.db.AtFrontier(frontier)
		if err != nil {
			t.Fatal(err)
		}
		return f.get(tx, "a")
	}
	frontier := g.frontier()
	got := []string{read(frontier)}
	if _, err := late(); err != nil && !errors.Is(err, isotone.ErrFenced) {
		t.Fatal(err)
	}
	got = append(got, read(frontier))
	g.seal(f)
	return strings.Join(append(got, read(g.frontier())), " ")
}

func TestFrontier_WaitsForADoubt(t *testing.T) {
	if got := lateCommit(t); got != "old old new" {
		t.Errorf("the values are %s", got)
	}
}

// collectedMeanwhile has garbage collection take the record of a transaction away between the read of its lock and that of the record. It returns what a reader at the frontier finds.
func collectedMeanwhile(t *testing.T) string {
	f, g := newFrontierFixture(t)
	f.set("a", "old", "b", "old")
	f.crash(func(key string, c txn.Change) bool { return key == "b" && isCommit(c) })
	g.seal(f)
	f.oracle.pass(time.Minute)
	tx, err := f.db.AtFrontier(g.frontier())
	if err != nil {
		t.Fatal(err)
	}
	f.store.onRead = func(key string) error {
		if key == "a" {
			f.store.onRead = nil
			_, err := f.db.Collect(f.ctx, time.Second)
			return err
		}
		return nil
	}
	return f.get(tx, "b")
}

func TestFrontier_ARecordThatWasCollectedIsNotMissed(t *testing.T) {
	if got := collectedMeanwhile(t); got != "new" {
		t.Errorf("b = %q, want new", got)
	}
}

func TestFrontier_ASealedCommitIsAborted(t *testing.T) {
	f, g := newFrontierFixture(t)
	tx := f.begin()
	f.put(tx, "a", "1", "b", "2")
	f.store.onWrite = func(_ string, c txn.Change) func() (bool, error) {
		if isCommit(c) {
			f.store.onWrite = nil
			g.seal(f)
		}
		return nil
	}
	err := tx.Commit(f.ctx)
	f.wantError(err, txn.ErrAborted)
	if !errors.Is(err, isotone.ErrFenced) || !txn.IsRetryable(err) || !strings.Contains(err.Error(), "sealed") {
		t.Error(err)
	}
	f.want("a", "none", "b", "none")
	if got := f.locks(); len(got) != 0 {
		t.Errorf("%q are locked", got)
	}
	f.set("a", "2")
}

func TestFrontier_IsRefusedWhereItWouldNotHold(t *testing.T) {
	f, g := newFrontierFixture(t)
	plain := struct{ txn.Store }{memory.New()} // has no Seal
	unfenced := map[string]txn.Store{"plain": plain, "s": memory.New()}
	_, err := txn.New(f.oracle, txn.Options{Stores: unfenced, Frontier: txn.Frontier(g.begin)})
	_, fenceErr := txn.NewFence(unfenced)
	for _, err := range []error{err, fenceErr} {
		if !errors.Is(err, isotone.ErrInvalidArgument) || !strings.Contains(err.Error(), "the store plain has no fence") {
			t.Error(err)
		}
	}
	if _, err := f.db.AtFrontier(isotone.Timestamp{}); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error(err)
	}
	tx, err := f.db.AtFrontier(f.oracle.last.Timestamp())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Set("s", []byte("a"), nil); !errors.Is(err, isotone.ErrInvalidArgument) {
		t.Error(err)
	}
	wide := f.open(func(o *txn.Options) {
		o.Frontier = txn.Frontier(func(ctx context.Context) (groupStamp, error) {
			s, err := g.begin(ctx)
			s.at.Index++
			return s, err
		})
	})
	err = wide.Run(f.ctx, func(tx *txn.Tx) error { return tx.Set("s", []byte("a"), nil) })
	if !errors.Is(err, txn.ErrOracle) || !strings.Contains(err.Error(), "U64") {
		t.Error(err)
	}
	if got := f.locks(); len(got) != 0 {
		t.Errorf("%q are locked", got)
	}
	f.db.Close()
	if _, err := f.db.AtFrontier(f.oracle.last.Timestamp()); !errors.Is(err, txn.ErrDone) {
		t.Error(err)
	}
}
