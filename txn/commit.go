package txn

import (
	"context"
	"errors"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// Commit makes the writes of the transaction visible, all at once, or fails. When it returns nil, every
// transaction that begins from then on sees them. A transaction that has written nothing has nothing
// to do.
//
// Errors: CodeConflict, CodeLocked, CodeAborted, CodeTooOld, CodeStore and CodeOracle mean that the
// transaction has no effect, now or later. CodeUnknown means that this is not known: read what was
// written to find out. CodeDone: it was committed or rolled back before. If ctx is done, Commit
// returns one of these with its error as a cause, after at most Options.FinishTimeout more.
func (tx *Tx) Commit(ctx context.Context) (err error) {
	if tx.done {
		return &Error{Code: CodeDone, Start: tx.start}
	}
	if len(tx.writes) == 0 {
		tx.end(nil)
		return nil
	}
	ctx, end := tx.db.span(ctx, "commit")
	defer func() {
		end(err)
		tx.end(err)
	}()
	c := &committer{db: tx.db, tx: tx, start: tx.start, list: tx.sorted()}
	return c.run(ctx)
}

// committer commits one transaction. It outlives Commit if secondaries are left.
type committer struct {
	db     *DB
	tx     *Tx // for the commit timestamp only; not used in the background
	start  isotone.Timestamp64
	commit isotone.Timestamp64
	list   []*mutation // the first is the primary
	// stamped is the commit timestamp as a write of a group; nil without Options.Frontier.
	stamped Stamp
}

func (c *committer) run(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		c.decide(nil) // the primary was not written
		c.undo(ctx)
		return err
	}
	c.tx.commit = c.commit
	if mutant.On(mutant.SecondariesFirst) {
		c.finish(ctx)
	}
	if err := c.commitPrimary(ctx); err != nil {
		c.decide(err)
		if err, ok := err.(*Error); ok && err.Code == CodeUnknown && !mutant.On(mutant.UndoUnknown) {
			return err // the locks stay: only the primary can tell what they are
		}
		c.undo(ctx)
		return err
	}
	if len(c.list) > 1 && !mutant.On(mutant.SecondariesFirst) {
		c.db.goes(func() {
			c.finish(ctx)
			c.decide(nil)
		})
		return nil
	}
	c.decide(nil)
	return nil
}

// prepare writes all locks, and then requests the commit timestamp. After it has failed, the
// transaction must not commit.
func (c *committer) prepare(ctx context.Context) error {
	if mutant.On(mutant.StartLate) {
		start, err := c.db.timestamp(ctx, c.start)
		if err != nil {
			return err
		}
		c.start = start
	}
	if mutant.On(mutant.CommitEarly) {
		if err := c.stamp(ctx); err != nil {
			return err
		}
	}
	stop := c.keepAlive(ctx)
	defer stop()
	if err := c.prewrite(ctx); err != nil {
		return err
	}
	if mutant.On(mutant.CommitEarly) {
		return nil
	}
	return c.stamp(ctx)
}

// stamp requests the commit timestamp, and meanwhile looks at the safe points. Both must begin when
// all locks are there:
//
//   - A transaction that begins after the commit timestamp was issued must meet the locks.
//   - Garbage collection resolves the locks of transactions before the safe point that it sees, once
//     it has raised the point. If the point is not raised yet, it will see all of them.
func (c *committer) stamp(ctx context.Context) (err error) {
	ctx, end := c.db.span(ctx, "timestamp")
	defer func() { end(err) }()
	spaces := c.spaces()
	return c.db.parallel(1+len(spaces), func(i int) (err error) {
		if i == 0 {
			return c.stampAt(ctx)
		}
		return c.checkSafe(ctx, spaces[i-1])
	})
}

// spaces returns the first mutation in each space.
func (c *committer) spaces() []ref {
	var list []ref
	for _, m := range c.list {
		if len(list) == 0 || list[len(list)-1].space != m.ref.space {
			list = append(list, m.ref)
		}
	}
	return list
}

func (c *committer) checkSafe(ctx context.Context, r ref) error {
	for step := c.db.stepPause(); ; {
		points, err := c.db.points(ctx, r.space)
		switch {
		case err == nil && points.Safe > c.start && !mutant.On(mutant.CommitBelowSafe):
			return r.fail(CodeTooOld, c.start, points.Safe, nil)
		case err == nil:
			return nil
		case !step.wait(ctx):
			return storeError(r, c.start, err)
		}
	}
}

// prewrite locks all rows. They may be locked in any order, all at once: a primary that is rolled back
// before it has its lock gets a mark, by which its prewrite fails.
func (c *committer) prewrite(ctx context.Context) (err error) {
	ctx, end := c.db.span(ctx, "prewrite")
	defer func() { end(err) }()
	// Some of the life of the locks has passed since the start. The local clock knows about how much;
	// if it is wrong, others wait too long or not long enough.
	expires := c.start.Milli() + uint64((c.db.opts.Now().Sub(c.tx.began) + c.db.opts.LockTTL).Milliseconds())
	return c.db.parallel(len(c.list), func(i int) error {
		return c.lockRow(ctx, c.list[i], expires)
	})
}

// lockRow locks one row, unless it is locked by a transaction that is alive, was written since the
// start, or has the mark that this transaction was rolled back.
func (c *committer) lockRow(ctx context.Context, m *mutation, expires uint64) error {
	l := lock{start: c.start, expires: expires, ttl: c.db.opts.LockTTL, primary: c.list[0].ref, deleted: m.deleted, value: m.value}
	encoded := l.encode()
	if m.seen && c.tryLock(ctx, m, m.revision, encoded) == nil && m.locked {
		return nil
	}
	p := &patience{now: c.start}
	for step := c.db.stepPause(); ; {
		row, other, err := c.inspect(ctx, m)
		switch {
		case err == nil && m.locked:
			return nil
		case err == nil && other == nil:
			err = c.tryLock(ctx, m, row.Revision, encoded)
		case err == nil:
			var alive bool
			alive, err = c.db.resolve(ctx, m.ref, &row, other, p)
			if alive && err == nil {
				return m.ref.fail(CodeLocked, c.start, other.start, nil)
			}
		}
		if m.locked {
			return nil
		}
		var final *Error
		if errors.As(err, &final) && final.Code != CodeOracle {
			return err
		}
		if err == nil && !step.again(ctx) || err != nil && !step.wait(ctx) {
			return storeError(m.ref, c.start, cause(ctx, err))
		}
	}
}

// tryLock locks a row if it has that revision, and sets m.locked if it did.
func (c *committer) tryLock(ctx context.Context, m *mutation, revision uint64, encoded []byte) error {
	ch := Change{If: revision, Next: next(revision), Lock: encoded}
	m.touched = true
	done, err := c.db.write(ctx, m.ref, ch)
	if done && err == nil {
		m.locked, m.revision = true, ch.Next
	}
	return err
}

// inspect reads the row of a mutation that is to be locked. It returns the lock of another transaction
// if there is one, sets m.locked if the row has that of this transaction, and fails if the transaction
// cannot have it.
func (c *committer) inspect(ctx context.Context, m *mutation) (Row, *lock, error) {
	row, points, err := c.db.read(ctx, m.ref, c.start, c.start)
	if err != nil {
		return Row{}, nil, err
	}
	l, err := lockOf(&row, points)
	switch {
	case err != nil:
		return Row{}, nil, m.ref.fail(CodeStore, c.start, 0, err)
	case points.Safe > c.start:
		return Row{}, nil, m.ref.fail(CodeTooOld, c.start, points.Safe, nil)
	case row.Record.Start != 0 && !mutant.On(mutant.MarkIgnored):
		return Row{}, nil, m.ref.fail(CodeAborted, c.start, 0, nil)
	case row.Newest > c.start && !mutant.On(mutant.ConflictIgnored):
		return Row{}, nil, m.ref.fail(CodeConflict, c.start, row.Newest, nil)
	case l != nil && l.start == c.start:
		m.locked, m.revision = true, row.Revision
		return row, nil, nil
	case mutant.On(mutant.LockStolen):
		return row, nil, nil
	}
	return row, l, nil
}

// keepAlive extends the lock of the primary until the function that it returns is called, which waits
// for its end.
func (c *committer) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for c.db.opts.Sleep(ctx, c.db.opts.LockTTL/3) == nil {
			c.extend(ctx)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// extend extends the lock of the primary once. What fails is tried again by the next one.
func (c *committer) extend(ctx context.Context) {
	now, err := c.db.timestamp(ctx, c.start)
	if err != nil {
		return
	}
	primary := c.list[0].ref
	row, points, err := c.db.read(ctx, primary, 0, 0)
	if err != nil {
		return
	}
	l, err := lockOf(&row, points)
	if err != nil || l == nil || l.start != c.start {
		return
	}
	// It grows even while the oracle's time stands still, so that others see a sign of life.
	l.expires = max(now.Milli()+uint64(c.db.opts.LockTTL.Milliseconds()), l.expires+1)
	// The commit notices that the row has another revision, and that the lock is its own.
	_, _ = c.db.write(ctx, primary, Change{If: row.Revision, Next: next(row.Revision), Lock: l.encode()})
}
