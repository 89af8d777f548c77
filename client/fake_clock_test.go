package client_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/core/interval"
)

// fakeClock is the cluster clock of a fake cluster. Every node answers with what it shows, while there
// is a leader. It is guarded by cluster.mu.
type fakeClock struct {
	now    func() uint64 // nil: the time of package time
	length time.Duration // of limits; 0: limitLength
	term   uint64        // 0: 1
	id     isotone.ClusterID
	widths []uint64 // of the bounds that nodes tell, by node
}

// limitLength is the length of limits unless a test says otherwise.
const limitLength = 100 * time.Millisecond

var begun = time.Now()

// read returns what the clock shows.
func (f *fakeClock) read() uint64 {
	if f.now != nil {
		return f.now()
	}
	return 1e18 + uint64(time.Since(begun))
}

func (f *fakeClock) reading(index int) interval.Reading {
	now := f.read()
	r := interval.Reading{Cluster: uint64(f.id), Term: max(f.term, 1), Earliest: now, Latest: now, Limit: now + uint64(limitLength)}
	if f.length > 0 {
		r.Limit = now + uint64(f.length)
	}
	if f.id == 0 {
		r.Cluster = uint64(fakeID)
	}
	if index < len(f.widths) {
		r.Earliest, r.Latest = now-f.widths[index]/2, now+f.widths[index]/2
	}
	return r
}

// interval answers INTERVAL. The cluster's mutex is held.
func (c *cluster) interval(index int, args []string) []byte {
	if c.leader < 0 {
		return []byte("-CLUSTERDOWN no reading of the cluster clock is valid\r\n")
	}
	return answerReading(c.clock.reading(index), nonceOf(args))
}

func nonceOf(args []string) uint64 {
	nonce, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil || len(args) != 2 {
		panic("fake: a bad nonce")
	}
	return nonce
}

func answerReading(r interval.Reading, nonce uint64) []byte {
	return append(r.Append([]byte("$48\r\n"), nonce), "\r\n"...)
}

// hands are those of a steady clock that a test moves.
type hands struct{ at atomic.Int64 }

func (h *hands) now() interval.Instant { return interval.At(h.at.Load()) }

func (h *hands) move(d time.Duration) { h.at.Add(int64(d)) }

// follow has the cluster clock move with the hands, at a rate, from where it is.
func (c *cluster) follow(h *hands, rate float64) {
	c.change(func() {
		from, shown := h.at.Load(), uint64(1e18)
		if c.clock.now != nil {
			shown = c.clock.now()
		}
		c.clock.now = func() uint64 { return shown + uint64(float64(h.at.Load()-from)*rate) }
	})
}

// clock returns a Clock that ends with the test.
func clock(t testing.TB, c *client.Client, o client.ClockOptions) *client.Clock {
	t.Helper()
	k, err := c.NewClock(within(t, 10*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// moved returns a Clock whose steady clock and cluster clock are moved by hand.
func moved(t testing.TB, f *cluster) (*client.Clock, *hands) {
	t.Helper()
	h := &hands{}
	h.at.Store(1e15)
	f.follow(h, 1)
	return clock(t, f.dial(client.Options{}), client.WithSteady(h.now)), h
}

// synced waits for a reading that was asked for from now on.
func synced(t testing.TB, k *client.Clock) {
	t.Helper()
	before := k.Stats().Readings
	await.Until(t, "two more readings", func() bool { return k.Stats().Readings >= before+2 })
}
