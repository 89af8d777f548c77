package main

import (
	"context"
	"runtime"
	"sync/atomic"

	smarty "github.com/smarty/go-disruptor"

	"github.com/isotone/isotone/disruptor"
)

// paths are all there are, in the order of the table.
var paths = []path{
	{"ring", func(r receive) (func(int), func(), error) { return openRing(r, disruptor.Park) }},
	{"ring-spin", func(r receive) (func(int), func(), error) { return openRing(r, disruptor.Spin) }},
	{"channel", openChannel},
	{"go-disruptor", openOther},
}

func pathNames() (names []string) {
	for _, p := range paths {
		names = append(names, p.name)
	}
	return names
}

// handler receives from a ring.
type handler struct {
	ring    *disruptor.Ring[int]
	receive receive
}

func (h handler) Consume(lower, upper int64) {
	for seq := lower; seq <= upper; seq++ {
		h.receive(*h.ring.At(uint64(seq)))
	}
}

func openRing(r receive, wait disruptor.Wait) (send func(int), end func(), err error) {
	ring, err := disruptor.New[int](capacity)
	if err != nil {
		return nil, nil, err
	}
	runner, err := ring.Runner(disruptor.Group{handler{ring, r}})
	if err != nil {
		return nil, nil, err
	}
	runner.Wait = wait
	producer := ring.Producer()
	ctx := context.Background()
	send = func(seq int) {
		lo, hi, err := producer.Reserve(ctx, 1)
		if err != nil {
			panic(err) // the ring is open, and ctx has no end
		}
		*ring.At(lo) = seq
		producer.Commit(lo, hi)
	}
	return send, func() { _ = runner.Stop(ctx) }, runner.Start()
}

func openChannel(r receive) (send func(int), end func(), err error) {
	messages, done := make(chan int, capacity), make(chan struct{})
	go func() {
		defer close(done)
		for seq := range messages {
			r(seq)
		}
	}()
	return func(seq int) { messages <- seq }, func() { close(messages); <-done }, nil
}

// otherHandler receives from go-disruptor, which leaves the slots to its user.
type otherHandler struct {
	slots    *[capacity]int
	receive  receive
	received atomic.Int64
}

func (h *otherHandler) Handle(lower, upper int64) {
	for seq := lower; seq <= upper; seq++ {
		h.receive(h.slots[seq&(capacity-1)])
	}
	h.received.Store(upper + 1)
}

// openOther uses go-disruptor with its default waits.
func openOther(r receive) (send func(int), end func(), err error) {
	h := &otherHandler{slots: new([capacity]int), receive: r}
	d, err := smarty.New(smarty.Options.BufferCapacity(capacity), smarty.Options.WriterCount(1), smarty.Options.NewHandlerGroup(h))
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() { defer close(done); d.Listen() }()
	var sent int64
	send = func(message int) {
		seq := d.Reserve(1)
		h.slots[seq&(capacity-1)] = message
		d.Commit(seq, seq)
		sent++
	}
	end = func() {
		// Close may overtake the last commit.
		for h.received.Load() < sent {
			runtime.Gosched()
		}
		_ = d.Close()
		<-done
	}
	return send, end, nil
}
