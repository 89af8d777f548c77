package peer

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// queueFramesMax bounds the messages waiting for one peer. Raft itself keeps
	// a few hundred appends in flight; with the rounds of a busy leader on top
	// this is more than a second of traffic, and past that a message is stale.
	queueFramesMax = 4096
	// queueBytesMax bounds the same in encoded bytes: two of the largest frames.
	queueBytesMax = 2 * FrameSizeMax
)

// outbox holds the messages that wait for one peer's connection, and those that
// are being written: both count, so a peer that does not read costs no more than
// the limits. It is open while a connection is.
type outbox struct {
	// wake gets a token when there is something to take.
	wake chan struct{}

	mu     sync.Mutex
	open   bool
	queue  []*raftpb.Message
	frames int
	bytes  int
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) setOpen(open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.frames, o.bytes = open, 0, 0
	clear(o.queue)
	o.queue = o.queue[:0]
}

// push queues those of msgs for which size gives a number and that find room. It
// reports whether all were queued.
func (o *outbox) push(msgs []*raftpb.Message, size func(*raftpb.Message) (int, bool)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		return len(msgs) == 0
	}
	all := true
	for _, m := range msgs {
		n, ok := size(m)
		if !ok || o.frames == queueFramesMax || o.bytes+n > queueBytesMax {
			all = false
			continue
		}
		o.queue = append(o.queue, m)
		o.frames++
		o.bytes += n
	}
	if len(o.queue) > 0 {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return all
}

// take returns all queued messages and their encoded size; the caller gives both
// back to release when they are written. spare is the slice to queue into from
// now on.
func (o *outbox) take(spare []*raftpb.Message) (batch []*raftpb.Message, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch, o.queue = o.queue, spare[:0]
	return batch, o.bytes
}

// release makes room again after frames messages of bytes in total. Nothing else
// is in flight: there is one writer.
func (o *outbox) release(frames, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frames -= frames
	o.bytes -= bytes
}
