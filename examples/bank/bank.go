package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/txn"
)

const (
	// opening is what an account begins with, amountMax the most that one transfer moves.
	opening   = 100
	amountMax = 20
	// lockTTL is how long the locks of a client that was killed hold up others.
	lockTTL = time.Second
	// lockWait is how long a read waits for a lock: a leader may be killed meanwhile.
	lockWait = 10 * time.Second
	// keepGarbage is how long a snapshot can be read, collectPause the time between two collections.
	keepGarbage  = 10 * time.Second
	collectPause = 3 * time.Second
	// auditPause is the time between two audits.
	auditPause = 50 * time.Millisecond
	// clientKillPause and leaderKillPause are the times between two kills.
	clientKillPause = 400 * time.Millisecond
	leaderKillPause = 5 * time.Second
	// killWritesMax is the largest number of writes after which a client is killed. A transfer has 4.
	killWritesMax = 6
	// endTimeout bounds the last audit.
	endTimeout = time.Minute
)

// bank runs the load.
type bank struct {
	settings
	oracle     txn.Oracle
	stores     stores
	out        io.Writer
	killLeader func(context.Context) error // nil if leaders are not killed

	counts counts
	lines  []atomic.Pointer[line] // one for each worker
	wg     sync.WaitGroup         // clients that were killed and are not through yet
}

// counts are what has happened so far.
type counts struct {
	transfers, refused, unknown, failed atomic.Int64
	audits, auditsFailed                atomic.Int64
	clients, leaders                    atomic.Int64
}

// errTotal means that money was made or lost.
var errTotal = errors.New("the total is wrong")

func (b *bank) total() int { return b.accounts * opening }

// account returns the place and the key of an account.
func account(i int) (place string, key []byte) {
	place = placeRedis
	if i%2 == 1 {
		place = placePostgres
	}
	return place, fmt.Appendf(nil, "account-%04d", i)
}

// open returns a client's handle for transactions.
func (b *bank) open(oracle txn.Oracle, reached map[string]txn.Store) (*txn.DB, error) {
	return txn.New(oracle, txn.Options{Stores: reached, LockTTL: lockTTL, LockWait: lockWait})
}

// run opens the accounts and transfers money until the time is over or a total is wrong.
func (b *bank) run(ctx context.Context) error {
	db, err := b.open(b.oracle, b.stores)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Run(ctx, b.openAccounts); err != nil {
		return fmt.Errorf("opening the accounts: %w", err)
	}
	b.lines = make([]atomic.Pointer[line], b.workers)
	err = b.load(ctx, db)
	b.wg.Wait()
	if err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := b.audit(last, db); err != nil {
		return fmt.Errorf("the last audit: %w", err)
	}
	fmt.Fprintf(b.out, "\n%s\nThe total was always %d.\n", b.status(), b.total())
	return nil
}

func (b *bank) openAccounts(tx *txn.Tx) error {
	for i := range b.accounts {
		place, key := account(i)
		if err := tx.Set(place, key, strconv.AppendInt(nil, opening, 10)); err != nil {
			return err
		}
	}
	return nil
}

// load runs everything at once, for the duration or until one of the parts fails.
func (b *bank) load(ctx context.Context, db *txn.DB) error {
	running, cancel := context.WithTimeout(ctx, b.duration)
	defer cancel()
	var (
		once  sync.Once
		first error
		wg    sync.WaitGroup
	)
	part := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				once.Do(func() { first = err })
				cancel()
			}
		})
	}
	for i := range b.workers {
		part(func() error { return b.work(running, i) })
	}
	part(func() error { return b.watch(running, db) })
	part(func() error { return every(running, collectPause, func() error { return b.collect(running, db) }) })
	part(func() error { return b.show(running) })
	if b.kill {
		part(func() error { return every(running, clientKillPause, b.killClient) })
	}
	if b.killLeader != nil {
		part(func() error { return every(running, leaderKillPause, func() error { return b.killOracle(running) }) })
	}
	wg.Wait()
	if first == nil && ctx.Err() != nil {
		first = context.Cause(ctx)
	}
	return first
}

// every calls f after each pause until ctx is done, which is no error, or f fails.
func every(ctx context.Context, pause time.Duration, f func() error) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := f(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// work transfers money as one client after another: when one was killed, the next begins.
func (b *bank) work(ctx context.Context, i int) error {
	for ctx.Err() == nil {
		l := &line{}
		b.lines[i].Store(l)
		db, err := b.open(farOracle{b.oracle, l}, l.through(b.stores))
		if err != nil {
			return err
		}
		for ctx.Err() == nil && !l.cut.Load() {
			err := db.Run(ctx, func(tx *txn.Tx) error { return b.transfer(ctx, tx) })
			if ctx.Err() == nil && !l.cut.Load() {
				b.count(err)
			}
		}
		if l.cut.Load() {
			b.counts.clients.Add(1)
		}
		// A client that was killed still tries to finish, in vain. Nobody waits for that.
		b.wg.Go(db.Close)
	}
	return nil
}

// count counts the end of one transfer.
func (b *bank) count(err error) {
	switch {
	case err == nil:
		b.counts.transfers.Add(1)
	case errors.Is(err, txn.ErrUnknown):
		b.counts.unknown.Add(1)
	case txn.IsRetryable(err):
		b.counts.refused.Add(1)
	default:
		b.counts.failed.Add(1)
	}
}

// transfer moves some money from one account to another, which may be in the other store.
func (b *bank) transfer(ctx context.Context, tx *txn.Tx) error {
	from, to := rand.IntN(b.accounts), rand.IntN(b.accounts-1)
	if to >= from {
		to++
	}
	rich, err := balance(ctx, tx, from)
	if err != nil {
		return err
	}
	poor, err := balance(ctx, tx, to)
	if err != nil {
		return err
	}
	amount := min(rich, 1+rand.IntN(amountMax))
	return errors.Join(setBalance(tx, from, rich-amount), setBalance(tx, to, poor+amount))
}

func balance(ctx context.Context, tx *txn.Tx, i int) (int, error) {
	place, key := account(i)
	value, ok, err := tx.Get(ctx, place, key)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("account %d is gone", i)
	}
	return strconv.Atoi(string(value))
}

func setBalance(tx *txn.Tx, i, amount int) error {
	place, key := account(i)
	return tx.Set(place, key, strconv.AppendInt(nil, int64(amount), 10))
}

// watch audits all the time. It fails when a total is wrong.
func (b *bank) watch(ctx context.Context, db *txn.DB) error {
	return every(ctx, auditPause, func() error {
		err := b.audit(ctx, db)
		if err == nil || errors.Is(err, errTotal) {
			return err
		}
		if ctx.Err() == nil {
			b.counts.auditsFailed.Add(1)
		}
		return nil
	})
}

// audit adds up all accounts of one snapshot.
func (b *bank) audit(ctx context.Context, db *txn.DB) error {
	err := db.View(ctx, func(tx *txn.Tx) error {
		accounts, total := 0, 0
		for place := range b.stores {
			for pair, err := range tx.All(ctx, place, nil, nil) {
				if err != nil {
					return err
				}
				amount, err := strconv.Atoi(string(pair.Value))
				if err != nil || amount < 0 {
					return fmt.Errorf("%w: %s has %q", errTotal, pair.Key, pair.Value)
				}
				accounts++
				total += amount
			}
		}
		if accounts != b.accounts || total != b.total() {
			return fmt.Errorf("%w: the snapshot of %v has %d accounts with %d, want %d with %d",
				errTotal, tx.Start(), accounts, total, b.accounts, b.total())
		}
		return nil
	})
	if err == nil {
		b.counts.audits.Add(1)
	}
	return err
}

// collect removes old versions. If it fails, the next time will do.
func (b *bank) collect(ctx context.Context, db *txn.DB) error {
	var e *txn.Error
	if _, err := db.Collect(ctx, keepGarbage); err != nil && !errors.As(err, &e) && ctx.Err() == nil {
		return fmt.Errorf("garbage collection: %w", err)
	}
	return nil
}

// killClient has some client die within its next writes.
func (b *bank) killClient() error {
	if l := b.lines[rand.IntN(len(b.lines))].Load(); l != nil {
		l.cutAfter(1 + rand.Int64N(killWritesMax))
	}
	return nil
}

func (b *bank) killOracle(ctx context.Context) error {
	err := b.killLeader(ctx)
	if err == nil {
		b.counts.leaders.Add(1)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
