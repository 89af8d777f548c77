package boltstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/isotone/isotone/txn/internal/mutant"
)

// ErrFailed means that a commit to the file has failed, perhaps at an fsync. What the system shows of the
// file from then on may not be on the disk, so all stores in it refuse everything. It is final: end the
// program, find out what is wrong with the disk, and restart the machine before the file is used again.
var ErrFailed = errors.New("a commit to the file has failed, so what it shows may not be on the disk: see docs/txn.md#what-each-store-promises, bbolt")

// disk is what the stores in one file share. bbolt shows a transaction to others before its last fsync has
// returned, and also when that fails. So nobody begins to read while a commit is under way, or after one
// has failed.
type disk struct {
	file   *bbolt.DB
	commit func(*bbolt.Tx) error // (*bbolt.Tx).Commit; tests interfere
	stores int                   // open ones; disks.mu guards it

	mu      sync.Mutex
	changed sync.Cond     // of syncing and waiting
	syncing chan struct{} // closed when the commit under way has ended; nil if there is none
	waiting int           // readers that wait for that; the next commit lets them begin first
	failed  error
}

// disks has the disk of each file with an open store, and of each one that has failed: that is final.
var disks = struct {
	mu sync.Mutex
	of map[*bbolt.DB]*disk
}{of: map[*bbolt.DB]*disk{}}

// acquire returns the disk of a file. Each call needs one of release.
func acquire(file *bbolt.DB) *disk {
	disks.mu.Lock()
	defer disks.mu.Unlock()
	d := disks.of[file]
	if d == nil {
		d = &disk{file: file, commit: (*bbolt.Tx).Commit}
		d.changed.L = &d.mu
		disks.of[file] = d
	}
	d.stores++
	return d
}

func (d *disk) release() {
	disks.mu.Lock()
	defer disks.mu.Unlock()
	d.stores--
	if d.stores == 0 && d.failure() == nil {
		delete(disks.of, d.file)
	}
}

func (d *disk) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// begin begins to read what is on the disk. It waits for a commit that is under way, or until ctx is done.
func (d *disk) begin(ctx context.Context) (*bbolt.Tx, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.syncing != nil && !mutant.On(mutant.BoltShowsUnsynced) {
		if err := d.wait(ctx, d.syncing); err != nil {
			return nil, err
		}
	}
	if d.failed != nil {
		return nil, d.failed
	}
	return d.file.Begin(false)
}

// wait waits for the end of a commit. The next one does not begin before d.mu is released after that.
func (d *disk) wait(ctx context.Context, ended <-chan struct{}) error {
	d.waiting++
	d.mu.Unlock()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	d.mu.Lock()
	d.waiting--
	d.changed.Broadcast()
	return err
}

// update runs f in a transaction and commits it. When it returns nil, all is on the disk.
func (d *disk) update(f func(*bbolt.Tx) error) error {
	tx, err := d.file.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after the commit; f may panic
	if err := f(tx); err != nil {
		return err
	}
	d.mu.Lock()
	for d.syncing != nil || d.waiting > 0 {
		d.changed.Wait()
	}
	if d.failed != nil {
		d.mu.Unlock()
		return d.failed
	}
	ended := make(chan struct{})
	d.syncing = ended
	d.mu.Unlock()

	err = d.commit(tx)

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%w (%w)", ErrFailed, err)
		if !mutant.On(mutant.BoltGoesOn) {
			d.failed = err
		}
	}
	d.syncing = nil
	close(ended)
	d.changed.Broadcast()
	return err
}
