package txn

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn/internal/mutant"
)

// Tx is a transaction. It reads the snapshot of its start, and its own writes, which it keeps in
// memory until it commits. It must not be used by several goroutines at once.
type Tx struct {
	db       *DB
	start    isotone.Timestamp64
	commit   isotone.Timestamp64
	began    time.Time // for Hooks, and to guess how long the locks are needed
	readOnly bool
	frontier bool // it reads at a frontier
	done     bool
	bytes    int
	writes   map[ref]*mutation
	// seen has the revisions of rows that were read and may be locked: they had no lock, and no version
	// after the start. While a row has that revision, there is no need to look at it again.
	seen map[ref]uint64
}

// mutation is a key that the transaction writes.
type mutation struct {
	ref     ref
	deleted bool
	value   []byte

	// The state of the commit. Only one goroutine at a time has a mutation.

	seen     bool   // the row may be locked if it has this revision
	touched  bool   // a lock may have been written
	locked   bool   // the lock was there, and the row had this revision
	revision uint64 // if seen or locked
}

// Pair is a key with its value.
type Pair struct{ Key, Value []byte }

// Start returns the start timestamp.
func (tx *Tx) Start() isotone.Timestamp64 { return tx.start }

// CommitTimestamp returns the commit timestamp. It is 0 before the commit, and if the transaction has
// written nothing; after an error with CodeUnknown it is the one that the transaction may have.
func (tx *Tx) CommitTimestamp() isotone.Timestamp64 { return tx.commit }

// Get returns the value of a key of the store with the name space, and whether it has one. The
// caller owns the value. Get waits for transactions that are about to commit, if their timestamps
// may be in the snapshot; see Options.LockWait.
//
// Errors: CodeTooOld, CodeLocked, CodeStore, CodeOracle (by which it learns whether a lock has
// expired), CodeDone.
func (tx *Tx) Get(ctx context.Context, space string, key []byte) ([]byte, bool, error) {
	r, err := tx.ref(space, key)
	if err != nil {
		return nil, false, err
	}
	if m, ok := tx.writes[r]; ok {
		return bytes.Clone(m.value), !m.deleted, nil
	}
	row, err := tx.settle(ctx, r, &patience{now: tx.start})
	if err != nil {
		return nil, false, err
	}
	isNewest := row.Newest <= tx.start || mutant.On(mutant.SeenTooNew)
	if len(row.Lock) == 0 && isNewest && len(tx.seen) < tx.db.opts.KeysMax {
		tx.seen[r] = row.Revision
	}
	v := row.Version
	return v.Value, v.Commit != 0 && !v.Deleted, nil
}

// settle reads a row for the snapshot.
func (tx *Tx) settle(ctx context.Context, r ref, p *patience) (Row, error) {
	if tx.frontier {
		return tx.db.readAt(ctx, r, tx.start)
	}
	return tx.db.settle(ctx, r, tx.start, p)
}

// Set writes a value, which is copied. It becomes visible when the transaction has committed.
//
// Errors: isotone.ErrInvalidArgument if the key, the value or the transaction becomes too large, the
// space is unknown or the transaction is read-only; CodeDone.
func (tx *Tx) Set(space string, key, value []byte) error {
	if len(value) > ValueSizeMax {
		return invalid("a value has %d bytes; at most %d", len(value), ValueSizeMax)
	}
	return tx.put(space, key, mutation{value: append([]byte{}, value...)})
}

// Delete removes a key, whether or not it has a value. Its errors are those of Set.
func (tx *Tx) Delete(space string, key []byte) error {
	return tx.put(space, key, mutation{deleted: true})
}

func (tx *Tx) put(space string, key []byte, m mutation) error {
	r, err := tx.ref(space, key)
	if err != nil {
		return err
	}
	if tx.readOnly {
		return invalid("the transaction is read-only")
	}
	old, ok := tx.writes[r]
	size := tx.bytes + len(m.value)
	if ok {
		size -= len(old.value)
	} else {
		size += len(key)
	}
	if !ok && len(tx.writes) >= tx.db.opts.KeysMax {
		return invalid("the transaction writes more than %d keys", tx.db.opts.KeysMax)
	}
	if size > tx.db.opts.BytesMax {
		return invalid("the transaction writes more than %d bytes", tx.db.opts.BytesMax)
	}
	m.ref, tx.bytes = r, size
	tx.writes[r] = &m
	return nil
}

// ref checks the arguments that all operations have.
func (tx *Tx) ref(space string, key []byte) (ref, error) {
	if tx.done {
		return ref{}, &Error{Code: CodeDone, Start: tx.start}
	}
	if _, err := tx.db.store(space); err != nil {
		return ref{}, err
	}
	if len(key) == 0 || len(key) > KeySizeMax {
		return ref{}, invalid("a key has %d bytes; want 1 to %d", len(key), KeySizeMax)
	}
	return ref{space, string(key)}, nil
}

// Scan returns the keys from from to before to that have a value, in order, with their values; an
// empty from stands for the first key and an empty to for the end of all. It returns at most limit
// pairs (1 to [ScanRowsMax]), and the key to go on with, or nil if there is nothing more. It may
// return fewer pairs, even none, and a key to go on with. [Tx.All] does all of this.
//
// Errors are those of Get, and isotone.ErrInvalidArgument.
func (tx *Tx) Scan(ctx context.Context, space string, from, to []byte, limit int) (pairs []Pair, next []byte, err error) {
	// Keys in a range need not be keys of rows: the one to go on with is a byte longer.
	if len(from) > KeySizeMax+1 || len(to) > KeySizeMax+1 || limit < 1 || limit > ScanRowsMax {
		return nil, nil, invalid("a scan: want keys of up to %d bytes and a limit of 1 to %d", KeySizeMax, ScanRowsMax)
	}
	if _, err := tx.ref(space, []byte{0}); err != nil {
		return nil, nil, err
	}
	if len(to) > 0 && bytes.Compare(from, to) >= 0 {
		return nil, nil, nil
	}
	page, err := tx.page(ctx, space, Range{From: from, To: to, Limit: limit})
	if err != nil {
		return nil, nil, err
	}
	if page.More && !mutant.On(mutant.PartialScan) {
		next = after(page.Entries[len(page.Entries)-1].Key)
		to = next
	}
	pairs = tx.merge(space, page.Entries, from, to)
	if len(pairs) > limit {
		pairs = pairs[:limit]
		next = after(pairs[limit-1].Key)
	}
	return pairs, next, nil
}

// page reads rows, and settles those that are locked.
func (tx *Tx) page(ctx context.Context, space string, r Range) (Page, error) {
	name := ref{space: space, key: string(r.From)}
	page, err := tx.db.scan(ctx, space, r, tx.start)
	if err != nil {
		return Page{}, storeError(name, tx.start, err)
	}
	if page.Points.Safe > tx.start && !mutant.On(mutant.ReadBelowSafe) {
		return Page{}, name.fail(CodeTooOld, tx.start, page.Points.Safe, nil)
	}
	p := &patience{now: tx.start}
	tx.notice(page.Entries)
	for i := range page.Entries {
		e := &page.Entries[i]
		name := ref{space: space, key: string(e.Key)}
		if len(e.Row.Lock) == 0 {
			continue
		}
		l, err := decodeLock(e.Row.Lock)
		if err != nil {
			return Page{}, storeError(name, tx.start, err)
		}
		if mutant.On(mutant.VoidTooSoon) && isVoid(l, page.Points) {
			continue
		}
		// Whether the lock is void, the page does not tell: settle reads the row again.
		if l.start > tx.start || mutant.On(mutant.ScanIgnoresLocks) {
			continue
		}
		if e.Row, err = tx.settle(ctx, name, p); err != nil {
			return Page{}, err
		}
	}
	return page, nil
}

// notice takes note of the locks on a page that settle is going to meet one after the other, so that those of
// clients that died expire together.
func (tx *Tx) notice(entries []Entry) {
	now := tx.db.opts.Now()
	for i := range entries {
		if len(entries[i].Row.Lock) == 0 {
			continue
		}
		if l, err := decodeLock(entries[i].Row.Lock); err == nil && l.start <= tx.start {
			tx.db.watched.areUnchanged(l, l.expires, now, now)
		}
	}
}

// merge returns the values in entries, changed as the transaction itself has written from from to
// before to.
func (tx *Tx) merge(space string, entries []Entry, from, to []byte) []Pair {
	pairs := make([]Pair, 0, len(entries))
	for _, e := range entries {
		v := e.Row.Version
		_, own := tx.writes[ref{space, string(e.Key)}]
		if v.Commit != 0 && !v.Deleted && !own {
			pairs = append(pairs, Pair{Key: e.Key, Value: v.Value})
		}
	}
	for r, m := range tx.writes {
		inside := r.key >= string(from) && (len(to) == 0 || r.key < string(to))
		if r.space == space && inside && !m.deleted {
			pairs = append(pairs, Pair{Key: []byte(r.key), Value: bytes.Clone(m.value)})
		}
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return bytes.Compare(a.Key, b.Key) })
	return pairs
}

// All yields what Scan returns for the whole range. After an error, which comes with the zero Pair,
// it ends.
func (tx *Tx) All(ctx context.Context, space string, from, to []byte) iter.Seq2[Pair, error] {
	const limit = 256 // rows that one call of a store reads
	return func(yield func(Pair, error) bool) {
		for from := from; ; {
			pairs, next, err := tx.Scan(ctx, space, from, to, limit)
			if err != nil {
				yield(Pair{}, err)
				return
			}
			for _, pair := range pairs {
				if !yield(pair, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			from = next
		}
	}
}

// after returns the smallest key that is larger than key.
func after(key []byte) []byte { return append(bytes.Clone(key), 0) }

// Rollback ends the transaction without an effect. After Commit it does nothing.
func (tx *Tx) Rollback() {
	if !tx.done {
		tx.end(nil)
	}
}

// end marks the transaction as ended.
func (tx *Tx) end(err error) {
	tx.done = true
	if tx.db.opts.Hooks.Ended == nil {
		return
	}
	e := Ended{Start: tx.start, Keys: len(tx.writes), Took: tx.db.opts.Now().Sub(tx.began), Err: err}
	if err == nil {
		e.Commit = tx.commit
	}
	tx.db.opts.Hooks.Ended(e)
}

// revision returns the revision by which a row may be locked, if it is known.
func (tx *Tx) revision(r ref) (uint64, bool) {
	revision, ok := tx.seen[r]
	return revision, ok
}

// sorted returns the mutations in the order of their rows. The first is the primary.
func (tx *Tx) sorted() []*mutation {
	list := make([]*mutation, 0, len(tx.writes))
	for r, m := range tx.writes {
		m.revision, m.seen = tx.revision(r)
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *mutation) int {
		if c := strings.Compare(a.ref.space, b.ref.space); c != 0 {
			return c
		}
		return strings.Compare(a.ref.key, b.ref.key)
	})
	return list
}
