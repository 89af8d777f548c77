package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

const (
	// nameSizeMax is the largest length of a name.
	nameSizeMax = 255
	// batchMax bounds the writes in one transaction of bbolt, and so how long one of them waits for
	// others: at 1 MiB each it writes 128 MiB.
	batchMax = 128
	// format is the version of the layout. Open refuses another one.
	format = 1
)

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("the store is closed")

// Options configures a [Store].
type Options struct {
	// Name is the bucket of the store in the file: 1 to 255 bytes. Stores with different names have
	// nothing in common, except that writes of one wait for those of the others.
	Name string
}

// Store is a txn.Fenced in a file. Its methods may be called concurrently.
type Store struct {
	disk *disk
	name []byte

	// updates has no buffer: an update that the writer has not taken is never applied.
	updates chan *update
	closed  chan struct{}
	close   sync.Once
	writer  sync.WaitGroup
	reading sync.RWMutex // Close waits for those who have it for reading
}

// update is a write or a raise.
type update struct {
	apply func(*buckets) (bool, error)
	done  chan struct{} // closed when the rest is set
	ok    bool
	err   error
}

// Open returns the store with a name in an open file, and creates it if there is none. The file must
// stay open as long as the store.
//
// Errors: isotone.ErrInvalidArgument if the name or the file cannot be used, or the store has another
// format; [ErrFailed]; those of bbolt.
func Open(file *bbolt.DB, opts Options) (*Store, error) {
	switch {
	case file == nil:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "boltstore: the file is nil")
	case file.IsReadOnly():
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "boltstore: the file is read-only")
	case file.NoSync:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "boltstore: NoSync is set, by which answered writes would be lost")
	case len(opts.Name) < 1 || len(opts.Name) > nameSizeMax:
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "boltstore: Name has %d bytes: want 1 to %d", len(opts.Name), nameSizeMax)
	}
	s := &Store{disk: acquire(file), name: []byte(opts.Name), updates: make(chan *update), closed: make(chan struct{})}
	// The commit syncs the file even if the store exists: a process that was killed may have left in it
	// what is not on the disk yet.
	if err := s.disk.update(func(tx *bbolt.Tx) error { return create(tx, s.name) }); err != nil {
		s.disk.release()
		return nil, wrap("open", err)
	}
	s.writer.Go(s.write)
	return s, nil
}

// Close waits until no call is under way any more. From then on all methods fail with [ErrClosed]. It does
// not close the file.
func (s *Store) Close() {
	s.close.Do(func() {
		close(s.closed)
		s.writer.Wait()
		s.disk.release()
	})
	s.reading.Lock()
	defer s.reading.Unlock()
}

// write is the writer.
func (s *Store) write() {
	batch := make([]*update, 0, batchMax)
	for {
		select {
		case u := <-s.updates:
			batch = append(batch[:0], u)
		case <-s.closed:
			return
		}
		for waiting := true; waiting && len(batch) < batchMax; {
			select {
			case u := <-s.updates:
				batch = append(batch, u)
			default:
				waiting = false
			}
		}
		s.commit(batch)
		clear(batch)
	}
}

// commit applies updates in one transaction. If it fails, all of them fail.
func (s *Store) commit(batch []*update) {
	err := s.disk.update(func(tx *bbolt.Tx) error {
		b := bucketsOf(tx, s.name)
		for _, u := range batch {
			var err error
			if u.ok, err = u.apply(b); err != nil {
				return err
			}
		}
		return nil
	})
	for _, u := range batch {
		u.err = err
		close(u.done)
	}
}

// submit has the writer apply a function, which must not use memory of the caller. After an error it
// may be applied later.
func (s *Store) submit(ctx context.Context, apply func(*buckets) (bool, error)) (bool, error) {
	if err := s.check(ctx); err != nil {
		return false, err
	}
	u := &update{apply: apply, done: make(chan struct{})}
	select {
	case s.updates <- u:
	case <-s.closed:
		return false, ErrClosed
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case <-u.done:
		return u.ok && u.err == nil, u.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (s *Store) check(ctx context.Context) error {
	select {
	case <-s.closed:
		return ErrClosed
	default:
		return ctx.Err()
	}
}

// view runs f in a read transaction, of what is on the disk.
func (s *Store) view(ctx context.Context, f func(*buckets) error) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	if err := s.check(ctx); err != nil {
		return err
	}
	tx, err := s.disk.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return f(bucketsOf(tx, s.name))
}

// Read implements txn.Store.
func (s *Store) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (row txn.Row, points txn.Points, err error) {
	err = s.view(ctx, func(b *buckets) (err error) {
		if row, err = b.read(key, at, start); err == nil {
			points, err = b.points()
		}
		return err
	})
	if err != nil {
		return txn.Row{}, txn.Points{}, wrap("read", err)
	}
	return row, points, nil
}

// Scan implements txn.Store.
func (s *Store) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (page txn.Page, err error) {
	err = s.view(ctx, func(b *buckets) (err error) {
		if page, err = b.scan(ctx, r, at); err == nil {
			page.Points, err = b.points()
		}
		return err
	})
	if err != nil {
		return txn.Page{}, wrap("scan", err)
	}
	return page, nil
}

// Write implements txn.Store.
func (s *Store) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	// The write may go on after Write has returned.
	key, c.Lock, c.Put.Value = bytes.Clone(key), bytes.Clone(c.Lock), bytes.Clone(c.Put.Value)
	var refused error
	ok, err := s.submit(ctx, func(b *buckets) (ok bool, err error) {
		ok, refused, err = b.write(key, &c)
		return ok, err
	})
	if err == nil { // the writer is done with it
		err = refused
	}
	return ok && err == nil, wrap("write", err)
}

// Points implements txn.Store.
func (s *Store) Points(ctx context.Context) (points txn.Points, err error) {
	err = s.view(ctx, func(b *buckets) (err error) {
		points, err = b.points()
		return err
	})
	return points, wrap("points", err)
}

// Raise implements txn.Store.
func (s *Store) Raise(ctx context.Context, p txn.Points) error {
	_, err := s.submit(ctx, func(b *buckets) (bool, error) { return true, b.raise(p) })
	return wrap("raise", err)
}

// Seal implements txn.Fenced.
func (s *Store) Seal(ctx context.Context, through isotone.Timestamp64) error {
	_, err := s.submit(ctx, func(b *buckets) (bool, error) { return true, b.seal(through) })
	return wrap("seal", err)
}

// wrap names the operation in an error.
func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("boltstore: %s: %w", name, err)
}
