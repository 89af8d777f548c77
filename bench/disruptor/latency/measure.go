package main

import (
	"context"
	"runtime"
	"time"
)

const capacity = 1 << 16

// receive is called with the number of each message, in order, by one goroutine.
type receive func(seq int)

// path passes numbers from one goroutine to another.
type path struct {
	name string
	// open starts the goroutine that receives. send must be called by one goroutine with 0, 1, 2 and so
	// on, and waits while there is no room. close returns when everything sent has been received.
	open func(receive) (send func(seq int), close func(), err error)
}

// course is one measurement: message number i is due i*gap after start.
type course struct {
	start     time.Time
	gap       float64 // nanoseconds
	warm      int     // messages that are not counted
	latencies []time.Duration
	last      time.Duration // when the last message arrived, after start
	cpus      []int         // of the sender and the receiver; empty: they are not pinned
	pinErr    error         // of the receiver
}

func (c *course) due(seq int) time.Duration { return time.Duration(float64(seq) * c.gap) }

// pin pins the calling goroutine to the CPU with that index, modulo how many there are.
func (c *course) pin(i int) error {
	if len(c.cpus) == 0 {
		return nil
	}
	return pin(c.cpus[i%len(c.cpus)])
}

// receive notes how late a message is. The receiver is pinned by its first message.
func (c *course) receive(seq int) {
	if seq == 0 {
		c.pinErr = c.pin(1)
	}
	now := time.Since(c.start)
	if seq >= c.warm {
		c.latencies[seq-c.warm] = now - c.due(seq)
	}
	c.last = now
}

// send sends n messages when they are due, or at once if it is late. Between two it lets other goroutines run, and
// never sleeps: timers are too coarse.
func (c *course) send(ctx context.Context, n int, send func(int)) error {
	for seq := range n {
		for time.Since(c.start) < c.due(seq) && ctx.Err() == nil {
			runtime.Gosched()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		send(seq)
	}
	return nil
}

// measure sends o.messages() through p, pinned if there are cpus. Sender and receiver have new goroutines, because a pinned one takes its
// thread with it when it ends.
func measure(ctx context.Context, p path, o options, cpus []int) (result, error) {
	n := o.messages()
	c := &course{gap: 1e9 / float64(o.rate), warm: n / 10, cpus: cpus}
	c.latencies = make([]time.Duration, n-c.warm)
	clear(c.latencies) // brings the pages in
	runtime.GC()
	done := make(chan error)
	go func() { done <- c.run(ctx, n, p) }()
	if err := <-done; err != nil {
		return result{}, err
	}
	r := newResult(c.latencies, c.last-c.due(c.warm))
	r.Path, r.Pinned = p.name, len(cpus) > 0
	return r, nil
}

func (c *course) run(ctx context.Context, n int, p path) error {
	send, end, err := p.open(c.receive)
	if err != nil {
		return err
	}
	if err := c.pin(0); err != nil {
		end()
		return err
	}
	c.start = time.Now()
	err = c.send(ctx, n, send)
	end()
	if err != nil {
		return err
	}
	return c.pinErr
}
