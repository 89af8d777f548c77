package txn

import (
	"context"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// Whoever meets a lock asks the primary of its transaction, which alone decides:
//
//   - the primary has a record of it: the transaction has committed, or was rolled back;
//   - the primary has its lock, which has expired, or has neither, and the lock that was met has
//     expired: the transaction is rolled back, by a mark in the row of the primary;
//   - otherwise the transaction is alive.

// verdict is what is known of a transaction.
type verdict struct {
	alive  bool
	commit isotone.Timestamp64 // 0 if it was rolled back; if it is not alive
}

// patience says how to treat transactions that may be alive.
type patience struct {
	// now is the latest timestamp that is known.
	now isotone.Timestamp64
	// forced means that they are rolled back at once.
	forced bool
}

// isVoid reports whether l was written after garbage collection had resolved all locks of its time.
// The transaction cannot commit any more, or has long done so; see DB.Collect.
func isVoid(l *lock, points Points) bool {
	return l.start < points.Resolved && !mutant.On(mutant.VoidLockCounts)
}

// resolve removes the lock l from the row r, which had it when it was read as row, if the transaction
// of the lock has ended or can be ended. It returns whether the transaction is alive. If not, the
// caller reads the row again: the lock is gone, unless a store failed.
func (db *DB) resolve(ctx context.Context, r ref, row *Row, l *lock, p *patience) (alive bool, err error) {
	v, err := db.judge(ctx, l, p)
	if err != nil || v.alive {
		return v.alive, err
	}
	c := Change{If: row.Revision, Next: next(row.Revision)}
	if v.commit != 0 {
		c.Put = l.version(v.commit)
	}
	done, err := db.write(ctx, r, c)
	if done && err == nil {
		db.cleaned(r, l, v.commit)
	}
	return false, err
}

func (db *DB) cleaned(r ref, l *lock, commit isotone.Timestamp64) {
	if db.opts.Hooks.Cleaned != nil {
		db.opts.Hooks.Cleaned(Cleaned{Space: r.space, Key: []byte(r.key), Start: l.start, Commit: commit})
	}
}

// judge finds out what became of the transaction of l, and rolls it back if it may.
func (db *DB) judge(ctx context.Context, l *lock, p *patience) (verdict, error) {
	if mutant.On(mutant.CleanUnasked) {
		return verdict{}, nil
	}
	var failure error
	for step := db.stepPause(); ; {
		v, decided, err := db.judgeOnce(ctx, l, p)
		if decided {
			return v, nil
		}
		if err != nil {
			failure = err
		}
		// Without an error somebody else has changed the row of the primary. That is progress.
		if err == nil && !step.again(ctx) || err != nil && !step.wait(ctx) {
			if failure == nil {
				failure = context.Cause(ctx)
			}
			return verdict{alive: true}, failure
		}
	}
}

func (db *DB) judgeOnce(ctx context.Context, l *lock, p *patience) (v verdict, decided bool, err error) {
	asked := db.opts.Now()
	row, points, err := db.read(ctx, l.primary, 0, l.start)
	if err != nil {
		return verdict{}, false, err
	}
	if row.Record.Start != 0 {
		return verdict{commit: row.Record.Commit}, true, nil
	}
	if isVoid(l, points) {
		return verdict{}, true, nil
	}
	held, err := lockOf(&row, points)
	if err != nil {
		return verdict{}, false, err
	}
	// What the row keeps: the lock of another transaction.
	c := Change{If: row.Revision, Next: next(row.Revision), Lock: row.Lock}
	expires := l.expires
	if held != nil && held.start == l.start {
		expires = held.expires
	}
	if held != nil && held.start == l.start || mutant.On(mutant.MarkUnlocks) {
		c.Lock = nil
		if mutant.On(mutant.ForwardUncommitted) {
			return verdict{commit: l.start}, true, nil
		}
	}
	expired, err := db.isOver(ctx, l, expires, asked, p)
	if err != nil {
		return verdict{}, false, err
	}
	if !expired {
		return verdict{alive: true}, true, nil
	}
	if mutant.On(mutant.RollBackUnmarked) {
		if held == nil || held.start != l.start {
			return verdict{}, true, nil
		}
	} else {
		c.Record = Record{Start: l.start}
	}
	decided, err = db.write(ctx, l.primary, c)
	decided = decided && err == nil
	if decided && held != nil && held.start == l.start {
		db.cleaned(l.primary, l, 0)
	}
	return verdict{}, decided, err
}

// isOver reports whether the transaction of l, whose locks have that expiry, may be rolled back: by the time
// of the oracle, or because the locks have not changed for their TTL by the steady clock. asked is a time
// before they were read.
func (db *DB) isOver(ctx context.Context, l *lock, expires uint64, asked time.Time, p *patience) (bool, error) {
	if p.forced || isExpired(expires, p.now) || db.watched.areUnchanged(l, expires, asked, db.opts.Now()) {
		return true, nil
	}
	now, err := db.timestamp(ctx, p.now)
	if err != nil {
		return false, err
	}
	p.now = now
	return isExpired(expires, now), nil
}

// settle reads a row for a snapshot. It resolves locks whose transactions may have committed within the
// snapshot, and waits for those that are alive.
func (db *DB) settle(ctx context.Context, r ref, start isotone.Timestamp64, p *patience) (Row, error) {
	var (
		failing = db.stepPause()
		waiting = db.newPause(lockAttemptsMax, db.opts.LockWait)
	)
	for {
		row, points, err := db.read(ctx, r, start, 0)
		var l *lock
		if err == nil {
			l, err = lockOf(&row, points)
		}
		if err == nil && points.Safe > start && !mutant.On(mutant.ReadBelowSafe) {
			return Row{}, r.fail(CodeTooOld, start, points.Safe, nil)
		}
		if err == nil && (l == nil || l.start > start || mutant.On(mutant.ReadIgnoresLocks)) {
			return row, nil
		}
		alive := false
		if err == nil {
			alive, err = db.resolve(ctx, r, &row, l, p)
		}
		switch {
		case err != nil:
			if !failing.wait(ctx) {
				return Row{}, storeError(r, start, err)
			}
		case alive:
			if !waiting.wait(ctx) {
				return Row{}, r.fail(CodeLocked, start, l.start, ctx.Err())
			}
		case !waiting.again(ctx):
			return Row{}, r.fail(CodeLocked, start, l.start, ctx.Err())
		}
	}
}
