package txn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// DB runs transactions over its stores. Its methods may be called concurrently. It holds no state
// that matters: any number of processes may have a DB over the same stores and the same oracle.
type DB struct {
	oracle Oracle
	opts   Options
	// resolved has, for each store, the largest Points.Resolved that was seen. See read.
	resolved map[string]*atomic.Uint64
	watched  sightings

	mu         sync.Mutex
	closed     bool
	background int            // transactions with secondaries under way in the background
	wg         sync.WaitGroup // the same
}

// New returns a DB. Its errors match isotone.ErrInvalidArgument. Close it when it is no longer used.
func New(oracle Oracle, opts Options) (*DB, error) {
	if oracle == nil {
		return nil, invalid("txn: the oracle is nil")
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	db := &DB{oracle: oracle, opts: opts.withDefaults(), resolved: map[string]*atomic.Uint64{}, watched: sightings{of: map[isotone.Timestamp64]sighting{}}}
	for space := range db.opts.Stores {
		db.resolved[space] = new(atomic.Uint64)
	}
	return db, nil
}

// Close waits until the secondaries of all committed transactions are committed, which is bounded by
// Options.FinishTimeout. From its call on, Begin fails, and transactions that commit finish their
// secondaries themselves. It does not close the stores.
func (db *DB) Close() {
	db.mu.Lock()
	db.closed = true
	db.mu.Unlock()
	db.wg.Wait()
}

// Begin starts a transaction: it requests the start timestamp. The transaction sees everything that
// had committed by then. It holds nothing, so one that is given up needs no Rollback.
//
// Errors: CodeOracle, CodeDone.
func (db *DB) Begin(ctx context.Context) (*Tx, error) {
	db.mu.Lock()
	closed := db.closed
	db.mu.Unlock()
	if closed {
		return nil, &Error{Code: CodeDone}
	}
	began := db.opts.Now()
	start, err := db.timestamp(ctx, 0)
	if err != nil {
		return nil, err
	}
	return &Tx{db: db, start: start, began: began, writes: map[ref]*mutation{}, seen: map[ref]uint64{}}, nil
}

// Run calls work with a new transaction and commits it. If that fails because of others (see
// [IsRetryable]), it tries again in another transaction after a pause, up to Options.RunAttempts
// times. Pauses are random, and grow. So work may be called several times, and must have no effect
// but by the transaction. If work returns an error, the transaction is rolled back and Run returns
// the error, unless it is one of those.
//
// Run does not try again when the outcome of a commit is unknown.
func (db *DB) Run(ctx context.Context, work func(*Tx) error) error {
	return db.run(ctx, false, work)
}

// View is Run for work that only reads. Set and Delete fail.
func (db *DB) View(ctx context.Context, work func(*Tx) error) error {
	return db.run(ctx, true, work)
}

func (db *DB) run(ctx context.Context, readOnly bool, work func(*Tx) error) error {
	pause := db.newPause(db.opts.RunAttempts, durationMax)
	for attempt := 1; ; attempt++ {
		err := db.runOnce(ctx, readOnly, work)
		if err == nil || !IsRetryable(err) {
			return err
		}
		if !pause.wait(ctx) {
			return fmt.Errorf("attempt %d, the last: %w", attempt, err)
		}
		if db.opts.Hooks.Retried != nil {
			db.opts.Hooks.Retried(attempt, err)
		}
	}
}

func (db *DB) runOnce(ctx context.Context, readOnly bool, work func(*Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	tx.readOnly = readOnly
	defer tx.Rollback() // has no effect after Commit; work may panic
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// timestamp requests a timestamp, which has to be after.
func (db *DB) timestamp(ctx context.Context, after isotone.Timestamp64) (isotone.Timestamp64, error) {
	t, err := db.oracle.Timestamp64(ctx)
	if err == nil && (t <= after || t>>63 != 0) && !mutant.On(mutant.OracleGoesBack) {
		err = isotone.Errorf(isotone.CodeInternal, "the oracle issued %v after %v", t, after)
	}
	if err != nil {
		return 0, &Error{Code: CodeOracle, Start: after, Err: err}
	}
	return t, nil
}

// store returns a store and the name of a row in it, or an error that matches
// isotone.ErrInvalidArgument.
func (db *DB) store(space string) (Store, error) {
	s, ok := db.opts.Stores[space]
	if !ok {
		return nil, invalid("no store is called %q", space)
	}
	return s, nil
}

// The calls of a store, each with its own deadline.

// read returns a row. The points that it returns with it are not those of the store: Resolved is what
// was known before the row was read. A lock that started before that is void. By a later point it might
// as well be one that was resolved meanwhile, and whose transaction has committed; in that case read
// reads the row again.
func (db *DB) read(ctx context.Context, r ref, at, start isotone.Timestamp64) (Row, Points, error) {
	s, err := db.store(r.space)
	if err != nil {
		return Row{}, Points{}, err
	}
	for range readsMax {
		known := db.known(r.space)
		row, points, err := db.readOnce(ctx, s, r, at, start)
		if err != nil {
			return Row{}, Points{}, err
		}
		db.learn(r.space, points)
		if mutant.On(mutant.VoidTooSoon) {
			return row, points, nil
		}
		if len(row.Lock) > 0 {
			l, err := decodeLock(row.Lock)
			if err == nil && l.start >= known && l.start < points.Resolved {
				continue
			}
		}
		points.Resolved = known
		return row, points, nil
	}
	return Row{}, Points{}, errBusy
}

func (db *DB) readOnce(ctx context.Context, s Store, r ref, at, start isotone.Timestamp64) (Row, Points, error) {
	ctx, cancel := context.WithTimeout(ctx, db.opts.CallTimeout)
	defer cancel()
	return s.Read(ctx, []byte(r.key), at, start)
}

// known returns the largest point of a store up to which locks are known to be resolved.
func (db *DB) known(space string) isotone.Timestamp64 {
	return isotone.Timestamp64(db.resolved[space].Load())
}

func (db *DB) learn(space string, p Points) {
	known := db.resolved[space]
	for old := known.Load(); old < uint64(p.Resolved) && !known.CompareAndSwap(old, uint64(p.Resolved)); {
		old = known.Load()
	}
}

func (db *DB) write(ctx context.Context, r ref, c Change) (bool, error) {
	s, err := db.store(r.space)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, db.opts.CallTimeout)
	defer cancel()
	return s.Write(ctx, []byte(r.key), c)
}

func (db *DB) scan(ctx context.Context, space string, r Range, at isotone.Timestamp64) (Page, error) {
	s, err := db.store(space)
	if err != nil {
		return Page{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, db.opts.CallTimeout)
	defer cancel()
	page, err := s.Scan(ctx, r, at)
	if err == nil && page.More && len(page.Entries) == 0 {
		err = isotone.Errorf(isotone.CodeInternal, "store %q: a scan returned no row, and says that there are more", space)
	}
	return page, err
}

func (db *DB) points(ctx context.Context, space string) (Points, error) {
	ctx, cancel := context.WithTimeout(ctx, db.opts.CallTimeout)
	defer cancel()
	return db.opts.Stores[space].Points(ctx)
}

func (db *DB) raise(ctx context.Context, space string, p Points) error {
	ctx, cancel := context.WithTimeout(ctx, db.opts.CallTimeout)
	defer cancel()
	return db.opts.Stores[space].Raise(ctx, p)
}

// next returns a revision for a write; see [Change].
func next(revision uint64) uint64 {
	if mutant.On(mutant.RevisionsRepeat) {
		return revision + 1
	}
	return rand.Uint64N(1<<63-1) + 1
}

// parallel calls f with 0 to n-1, up to Options.Parallel at once, and waits for all calls. After a
// call has failed it begins no more. It returns the error of the call with the smallest number.
func (db *DB) parallel(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		taken  int
		failed = n
		first  error
	)
	for range min(n, db.opts.Parallel) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := taken
				if i == n || first != nil {
					mu.Unlock()
					return
				}
				taken++
				mu.Unlock()
				if err := f(i); err != nil {
					mu.Lock()
					if i < failed {
						failed, first = i, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}

// goes runs f in the background, or here if too much runs there.
func (db *DB) goes(f func()) {
	db.mu.Lock()
	inline := db.closed || db.background >= db.opts.BackgroundMax
	if !inline {
		db.background++
		db.wg.Add(1)
	}
	db.mu.Unlock()
	if inline {
		f()
		return
	}
	go func() {
		defer db.wg.Done()
		f()
		db.mu.Lock()
		db.background--
		db.mu.Unlock()
	}()
}

// finishing returns a context for what must go on when ctx is done.
func (db *DB) finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), db.opts.FinishTimeout)
}

func (db *DB) span(ctx context.Context, name string) (context.Context, func(error)) {
	if db.opts.Hooks.Span == nil {
		return ctx, func(error) {}
	}
	return db.opts.Hooks.Span(ctx, name)
}

const (
	// pauseMin and pauseMax are the first and the longest pause before a step is tried again. The
	// first is about the time of a commit.
	pauseMin = 4 * time.Millisecond
	pauseMax = 500 * time.Millisecond
	// stepAttemptsMax bounds how often one step of the protocol is tried: rows that others write all
	// the time, and stores that fail.
	stepAttemptsMax = 12
	// readsMax bounds how often a row is read again because the point up to which locks are resolved
	// has moved past its lock. Twice is enough, unless that point moves all the time.
	readsMax = 5
	// lockAttemptsMax bounds how often a read waits for one row, however short the pauses are.
	lockAttemptsMax = 1000
)

// pause counts the attempts of one step, and waits between them.
type pause struct {
	db       *DB
	attempts int           // left
	total    time.Duration // left, of the longest waits
	next     time.Duration
}

func (db *DB) newPause(attempts int, total time.Duration) *pause {
	return &pause{db: db, attempts: attempts - 1, total: total, next: pauseMin}
}

func (db *DB) stepPause() *pause { return db.newPause(stepAttemptsMax, durationMax) }

// again reports whether there is an attempt left, and takes it.
func (p *pause) again(ctx context.Context) bool {
	p.attempts--
	return p.attempts >= 0 && ctx.Err() == nil
}

// wait is again after a pause.
func (p *pause) wait(ctx context.Context) bool {
	if p.attempts <= 0 || p.total <= 0 {
		return false
	}
	d := p.next/2 + rand.N(p.next/2)
	p.total -= p.next // not d: the number of attempts does not depend on chance
	p.next = min(2*p.next, pauseMax)
	return p.db.opts.Sleep(ctx, d) == nil && p.again(ctx)
}

// errBusy is the cause when a step gave up though no store has failed.
var errBusy = errors.New("others changed the row at every attempt")

// storeError returns err as an error of a transaction that had no effect.
func storeError(r ref, start isotone.Timestamp64, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return r.fail(CodeStore, start, 0, err)
}
