package txn

import (
	"context"
	"errors"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// commitPrimary replaces the lock of the primary by the version and a record, in one write. Until that
// takes effect the transaction has not committed, and from then on it has.
func (c *committer) commitPrimary(ctx context.Context) (err error) {
	ctx, end := c.db.span(ctx, "primary")
	defer func() { end(err) }()
	m := c.list[0]
	if ctx.Err() != nil {
		return m.ref.fail(CodeStore, c.start, 0, ctx.Err())
	}
	// From here on ctx does not count: to give up would leave the outcome open.
	ctx, cancel := c.db.finishing(ctx)
	defer cancel()
	var failure error
	record := Record{Start: c.start, Commit: c.commit}
	if mutant.On(mutant.RecordForgotten) {
		record = Record{}
	}
	for step := c.db.stepPause(); ; {
		done, err := c.db.write(ctx, m.ref, Change{
			If: m.revision, Next: next(m.revision), Record: record,
			Put: Version{Commit: c.commit, Deleted: m.deleted, Value: m.value},
		})
		switch {
		case err == nil && done, err != nil && mutant.On(mutant.UnknownIsDone):
			return nil
		case errors.Is(err, isotone.ErrFenced):
			return m.ref.fail(CodeAborted, c.start, 0, err)
		case err != nil && mutant.On(mutant.UnknownIsFailed):
			return m.ref.fail(CodeAborted, c.start, 0, err)
		case err != nil:
			failure = err
		}
		decided, err := c.checkPrimary(ctx, m)
		if decided {
			return err
		}
		if err != nil {
			failure = err
		}
		if failure == nil && !step.again(ctx) || failure != nil && !step.wait(ctx) {
			return m.ref.fail(CodeUnknown, c.start, c.commit, failure)
		}
	}
}

// checkPrimary finds out whether the transaction has committed or was rolled back, when the write of
// the primary failed or did not meet its condition. If neither is decided, it takes note of the
// revision that the row has now.
func (c *committer) checkPrimary(ctx context.Context, m *mutation) (decided bool, err error) {
	row, points, err := c.db.read(ctx, m.ref, 0, c.start)
	if err != nil {
		return false, err
	}
	if mutant.On(mutant.PrimaryUnchecked) {
		m.revision = row.Revision
		return false, nil
	}
	if row.Record.Start != 0 {
		if row.Record.Commit == 0 {
			err = m.ref.fail(CodeAborted, c.start, 0, nil)
		}
		return true, err
	}
	l, err := lockOf(&row, points)
	if err != nil {
		return false, err
	}
	if points.Safe > c.start {
		// Garbage collection may have removed the record, whichever it was.
		if mutant.On(mutant.LostRecordAborts) {
			return true, m.ref.fail(CodeAborted, c.start, 0, nil)
		}
		return true, m.ref.fail(CodeUnknown, c.start, c.commit, nil)
	}
	if l == nil || l.start != c.start {
		err := isotone.Errorf(isotone.CodeInternal, "the row of the primary has neither lock nor record")
		return true, m.ref.fail(CodeUnknown, c.start, c.commit, err)
	}
	m.revision = row.Revision
	return false, nil
}

// finish commits the secondaries. Readers do it as well if they come first.
func (c *committer) finish(ctx context.Context) {
	ctx, end := c.db.span(ctx, "secondaries")
	defer end(nil)
	ctx, cancel := c.db.finishing(ctx)
	defer cancel()
	list := c.list[1:]
	_ = c.db.parallel(len(list), func(i int) error {
		m := list[i]
		c.release(ctx, m, Version{Commit: c.commit, Deleted: m.deleted, Value: m.value})
		return nil
	})
}

// undo removes the locks. It leaves no mark: a mark stops a transaction that may go on to commit, and
// this one does not.
func (c *committer) undo(ctx context.Context) {
	ctx, end := c.db.span(ctx, "undo")
	defer end(nil)
	ctx, cancel := c.db.finishing(ctx)
	defer cancel()
	_ = c.db.parallel(len(c.list), func(i int) error {
		if c.list[i].touched {
			c.release(ctx, c.list[i], Version{})
		}
		return nil
	})
}

// release replaces the transaction's lock of a row by v, or by nothing if v is zero. If the lock is
// gone, somebody else has done it.
func (c *committer) release(ctx context.Context, m *mutation, v Version) {
	step := c.db.stepPause()
	for {
		err := c.releaseOnce(ctx, m, v)
		if err == nil && !m.locked {
			return
		}
		if err == nil && !step.again(ctx) || err != nil && !step.wait(ctx) {
			if c.db.opts.Hooks.Left != nil {
				c.db.opts.Hooks.Left(m.ref.space, []byte(m.ref.key), err)
			}
			return
		}
	}
}

// releaseOnce clears m.locked when the row has no lock of the transaction any more.
func (c *committer) releaseOnce(ctx context.Context, m *mutation, v Version) error {
	if m.locked {
		done, err := c.db.write(ctx, m.ref, Change{If: m.revision, Next: next(m.revision), Put: v})
		if done && err == nil {
			m.locked = false
			return nil
		}
	}
	row, points, err := c.db.read(ctx, m.ref, 0, 0)
	if err != nil {
		return err
	}
	l, err := lockOf(&row, points)
	if err != nil {
		return err
	}
	m.locked = l != nil && l.start == c.start || mutant.On(mutant.SecondaryUnchecked) && v.Commit != 0
	m.revision = row.Revision
	return nil
}
