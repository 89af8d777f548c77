package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/replica"
	"github.com/isotone/isotone/internal/storage"
)

// disk writes beside the loop, so that a slow fsync delays no answer. Writes are
// saved in order; those that queue up while one is under way share the next
// transaction.
type disk struct {
	store *storage.Store
	// saved is called with writes that are durable, failed with the first error,
	// after which nothing more is written (I8). Both run on the disk's goroutine.
	saved   func([]*replica.Write)
	failed  func(error)
	observe func(time.Duration)

	mu     sync.Mutex
	ready  sync.Cond
	queue  []*replica.Write // bounded by what raft gives out unconfirmed
	closed bool
	done   chan struct{}
}

func newDisk(s *storage.Store) *disk {
	d := &disk{store: s, done: make(chan struct{})}
	d.ready.L = &d.mu
	return d
}

// write queues writes. The slice is the caller's.
func (d *disk) write(ws []*replica.Write) {
	d.mu.Lock()
	d.queue = append(d.queue, ws...)
	d.mu.Unlock()
	d.ready.Signal()
}

// run saves until close is called and the queue is empty, or a write fails.
func (d *disk) run() {
	defer close(d.done)
	var batch []storage.Write
	for {
		ws := d.next()
		if ws == nil {
			return
		}
		batch = batch[:0]
		for _, w := range ws {
			batch = append(batch, storage.Write{
				HardState: w.HardState, Entries: w.Entries, Snapshot: w.Snapshot, Compact: w.Compact, ClusterID: w.ClusterID,
			})
		}
		began := time.Now()
		if err := d.store.Save(batch...); err != nil {
			d.failed(fmt.Errorf("this node's disk failed, and it must not go on: %w", err))
			return
		}
		d.observe(time.Since(began))
		d.saved(ws)
	}
}

func (d *disk) next() []*replica.Write {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.queue) == 0 && !d.closed {
		d.ready.Wait()
	}
	ws := d.queue
	d.queue = nil
	return ws
}

// close waits for what is queued, then closes the store.
func (d *disk) close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.ready.Signal()
	<-d.done
	return d.store.Close()
}
