package forward_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/trace"
	"github.com/isotone/isotone/internal/proxy/forward"
)

// ask is one request of the default order that a cluster got.
type ask struct {
	Mode  isotone.ReadMode
	Count uint64
}

// lineAsk is one of a timeline.
type lineAsk struct {
	timeline string
	ask
	floor isotone.Timestamp
	until time.Time // its deadline
}

// cluster is a source in memory.
type cluster struct {
	mu     sync.Mutex
	next   uint64
	asks   []ask
	floors []isotone.Timestamp // of asks
	traces []*trace.Context    // of asks
	err    error
	hold   chan struct{} // if not nil, requests wait until it is closed
	above  chan struct{} // the same for requests with a floor

	lineAsks []lineAsk
	lineNext map[string]uint64
	silent   map[string]bool  // timelines whose owner does not answer
	faults   map[string]error // of timelines
}

// line is a request of a timeline. Its time is the length of the name.
func (c *cluster) line(ctx context.Context, w forward.Want) (isotone.Range, error) {
	c.mu.Lock()
	until, _ := ctx.Deadline()
	c.lineAsks = append(c.lineAsks, lineAsk{w.Timeline, ask{w.Mode, w.Count}, w.Floor, until})
	c.traces = append(c.traces, trace.Of(ctx))
	if c.lineNext == nil {
		c.lineNext = map[string]uint64{}
	}
	first := isotone.Timestamp{Time: uint64(len(w.Timeline)), Index: c.lineNext[w.Timeline]}
	c.lineNext[w.Timeline] += w.Count
	silent, hold, err := c.silent[w.Timeline], c.hold, c.faults[w.Timeline]
	c.mu.Unlock()
	if silent {
		hold = make(chan struct{})
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return isotone.Range{}, isotone.Errorf(isotone.CodeDeadlineExceeded, "%v", ctx.Err())
		}
	}
	return isotone.Range{First: first, Count: w.Count}, err
}

// ReadWrite answers with the time to apply, one later for each that was asked for before.
func (c *cluster) ReadWrite(ctx context.Context, w forward.Want) (uint64, error) {
	r, err := c.line(ctx, w)
	return w.At + r.First.Index, err
}

func (c *cluster) Timestamps(ctx context.Context, w forward.Want) (isotone.Range, error) {
	if w.Timeline != "" {
		return c.line(ctx, w)
	}
	mode, floor, count := w.Mode, w.Floor, w.Count
	c.mu.Lock()
	c.asks = append(c.asks, ask{mode, count})
	c.floors = append(c.floors, floor)
	c.traces = append(c.traces, trace.Of(ctx))
	hold, err := c.hold, c.err
	if floor != (isotone.Timestamp{}) && c.above != nil {
		hold = c.above
	}
	first := isotone.Timestamp{Time: 7, Index: c.next}
	c.next += count
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return isotone.Range{}, isotone.Errorf(isotone.CodeDeadlineExceeded, "%v", ctx.Err())
		}
	}
	return isotone.Range{First: first, Count: count}, err
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) asked() []ask {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asks)
}

// turns is an upstream whose turns the test takes by itself.
type turns struct {
	*forward.Upstream
	*cluster
	woken chan struct{}
	now   time.Duration
}

func newTurns(t testing.TB, cfg forward.Config) *turns {
	u := &turns{cluster: &cluster{}, woken: make(chan struct{}, 1)}
	cfg.Source = u.cluster
	u.Upstream = forward.NewUpstream(cfg, func() {
		select {
		case u.woken <- struct{}{}:
		default:
		}
	})
	t.Cleanup(u.Upstream.Close)
	u.Turn(0) // which asks whether there is an answer
	u.until(t, "the cluster has answered", func() bool { return u.Status().NotReady == "" })
	u.set(func() { u.asks = nil })
	return u
}

// until takes turns until a condition holds.
func (u *turns) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		select {
		case <-u.woken:
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		u.Turn(u.now)
	}
}

// submitted is a batch and how often it was answered.
type submitted struct {
	front.Batch
	done int
}

func (u *turns) submit(mode isotone.ReadMode, counts ...uint64) *submitted {
	return u.submitAbove(isotone.Timestamp{}, mode, counts...)
}

func (u *turns) submitAbove(floor isotone.Timestamp, mode isotone.ReadMode, counts ...uint64) *submitted {
	b := &submitted{Batch: front.Batch{Mode: mode, Floor: floor, Raise: true, Counts: counts, Ranges: make([]isotone.Range, len(counts))}}
	b.Done = func(*front.Batch) { b.done++ }
	u.Submit(&b.Batch)
	return b
}

// submitTo submits a batch of a timeline.
func (u *turns) submitTo(timeline string, b front.Batch, counts ...uint64) *submitted {
	s := &submitted{Batch: b}
	s.Timeline, s.Counts, s.Ranges = timeline, counts, make([]isotone.Range, len(counts))
	s.Done = func(*front.Batch) { s.done++ }
	u.Submit(&s.Batch)
	return s
}

// linesAsked returns the requests of timelines that the cluster got.
func (c *cluster) linesAsked() []lineAsk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lineAsks)
}
