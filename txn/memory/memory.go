// Package memory is a store of transactions in memory, for tests, and for what is not worth keeping.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// pageBytes bounds the values and locks in an answer to a scan.
const pageBytes = 4 << 20

// Store is a txn.Fenced. Nothing of it survives the process.
type Store struct {
	mu     sync.Mutex
	rows   map[string]*row
	sorted []string // the keys of rows in order, or nil if that has to be made anew
	points txn.Points
	sealed isotone.Timestamp64
}

type row struct {
	revision uint64
	lock     []byte
	versions []txn.Version // by commit timestamp
	records  []txn.Record  // by start timestamp
}

// New returns an empty store.
func New() *Store { return &Store{rows: map[string]*row{}} }

// Read implements txn.Store.
func (s *Store) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (txn.Row, txn.Points, error) {
	if err := ctx.Err(); err != nil {
		return txn.Row{}, txn.Points{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.rows[string(key)]
	if !ok {
		return txn.Row{}, s.points, nil
	}
	return r.read(at, start), s.points, nil
}

// read copies what a caller may see.
func (r *row) read(at, start isotone.Timestamp64) txn.Row {
	out := txn.Row{Revision: r.revision, Lock: bytes.Clone(r.lock)}
	if n := len(r.versions); n > 0 {
		out.Newest, out.OldestVersion = r.versions[n-1].Commit, r.versions[0].Commit
	}
	if i := r.visible(at); i >= 0 {
		out.Version = r.versions[i]
		out.Version.Value = bytes.Clone(out.Version.Value)
	}
	if i, found := searchRecords(r.records, start); found {
		out.Record = r.records[i]
	}
	if len(r.records) > 0 {
		out.OldestRecord = r.records[0].Start
	}
	return out
}

// visible returns the index of the newest version at or before at, or -1.
func (r *row) visible(at isotone.Timestamp64) int {
	i, found := searchVersions(r.versions, at)
	if found {
		return i
	}
	return i - 1
}

func searchVersions(list []txn.Version, commit isotone.Timestamp64) (int, bool) {
	return slices.BinarySearchFunc(list, commit, func(v txn.Version, t isotone.Timestamp64) int {
		return cmp.Compare(v.Commit, t)
	})
}

func searchRecords(list []txn.Record, start isotone.Timestamp64) (int, bool) {
	return slices.BinarySearchFunc(list, start, func(r txn.Record, t isotone.Timestamp64) int {
		return cmp.Compare(r.Start, t)
	})
}

// Scan implements txn.Store.
func (s *Store) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (txn.Page, error) {
	if err := ctx.Err(); err != nil {
		return txn.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted == nil {
		s.sorted = slices.Sorted(maps.Keys(s.rows))
	}
	page := txn.Page{Points: s.points}
	first, _ := slices.BinarySearch(s.sorted, string(r.From))
	size := 0
	for _, key := range s.sorted[first:] {
		if len(r.To) > 0 && key >= string(r.To) {
			return page, nil
		}
		if len(page.Entries) == r.Limit || size > pageBytes {
			page.More = true
			return page, nil
		}
		row := s.rows[key].read(at, 0)
		size += len(row.Lock) + len(row.Version.Value)
		page.Entries = append(page.Entries, txn.Entry{Key: []byte(key), Row: row})
	}
	return page, nil
}

// Write implements txn.Store.
func (s *Store) Write(ctx context.Context, key []byte, c txn.Change) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.rows[string(key)]
	if !ok {
		r = &row{}
	}
	if r.revision != c.If {
		return false, nil
	}
	if c.Record.Commit != 0 && c.Record.Commit <= s.sealed {
		return false, isotone.Errorf(isotone.CodeFenced, "memory: the commit timestamp %v comes too late: all up to %v are sealed", c.Record.Commit, s.sealed)
	}
	r.apply(c)
	exists := len(r.lock) > 0 || len(r.versions) > 0 || len(r.records) > 0
	switch {
	case exists && !ok:
		s.rows[string(key)] = r
		s.sorted = nil
	case !exists && ok:
		delete(s.rows, string(key))
		s.sorted = nil
	}
	return true, nil
}

func (r *row) apply(c txn.Change) {
	r.revision = c.Next
	r.lock = bytes.Clone(c.Lock)
	if v := c.Put; v.Commit != 0 {
		v.Value = bytes.Clone(v.Value)
		i, found := searchVersions(r.versions, v.Commit)
		r.versions = put(r.versions, i, found, v)
	}
	if c.Record.Start != 0 {
		i, found := searchRecords(r.records, c.Record.Start)
		r.records = put(r.records, i, found, c.Record)
	}
	i, _ := searchVersions(r.versions, c.DropVersions)
	r.versions = slices.Delete(r.versions, 0, i)
	i, _ = searchRecords(r.records, c.DropRecords)
	r.records = slices.Delete(r.records, 0, i)
}

func put[T any](list []T, i int, found bool, v T) []T {
	if found {
		list[i] = v
		return list
	}
	return slices.Insert(list, i, v)
}

// Points implements txn.Store.
func (s *Store) Points(ctx context.Context) (txn.Points, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.points, ctx.Err()
}

// Raise implements txn.Store.
func (s *Store) Raise(ctx context.Context, p txn.Points) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points.Safe = max(s.points.Safe, p.Safe)
	s.points.Resolved = max(s.points.Resolved, p.Resolved)
	return nil
}

// Seal implements txn.Fenced.
func (s *Store) Seal(ctx context.Context, through isotone.Timestamp64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = max(s.sealed, through)
	return nil
}
