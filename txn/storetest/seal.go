package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

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

// testSealRace has commits race with seals. Once a seal has returned, nothing that is read at or below it may change.
func testSealRace(f *fixture) {
	s, ok := f.store.(txn.Fenced)
	if !ok {
		f.Skip("the store has no fence")
	}
	const (
		commits   = 8 // in a round, half of them sealed
		rounds    = 20
		roundsMax = 1000
	)
	var accepted, fenced atomic.Int64
	for round := 0; round < rounds || accepted.Load() == 0 || fenced.Load() == 0; round++ {
		if round == roundsMax {
			f.Fatalf("%d rounds were no race: of the commits that were sealed, %d were accepted and %d refused", round, accepted.Load(), fenced.Load())
		}
		first := isotone.Timestamp64(round*commits + 1)
		sealed := first + commits/2 - 1
		r := txn.Range{From: fmt.Appendf(nil, "%08d", first), To: fmt.Appendf(nil, "%08d", first+commits), Limit: commits}
		for commit := first; commit < first+commits; commit++ {
			f.write(fmt.Sprintf("%08d", commit), txn.Change{Lock: []byte("l")})
		}
		var told []txn.Entry
		var wg sync.WaitGroup
		for commit, e := range f.all(r, 0) {
			commit := first + isotone.Timestamp64(commit)
			c := txn.Change{If: e.Row.Revision, Next: f.next(), Put: txn.Version{Commit: commit}, Record: txn.Record{Start: commit, Commit: commit}}
			wg.Go(func() {
				done, err := s.Write(f.ctx, e.Key, c)
				switch refused := errors.Is(err, isotone.ErrFenced); {
				case done == refused || err != nil && !refused || refused && commit > sealed:
					f.Errorf("the commit at %v was answered with %v, %v; all up to %v are sealed", commit, done, err, sealed)
				case refused:
					fenced.Add(1)
				case commit <= sealed:
					accepted.Add(1)
				}
			})
			if commit == sealed {
				wg.Go(func() {
					if err := s.Seal(f.ctx, sealed); err != nil {
						f.Error(err)
						return
					}
					page, err := s.Scan(f.ctx, r, sealed)
					if told = page.Entries; err != nil || len(told) != commits {
						f.Errorf("Scan returned %d rows, %v", len(told), err)
					}
				})
			}
		}
		wg.Wait()
		for i, now := range f.all(r, sealed) {
			if f.Failed() || now.Row.Version.Commit != told[i].Row.Version.Commit || !bytes.Equal(now.Key, told[i].Key) {
				f.Fatalf("row %q has the version %v at %v; when that was sealed, it was %v", now.Key, now.Row.Version.Commit, sealed, told[i].Row.Version.Commit)
			}
		}
	}
	f.Logf("of the commits that were sealed, %d were accepted and %d refused", accepted.Load(), fenced.Load())
}
