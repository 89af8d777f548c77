package storetest

import (
	"errors"
	"fmt"
	"math"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

// testSeal is for stores that are txn.Fenced.
func testSeal(f *fixture) {
	s, ok := f.store.(txn.Fenced)
	if !ok {
		f.Skip("the store has no fence")
	}
	const through = 1<<40 + 1<<33 // more than 32 bits
	for _, seal := range []isotone.Timestamp64{7, through, 9} {
		if err := s.Seal(f.ctx, seal); err != nil {
			f.Fatal(err)
		}
	}
	for i := range 16 { // in several parts
		key := fmt.Sprint("k", i)
		f.write(key, txn.Change{Lock: []byte("l"), Put: txn.Version{Commit: 3}}) // no commit of a primary
		f.write(key, txn.Change{Lock: []byte("l"), Record: txn.Record{Start: 5}})
		before := f.read(key, math.MaxInt64, 6)
		c := txn.Change{If: before.Revision, Next: f.next(), Put: txn.Version{Commit: through}, Record: txn.Record{Start: 6, Commit: through}}
		for _, commit := range []isotone.Timestamp64{1, 9, 1 << 33, through} {
			c.Record.Commit = commit
			if done, err := f.store.Write(f.ctx, []byte(key), c); done || !errors.Is(err, isotone.ErrFenced) {
				f.Errorf("a commit at %v was answered with %v, %v; all up to %v are sealed", commit, done, err, isotone.Timestamp64(through))
			}
		}
		f.want(key, math.MaxInt64, 6, before)
		c.If += 1 << 20
		if f.try(key, c) {
			f.Error("a write with another revision succeeded")
		}
		c.If, c.Record.Commit = before.Revision, through+1
		if !f.try(key, c) {
			f.Error("a commit above the fence was refused")
		}
	}
}
