package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// errCut is what a client gets from everything that it calls once its line was cut.
var errCut = errors.New("the line was cut")

// line is all that connects one client with the stores and the oracle. When it is cut, no call
// reaches them any more, and the answers of those under way are lost. So the client leaves everything
// as if its process had been killed: it cannot undo a commit that it has begun.
type line struct {
	cut atomic.Bool
	// writes is how many writes of a store are left before the line is cut; at most 0 if it is not
	// going to be.
	writes atomic.Int64
}

// cutAfter has the line cut at its n-th write from now, which is in the middle of some commit.
func (l *line) cutAfter(n int64) { l.writes.Store(n) }

// through returns the stores as they are reached through the line.
func (l *line) through(all stores) map[string]txn.Store {
	reached := map[string]txn.Store{}
	for name, store := range all {
		reached[name] = &far{Store: store, line: l}
	}
	return reached
}

// call calls f unless the line is cut, and loses the answer if it is cut meanwhile.
func (l *line) call(f func() error) error {
	if l.cut.Load() {
		return errCut
	}
	err := f()
	if l.cut.Load() {
		return errCut
	}
	return err
}

// far is a store at the end of a line.
type far struct {
	txn.Store
	line *line
}

func (f *far) Read(ctx context.Context, key []byte, at, start isotone.Timestamp64) (row txn.Row, points txn.Points, err error) {
	err = f.line.call(func() (err error) {
		row, points, err = f.Store.Read(ctx, key, at, start)
		return err
	})
	return row, points, err
}

func (f *far) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (page txn.Page, err error) {
	err = f.line.call(func() (err error) {
		page, err = f.Store.Scan(ctx, r, at)
		return err
	})
	return page, err
}

// Write cuts the line when it is time: by the flip of a coin before the write is sent, or before
// its answer arrives.
func (f *far) Write(ctx context.Context, key []byte, c txn.Change) (ok bool, err error) {
	last := f.line.writes.Add(-1) == 0
	if last && c.Next%2 == 0 {
		f.line.cut.Store(true)
	}
	err = f.line.call(func() (err error) {
		ok, err = f.Store.Write(ctx, key, c)
		if last {
			f.line.cut.Store(true)
		}
		return err
	})
	return ok && err == nil, err
}

func (f *far) Points(ctx context.Context) (points txn.Points, err error) {
	err = f.line.call(func() (err error) {
		points, err = f.Store.Points(ctx)
		return err
	})
	return points, err
}

func (f *far) Raise(ctx context.Context, p txn.Points) error {
	return f.line.call(func() error { return f.Store.Raise(ctx, p) })
}

// farOracle is the oracle at the end of a line.
type farOracle struct {
	txn.Oracle
	line *line
}

func (f farOracle) Timestamp64(ctx context.Context) (t isotone.Timestamp64, err error) {
	err = f.line.call(func() (err error) {
		t, err = f.Oracle.Timestamp64(ctx)
		return err
	})
	return t, err
}
