package client

import (
	"bufio"
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/reply"
)

// AloneMax is how many calls with floors of their own may wait.
const AloneMax = aloneMax

// Waiting returns how many calls wait to be sent.
func Waiting(c *Client) (calls uint64) {
	orders := []*order{&c.stamps.order, &c.ahead.order, &c.ids.order}
	c.timelines.mu.Lock()
	orders = slices.AppendSeq(orders, maps.Values(c.timelines.orders))
	c.timelines.mu.Unlock()
	for _, o := range orders {
		o.mu.Lock()
		for _, b := range slices.Concat(o.ready, o.alone) {
			calls += b.calls()
		}
		calls += o.waiting()
		o.mu.Unlock()
	}
	return calls
}

// Free returns how many connections to the leader have no request under way.
func Free(c *Client) int { return int(c.stamps.nfree.Load() + c.direct.nfree.Load()) }

// WithSteady returns options with a steady clock.
func WithSteady(now func() interval.Instant) ClockOptions { return ClockOptions{steady: now} }

// WithProbe returns options with a shorter time between questions to other nodes.
func WithProbe(d time.Duration) ClockOptions { return ClockOptions{probe: d} }

// Waits returns how many calls of Wait wait.
func Waits(k *Clock) int {
	k.waits.mu.Lock()
	defer k.waits.mu.Unlock()
	return len(k.waits.heap)
}

// Parse reads an answer in every way: as one to a command, and as one to requests for
// timestamps and for IDs. It returns the results for the requests.
func Parse(text []byte, count uint64) (first [2]uint64, ids []int64, refused bool, err error) {
	reader := func() *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(text), bufferSize) }
	if v, err := reply.Read(reader(), limits); err == nil {
		_, _ = viewOf(v, "host:1")
		if id, told, err := clusterOf(string(v.Text)); id != 0 && (!told || err != nil) {
			panic("client: unexpected cluster ID")
		}
		_, _ = grantOf(v)
	}
	id := newBatch(nil, kindID)
	id.state.Store(stateCall + count)
	if err := readAnswer(reader(), id); err == nil {
		for _, id := range id.ids {
			ids = append(ids, int64(id))
		}
	}
	b := newBatch(nil, kindDefault)
	b.state.Store(stateCall + count)
	err = readAnswer(reader(), b)
	_, refused = err.(*isotone.Error)
	if refused {
		err = nil
	}
	return [2]uint64{b.first.Time, b.first.Index}, ids, refused, err
}

// Reached returns how many connections for timelines there are to a node.
func Reached(c *Client, addr string) int {
	c.timelines.mu.Lock()
	defer c.timelines.mu.Unlock()
	if p := c.timelines.nodes[addr]; p != nil {
		return p.node.conns
	}
	return 0
}

// WaitForOwners has a client wait that long for late answers of timelines.
func WaitForOwners(c *Client, d time.Duration) { c.timelines.patience.Store(int64(d)) }
