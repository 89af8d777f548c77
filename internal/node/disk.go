package node

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/storage"
)

// disk writes beside the loop, so that a slow fsync delays no answer.
type disk struct {
	store *storage.Store
	// saved is called with a write that is durable, failed with the first error,
	// after which nothing more is written (I8). Both run on the disk's goroutine.
	saved  func(*replica.Write)
	failed func(error)
	// observe is told how long a write took and how large the file is since, 0 if that is not
	// known. It runs on the disk's goroutine.
	observe func(took time.Duration, size int64)
	// clock is when a write began, in nanoseconds since began, or 0 between writes.
	began time.Time
	clock atomic.Int64
	// steps is nil but in builds for tests.
	steps Steps
	// seedDir is the data directory while the seed in it is needed, else "".
	seedDir string

	// queue holds one write at most: the replica gives out the next one when it is told
	// that this one is durable.
	queue chan *replica.Write
	done  chan struct{}
}

func newDisk(s *storage.Store) *disk {
	return &disk{store: s, began: time.Now(), queue: make(chan *replica.Write, 1), done: make(chan struct{})}
}

// underWay returns how long the current write has taken so far, 0 if there is none. Any
// goroutine may call it.
func (d *disk) underWay() time.Duration {
	since := d.clock.Load()
	if since == 0 {
		return 0
	}
	return time.Since(d.began) - time.Duration(since)
}

// write queues a write of the replica. It never blocks.
func (d *disk) write(w *replica.Write) { d.queue <- w }

// run saves until close is called and the queue is empty, or a write fails.
func (d *disk) run() {
	defer close(d.done)
	for w := range d.queue {
		began := time.Now()
		d.clock.Store(int64(max(1, began.Sub(d.began))))
		err := d.store.Save(storage.Write{
			HardState: w.HardState, Entries: w.Entries, Snapshot: w.Snapshot, Compact: w.Compact, ClusterID: w.ClusterID,
		})
		if err != nil {
			d.failed(fmt.Errorf("this node's disk failed, and it must not go on: %w", err))
			return
		}
		if err := d.dropSeed(w); err != nil {
			d.failed(fmt.Errorf("this node's disk failed, and it must not go on: %w", err))
			return
		}
		if d.steps != nil {
			d.steps.Written(w)
		}
		d.clock.Store(0)
		d.observe(time.Since(began), d.store.Size())
		d.saved(w)
	}
}

// dropSeed removes the seed once the cluster is formed, as the first log entry shows: another
// cluster formed from it would begin below the timestamps of this one.
func (d *disk) dropSeed(w *replica.Write) error {
	if d.seedDir == "" || len(w.Entries) == 0 {
		return nil
	}
	dir := d.seedDir
	d.seedDir = ""
	return backup.RemoveSeed(dir)
}

// close waits for what is queued, then closes the store. Nothing may be written any more.
func (d *disk) close() error {
	close(d.queue)
	<-d.done
	return d.store.Close()
}
