package txn

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// Collected says what garbage collection did.
type Collected struct {
	// Safe is the safe point.
	Safe isotone.Timestamp64
	// Locks is the number of locks that were removed, Rows that of rows that lost versions or records.
	Locks, Rows int
	// Skipped is the number of rows that others wrote meanwhile. Their garbage waits for the next time.
	Skipped int
}

// collectPage is how many rows are read at once.
const collectPage = 256

// Collect removes the versions and records that nobody needs to read snapshots of the last keep of
// time, by the time of the oracle. The timestamp that long ago becomes the safe point: transactions
// that started before it fail with CodeTooOld, so keep has to be longer than any transaction takes.
// The newest version at or before the safe point stays, unless it is a deletion.
//
// It works through all rows of all stores twice: first it ends the transactions that started before
// the safe point and still have locks, in every store, and only then it removes versions and records.
// It may run at any time and any number of times at once. If it fails or is interrupted, nothing is
// lost, and the next one starts over.
//
// Errors: CodeStore, CodeOracle, and isotone.ErrInvalidArgument if keep is negative.
func (db *DB) Collect(ctx context.Context, keep time.Duration) (result Collected, err error) {
	if keep < 0 {
		return Collected{}, invalid("garbage collection: the time to keep is %v", keep)
	}
	ctx, end := db.span(ctx, "collect")
	defer func() { end(err) }()
	now, err := db.timestamp(ctx, 0)
	if err != nil {
		return Collected{}, err
	}
	g := &collector{db: db}
	g.result.Safe = before(now, keep)
	return g.result, g.run(ctx)
}

// before returns the timestamp of that long before now.
func before(now isotone.Timestamp64, keep time.Duration) isotone.Timestamp64 {
	milli := uint64(keep.Milliseconds())
	if milli == 0 {
		return now
	}
	if milli > now.Milli() {
		return 0
	}
	return isotone.NewTimestamp64(now.Milli()-milli, now.Counter())
}

type collector struct {
	db     *DB
	result Collected
}

func (g *collector) run(ctx context.Context) error {
	safe := g.result.Safe
	spaces := slices.Sorted(maps.Keys(g.db.opts.Stores))
	// The order matters: see isVoid, and committer.stamp.
	if err := g.raise(ctx, spaces, Points{Safe: safe}); err != nil {
		return err
	}
	if !mutant.On(mutant.CollectUnresolved) {
		if err := g.each(ctx, spaces, g.unlock); err != nil {
			return err
		}
	}
	if err := g.raise(ctx, spaces, Points{Resolved: safe}); err != nil {
		return err
	}
	return g.each(ctx, spaces, g.drop)
}

func (g *collector) raise(ctx context.Context, spaces []string, p Points) error {
	for _, space := range spaces {
		for step := g.db.stepPause(); ; {
			err := g.db.raise(ctx, space, p)
			if err == nil {
				break
			}
			if !step.wait(ctx) {
				return &Error{Code: CodeStore, Space: space, Err: err}
			}
		}
	}
	return nil
}

// each calls f with every row of every store, as of the safe point.
func (g *collector) each(ctx context.Context, spaces []string, f func(context.Context, ref, *Row) error) error {
	for _, space := range spaces {
		r := Range{Limit: collectPage}
		for more := true; more; {
			page, err := g.page(ctx, space, r)
			if err != nil {
				return err
			}
			for i := range page.Entries {
				e := &page.Entries[i]
				if err := f(ctx, ref{space, string(e.Key)}, &e.Row); err != nil {
					return err
				}
				r.From = after(e.Key)
			}
			more = page.More
		}
	}
	return nil
}

func (g *collector) page(ctx context.Context, space string, r Range) (Page, error) {
	for step := g.db.stepPause(); ; {
		page, err := g.db.scan(ctx, space, r, g.result.Safe)
		if err == nil {
			return page, nil
		}
		if !step.wait(ctx) {
			return Page{}, &Error{Code: CodeStore, Space: space, Err: err}
		}
	}
}

// unlock removes the lock of a row if it started before the safe point, alive or not.
func (g *collector) unlock(ctx context.Context, r ref, row *Row) error {
	p := &patience{forced: true}
	found := false
	for step := g.db.stepPause(); ; {
		l, err := g.older(r, row)
		if err != nil {
			return err
		}
		if l == nil {
			if found {
				g.result.Locks++
			}
			return nil
		}
		found = true
		// The page is too old to tell whether the lock is void.
		fresh, points, err := g.db.read(ctx, r, g.result.Safe, 0)
		if err == nil {
			*row = fresh
			l, err = g.older(r, row)
		}
		switch {
		case err != nil || l == nil:
		case isVoid(l, points):
			_, err = g.db.write(ctx, r, Change{If: row.Revision, Next: next(row.Revision)})
		default:
			_, err = g.db.resolve(ctx, r, row, l, p)
		}
		if l == nil && err == nil {
			continue
		}
		if err == nil && !step.again(ctx) || err != nil && !step.wait(ctx) {
			return r.fail(CodeStore, 0, 0, cause(ctx, err))
		}
	}
}

// older returns the lock of a row if it started before the safe point.
func (g *collector) older(r ref, row *Row) (*lock, error) {
	if len(row.Lock) == 0 {
		return nil, nil
	}
	l, err := decodeLock(row.Lock)
	if err != nil {
		return nil, r.fail(CodeStore, 0, 0, err)
	}
	if l.start >= g.result.Safe {
		return nil, nil
	}
	return l, nil
}

// drop removes what the row does not need any more.
func (g *collector) drop(ctx context.Context, r ref, row *Row) error {
	for step := g.db.stepPause(); ; {
		c, useful := g.garbage(row)
		if !useful {
			return nil
		}
		done, err := g.db.write(ctx, r, c)
		switch {
		case err == nil && done:
			g.result.Rows++
			return nil
		case err == nil:
			g.result.Skipped++
			return nil
		case !step.wait(ctx):
			return r.fail(CodeStore, 0, 0, err)
		}
		if fresh, _, err := g.db.read(ctx, r, g.result.Safe, 0); err == nil {
			*row = fresh
		}
	}
}

// garbage returns the change that removes the garbage of a row, and whether there is any.
func (g *collector) garbage(row *Row) (Change, bool) {
	safe, v := g.result.Safe, row.Version
	c := Change{If: row.Revision, Next: next(row.Revision), Lock: row.Lock, DropVersions: v.Commit, DropRecords: safe}
	if v.Deleted || mutant.On(mutant.CollectTooMuch) && v.Commit != 0 {
		c.DropVersions++
	}
	if mutant.On(mutant.CollectRecords) {
		safe, c.DropRecords = 1<<62, 1<<62
	}
	versions := row.OldestVersion != 0 && row.OldestVersion < c.DropVersions
	records := row.OldestRecord != 0 && row.OldestRecord < safe
	return c, versions || records
}

// cause returns err, or else why ctx is done, or that a row changes all the time.
func cause(ctx context.Context, err error) error {
	return cmp.Or(err, context.Cause(ctx), errBusy)
}
