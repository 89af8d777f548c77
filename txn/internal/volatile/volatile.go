// Package volatile is a store in memory of which a restart loses what was not synced. It is for tests and
// simulations: it shows writes at once, and leaves it to its callers when they are synced, and who is told
// what before that.
package volatile

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
)

// Store is a txn.Fenced. Its methods may be called concurrently.
type Store struct {
	mu     sync.Mutex
	shown  *memory.Store
	log    []change // all changes that shown has
	synced int      // as many of them survive
}

// change is a write that was applied, or a raise, or a seal.
type change struct {
	key    []byte // nil for a raise or a seal
	change txn.Change
	points txn.Points
	sealed isotone.Timestamp64
}

// New returns an empty store.
func New() *Store { return &Store{shown: memory.New()} }

// Written returns the number of changes so far.
func (s *Store) Written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// Synced returns how many of the changes survive a restart.
func (s *Store) Synced() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Sync has the first n changes survive.
func (s *Store) Sync(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = max(s.synced, min(n, len(s.log)))
}

// Clone returns a copy that goes its own way.
func (s *Store) Clone() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	clone := &Store{log: slices.Clone(s.log)}
	clone.Restart(len(clone.log))
	return clone
}

// Restart loses all but the first n changes: at least those that are synced, unless that is what is to be
// tested. What is left has been read from the disk, and survives.
func (s *Store) Restart(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = min(n, len(s.log))
	s.log = s.log[:s.synced]
	s.shown = memory.New()
	for i := range s.log {
		if done, err := s.apply(&s.log[i]); !done || err != nil {
			panic(fmt.Sprintf("a change that was applied is not any more: %v, %v", done, err))
		}
	}
}

func (s *Store) apply(c *change) (bool, error) {
	if c.sealed != 0 {
		return true, s.shown.Seal(context.Background(), c.sealed)
	}
	if c.key == nil {
		return true, s.shown.Raise(context.Background(), c.points)
	}
	return s.shown.Write(context.Background(), c.key, c.change)
}

func (s *Store) add(c change) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done, err := s.apply(&c)
	if done && err == nil {
		s.log = append(s.log, c)
	}
	return done, err
}

func (s *Store) now() *memory.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}

// Write implements txn.Store.
func (s *Store) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c.Lock, c.Put.Value = bytes.Clone(c.Lock), bytes.Clone(c.Put.Value)
	return s.add(change{key: bytes.Clone(key), change: c})
}

// Raise implements txn.Store.
func (s *Store) Raise(ctx context.Context, p txn.Points) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.add(change{points: p})
	return err
}

// Read implements txn.Store.
func (s *Store) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	return s.now().Read(ctx, key, at, start)
}

// Scan implements txn.Store.
func (s *Store) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (txn.Page, error) {
	return s.now().Scan(ctx, r, at)
}

// Points implements txn.Store.
func (s *Store) Points(ctx context.Context) (txn.Points, error) { return s.now().Points(ctx) }

// Seal implements txn.Fenced.
func (s *Store) Seal(ctx context.Context, through isotone.Timestamp64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.add(change{sealed: through})
	return err
}
