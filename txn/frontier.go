package txn

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// Stamp is the commit timestamp of a transaction, as a write in a group: a *client.FrontierWrite of package github.com/isotone/isotone/client, with FrontierOptions.U64.
type Stamp interface {
	// Stamp returns the timestamp, which is larger than all that anybody had received before it was requested, and of the 64-bit form.
	Stamp() isotone.Timestamp
	// Done says that the write with the stamp is applied, or never will be, and Unknown that it may be.
	Done()
	Unknown()
}

// Frontier returns what [Options.Frontier] is for a writer w of package client: Frontier(w.Begin).
func Frontier[S Stamp](begin func(context.Context) (S, error)) func(context.Context) (Stamp, error) {
	return func(ctx context.Context) (Stamp, error) { return begin(ctx) }
}

// Fenced is a [Store] with a fence. It may keep commit timestamps of several processes apart from those of the dead: see [Options.Frontier].
type Fenced interface {
	Store
	// Seal has [Store.Write] refuse all changes whose Record has a Commit from 1 to through, from its return on, durably. A smaller timestamp than
	// before changes nothing. After an error it may be sealed or not.
	//
	// Write compares the timestamp in the atomic step that compares the revision, and after that. So if it refuses a change for its timestamp, with an error that
	// matches isotone.ErrFenced, the row has the revision that the change wants, and the change was not and never will be applied. The refusal
	// is as durable as what Read returns.
	Seal(ctx context.Context, through isotone.Timestamp64) error
}

// Fence is that of the stores of a DB, for FrontierOptions.Fence of package client.
type Fence struct{ stores []Fenced }

// NewFence returns the fence of the stores that a DB has. The error matches isotone.ErrInvalidArgument if one has none.
func NewFence(stores map[string]Store) (*Fence, error) {
	f := &Fence{}
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		s, ok := stores[name].(Fenced)
		if !ok {
			return nil, invalid("%s", unfenced(name))
		}
		f.stores = append(f.stores, s)
	}
	return f, nil
}

func unfenced(name string) string {
	return "the store " + name + " has no fence (txn.Fenced), without which a frontier could pass transactions that commit later"
}

// Seal has all stores refuse commits at or below through.
func (f *Fence) Seal(ctx context.Context, through isotone.Timestamp) error {
	for _, s := range f.stores {
		sealing, cancel := context.WithTimeout(ctx, CallTimeoutDefault)
		err := s.Seal(sealing, floor64(through))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// floor64 returns the largest timestamp of the 64-bit form that is not after t.
func floor64(t isotone.Timestamp) isotone.Timestamp64 {
	u := isotone.Timestamp64From(t)
	if t.Before(u.Timestamp()) {
		u--
	}
	return u
}

// AtFrontier returns a transaction that reads the snapshot at a frontier, as client.FrontierReader returns it, of the group of all transactions that write to the stores. It needs
// no timestamp, and never waits for other transactions: neither for those that are committing nor for the expiry of the locks of the dead. It has nothing to commit. What it reads is
// what every transaction at that frontier reads. It may be older than what Begin would read: wait for the frontier to pass a timestamp that was requested before.
//
// Errors: CodeDone, and isotone.ErrInvalidArgument if the frontier is 0, as it is before the first writer begins.
func (db *DB) AtFrontier(frontier isotone.Timestamp) (*Tx, error) {
	at := floor64(frontier)
	if at == 0 || at>>63 != 0 {
		return nil, invalid("txn: %v is no frontier to read at: no writer has begun", frontier)
	}
	db.mu.Lock()
	closed := db.closed
	db.mu.Unlock()
	if closed {
		return nil, &Error{Code: CodeDone}
	}
	return &Tx{db: db, start: at, began: db.opts.Now(), readOnly: true, frontier: true, writes: map[ref]*mutation{}, seen: map[ref]uint64{}}, nil
}

// stampAt requests the commit timestamp of a transaction.
func (c *committer) stampAt(ctx context.Context) error {
	if c.db.opts.Frontier == nil || mutant.On(mutant.StampUntaken) {
		commit, err := c.db.timestamp(ctx, c.start)
		c.commit = commit
		return err
	}
	s, err := c.db.opts.Frontier(ctx)
	if err != nil {
		return &Error{Code: CodeOracle, Start: c.start, Err: err}
	}
	c.stamped, c.commit = s, floor64(s.Stamp())
	if mutant.On(mutant.StampDoneEarly) {
		s.Done()
	}
	if c.commit <= c.start || c.commit>>63 != 0 || c.commit.Timestamp() != s.Stamp() {
		return &Error{Code: CodeOracle, Start: c.start, Err: isotone.Errorf(isotone.CodeInternal, "the stamp is %v: want one of the 64-bit form (FrontierOptions.U64) after %v", s.Stamp(), c.start)}
	}
	return nil
}

// decide says what is known of the write with the stamp, by the error of its transaction.
func (c *committer) decide(err error) {
	if c.stamped == nil {
		return
	}
	if errors.Is(err, ErrUnknown) && !mutant.On(mutant.DoubtIsDone) {
		c.stamped.Unknown()
		return
	}
	c.stamped.Done()
}

// readAt returns a row as of a frontier. It repeats what fails.
func (db *DB) readAt(ctx context.Context, r ref, at isotone.Timestamp64) (Row, error) {
	for step := db.stepPause(); ; {
		row, settled, err := db.readAtOnce(ctx, r, at)
		if settled {
			return row, err
		}
		if err == nil && !step.again(ctx) || err != nil && !step.wait(ctx) {
			return Row{}, storeError(r, at, cause(ctx, err))
		}
	}
}

// readAtOnce reads a row and, if it is locked, that of the primary. It is settled unless a store has failed, or the row has changed meanwhile.
func (db *DB) readAtOnce(ctx context.Context, r ref, at isotone.Timestamp64) (row Row, settled bool, err error) {
	row, points, err := db.read(ctx, r, at, 0)
	if err != nil {
		return Row{}, false, err
	}
	if points.Safe > at {
		return Row{}, true, r.fail(CodeTooOld, at, points.Safe, nil)
	}
	l, err := lockOf(&row, points)
	if err != nil || l == nil || l.start > at || mutant.On(mutant.FrontierUnasked) {
		return row, err == nil, err
	}
	primary, points, err := db.read(ctx, l.primary, 0, l.start)
	if err != nil {
		return Row{}, false, err
	}
	if record := primary.Record; record.Start != 0 {
		if record.Commit != 0 && record.Commit <= at {
			row.Version = l.version(record.Commit)
		}
		return row, true, nil
	}
	if points.Safe <= l.start || mutant.On(mutant.FrontierOnce) {
		return row, true, nil
	}
	// The record may have been collected, but not before the lock was gone.
	again, _, err := db.read(ctx, r, at, 0)
	return row, err == nil && again.Revision == row.Revision, err
}
