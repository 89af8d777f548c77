package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/search"
	"github.com/isotone/isotone/internal/reply"
	"github.com/isotone/isotone/snowflake"
)

const (
	// LeaseDefault is the length of a worker lease if none is given.
	LeaseDefault = 30 * time.Second
	// leaseMin leaves time to renew a lease; leaseMax is the longest that a cluster grants.
	leaseMin = 100 * time.Millisecond
	leaseMax = time.Hour
	// releaseTimeout bounds how long Close tries to return a lease.
	releaseTimeout = time.Second
	// behindPoll is the pause in which a call that waits because the clock went back looks at the clock again.
	behindPoll = 10 * time.Millisecond
)

// GeneratorOptions configures a [Generator]. The zero value is a good default.
type GeneratorOptions struct {
	// Lease is the length of a worker lease; 0 means LeaseDefault. A killed process blocks
	// its worker for that long. While no node is reachable, the generator can make IDs for
	// at least two thirds of it.
	Lease time.Duration
	// Fixed requests the worker Worker and no other. The lowest quarter of the workers is for nodes only.
	Fixed  bool
	Worker int
	// Now is the clock of the IDs, in unix milliseconds; nil means the system clock.
	Now func() int64
	// AheadMax is as in snowflake.Options.
	AheadMax time.Duration
}

func (o *GeneratorOptions) validate() error {
	if o.Lease != 0 && (o.Lease < leaseMin || o.Lease > leaseMax) {
		return isotone.Errorf(isotone.CodeInvalidArgument, "a lease of %v: want %v to %v", o.Lease, leaseMin, leaseMax)
	}
	if o.Worker < 0 {
		return isotone.Errorf(isotone.CodeInvalidArgument, "worker %d", o.Worker)
	}
	return nil
}

// Generator makes IDs in this process, without a request for each: the cluster leases it a
// worker, and it renews the lease. The IDs are unique even if clocks are wrong, because two
// leases of one worker never share a millisecond of IDs (I9). Make it with
// [Client.NewGenerator]. All methods are safe for concurrent use.
type Generator struct {
	c       *Client
	opt     GeneratorOptions
	session string // identifies this generator to the cluster; another one after a refusal

	ids atomic.Pointer[snowflake.Generator]
	// behind has the generator that makes no IDs because the clock went back. A report that does not
	// fit is dropped: the next call repeats it.
	behind chan *snowflake.Generator

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	why     error         // of the latest attempt to renew; nil if it succeeded
	grant   grant

	cancel context.CancelFunc
	ctx    context.Context
	work   sync.WaitGroup
	once   sync.Once
}

// grant is the answer to a request for a lease.
type grant struct {
	worker  int
	lease   snowflake.Lease
	layout  snowflake.Layout
	session string // in which it was requested
}

// NewGenerator leases a worker and returns a generator of its IDs. It waits for the lease
// until ctx is done. Close the generator before the client.
func (c *Client) NewGenerator(ctx context.Context, o GeneratorOptions) (*Generator, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Lease == 0 {
		o.Lease = LeaseDefault
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	g := &Generator{c: c, opt: o, changed: make(chan struct{}), session: newSession(), behind: make(chan *snowflake.Generator, 1)}
	g.ctx, g.cancel = context.WithCancel(c.ctx)
	if err := g.lease(ctx); err != nil {
		g.cancel()
		return nil, err
	}
	g.work.Go(g.keep)
	return g, nil
}

func newSession() string {
	var session [8]byte
	_, _ = rand.Read(session[:])                                       // never fails
	return fmt.Sprintf("%016x", binary.BigEndian.Uint64(session[:])|1) // never 0, which means no session
}

// Next returns the next ID. It waits, at most until ctx is done, while the layout allows no
// more IDs, while the lease has ended and is not renewed yet, and, unless the worker is fixed, while
// the clock has gone back by more than AheadMax and no other worker is leased yet.
func (g *Generator) Next(ctx context.Context) (snowflake.ID, error) {
	var id [1]snowflake.ID
	if err := g.NextN(ctx, id[:]); err != nil {
		return 0, err
	}
	return id[0], nil
}

// NextN fills ids with the next IDs, which are consecutive as in snowflake.Generator.TryFill. It waits as Next does.
func (g *Generator) NextN(ctx context.Context, ids []snowflake.ID) error {
	for {
		changed := g.news()
		source := g.ids.Load()
		err := g.try(source, ids)
		if err != nil && !g.isBehind(err) {
			err = source.NextN(ctx, ids)
		}
		var again <-chan time.Time
		switch {
		case g.isBehind(err):
			again = time.After(behindPoll)
		case !errors.Is(err, snowflake.ErrLeaseEnded):
			if ctx.Err() != nil && err == ctx.Err() {
				return g.c.timeoutError(ctx)
			}
			return err
		}
		if source != g.ids.Load() {
			continue
		}
		select {
		case <-changed:
		case <-again:
		case <-g.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			if again != nil {
				return fmt.Errorf("%w; %w", g.timeoutError(ctx), err)
			}
			return g.timeoutError(ctx)
		}
	}
}

// TryNext returns the next ID without waiting; see snowflake.Generator.TryNext.
func (g *Generator) TryNext() (snowflake.ID, error) {
	var id [1]snowflake.ID
	err := g.TryFill(id[:])
	return id[0], err
}

// TryFill fills ids with the next IDs without waiting, or uses none up; see snowflake.Generator.TryFill.
func (g *Generator) TryFill(ids []snowflake.ID) error { return g.try(g.ids.Load(), ids) }

// try fills ids, and reports a clock that went back to keep.
func (g *Generator) try(source *snowflake.Generator, ids []snowflake.ID) error {
	err := source.TryFill(ids)
	if g.isBehind(err) {
		select {
		case g.behind <- source:
		default:
		}
	}
	return err
}

// isBehind reports whether an error means that the clock is behind the IDs of the lease, or behind its
// beginning, which was the time of the clock when the lease was requested. That may last for as long as the clock had been
// ahead, so another worker is leased. A fixed worker waits for its clock.
func (g *Generator) isBehind(err error) bool {
	if err == nil || g.opt.Fixed {
		return false
	}
	var clock *snowflake.InvalidSystemClock
	return errors.Is(err, snowflake.ErrLeaseNotBegun) || errors.As(err, &clock) && clock.Fault == snowflake.ClockBehind
}

// Worker returns the current worker. It changes only after a lease was lost, an operator has
// revoked it, or the clock went back.
func (g *Generator) Worker() int { return g.ids.Load().Worker() }

// Layout returns the layout of the IDs, which is the cluster's.
func (g *Generator) Layout() snowflake.Layout { return g.ids.Load().Layout() }

// Lease returns the interval of ID milliseconds that is currently leased.
func (g *Generator) Lease() snowflake.Lease { return g.ids.Load().Lease() }

// Close ends the generator and returns the rest of its lease to the cluster. If the leader is
// not reached within a second, Close returns an error, and the lease expires later.
func (g *Generator) Close() (err error) {
	g.once.Do(func() {
		g.cancel()
		g.work.Wait()
		used := g.ids.Load().Stop()
		ctx, cancel := context.WithTimeout(g.c.ctx, releaseTimeout)
		defer cancel()
		err = g.release(ctx, g.grant, used)
	})
	return err
}

// release returns the rest of a lease from the millisecond used on.
func (g *Generator) release(ctx context.Context, of grant, used int64) error {
	_, err := g.c.toLeader(ctx, "WORKER", "RELEASE", of.session, strconv.Itoa(of.worker),
		strconv.FormatInt(of.lease.Start, 10), strconv.FormatInt(used, 10))
	return err
}

func (g *Generator) timeoutError(ctx context.Context) error {
	g.mu.Lock()
	why := g.why
	g.mu.Unlock()
	if why != nil {
		return fmt.Errorf("%w; the worker's lease: %v", g.c.timeoutError(ctx), why)
	}
	return g.c.timeoutError(ctx)
}

// news returns a channel that is closed at the next change of the lease.
func (g *Generator) news() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// keep renews the lease at every third of its length, or soon after a failure. If the clock went back it requests
// another one, in another session: in its own it would get the same.
//
// IDs stay unique (I9), however often clocks jump back and forth, because no argument rests on a clock. The cluster gives no millisecond of a
// worker to two grants. Here each grant has one generator, whose numbers only grow: follow makes one for a new grant and extends it for
// a renewal, a session that was given up is never used again, and the rest of its grant is returned only after its generator was stopped.
func (g *Generator) keep() {
	timer := time.NewTimer(g.opt.Lease / 3)
	defer timer.Stop()
	var gaveUp time.Time
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-timer.C:
		case source := <-g.behind:
			// A worker that was used ahead of the clock is free only when the clock has been there, so a clock that keeps
			// jumping must not use up many. And a request that failed may have been granted: it is repeated in its session.
			if source != g.ids.Load() || g.session != g.grant.session || time.Since(gaveUp) < min(g.opt.Lease/3, search.RefusedPauseMax) {
				continue
			}
			g.session, gaveUp = newSession(), time.Now()
		}
		ctx, cancel := context.WithTimeout(g.ctx, g.opt.Lease/3)
		err := g.lease(ctx)
		cancel()
		next := g.opt.Lease / 3
		var refusal *isotone.Error
		switch {
		case err == nil:
		case errors.As(err, &refusal) && !repeatable(refusal.Code):
			next = min(next, search.RefusedPauseMax)
		default:
			next = min(next, search.PauseMax) // toLeader has paused already
		}
		timer.Reset(next)
	}
}

// lease requests a lease or its renewal, which is the same command, and uses it. If a renewal
// is refused because the lease was revoked, or has ended and no worker is free, the next request
// is in another session: a cluster grants a session nothing else while its revoked lease lasts.
// IDs of that may still be made.
func (g *Generator) lease(ctx context.Context) error {
	command := []string{"WORKER", "LEASE", g.session,
		strconv.FormatInt(g.opt.Now(), 10), strconv.FormatInt(g.opt.Lease.Milliseconds(), 10)}
	last := isotone.Code("")
	if g.ids.Load() != nil && !g.opt.Fixed {
		last = isotone.CodeNoWorker
	}
	if g.opt.Fixed {
		command = append(command, "FIXED", strconv.Itoa(g.opt.Worker))
	}
	v, err := g.c.toLeaderUnless(ctx, last, command...)
	var got grant
	if err == nil {
		got, err = grantOf(v)
	}
	if err == nil {
		got.session = g.session
		err = g.follow(ctx, got)
	}
	if last != "" && errors.Is(err, isotone.ErrNoWorker) {
		g.session = newSession()
	}
	g.mu.Lock()
	g.why = err
	g.mu.Unlock()
	return err
}

// follow switches to a grant. A grant of the same worker that begins no later than the last
// one ends extends it: had there been another holder in between, it would begin later. Any
// other grant needs a new generator. What is left of a revoked lease is returned then.
func (g *Generator) follow(ctx context.Context, got grant) error {
	now := g.ids.Load()
	last := g.grant // written here only
	if now != nil && last.worker == got.worker && last.layout == got.layout && got.lease.Start <= last.lease.End {
		now.Extend(got.lease.End)
	} else {
		next, err := snowflake.NewGenerator(got.worker, snowflake.Options{
			Layout: got.layout, Now: g.opt.Now, Lease: got.lease, AheadMax: g.opt.AheadMax,
		})
		if err != nil {
			return err
		}
		g.ids.Store(next)
		if now != nil {
			if used := now.Stop(); last.session != got.session {
				defer func() { _ = g.release(ctx, last, used) }() // or it ends by itself
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grant = got
	close(g.changed)
	g.changed = make(chan struct{})
	return nil
}

// grantOf decodes [worker, start, end, layout, epoch].
func grantOf(v reply.Value) (grant, error) {
	if len(v.Items) != 5 {
		return grant{}, reply.Malformed("a lease of %d parts", len(v.Items))
	}
	for i, kind := range ":::$:" {
		if got := v.Items[i].Kind; got != byte(kind) && (kind != '$' || got != '+') {
			return grant{}, reply.Malformed("part %d of a lease", i+1)
		}
	}
	worker, lease := v.Items[0].Int, snowflake.Lease{Start: v.Items[1].Int, End: v.Items[2].Int}
	if worker < 0 || worker > 1<<31 || lease.Start < 0 || lease.Start >= lease.End {
		return grant{}, reply.Malformed("a lease of worker %d from %d to %d", worker, lease.Start, lease.End)
	}
	layout, err := snowflake.ParseLayout(string(v.Items[3].Text), v.Items[4].Int)
	if err != nil {
		return grant{}, fmt.Errorf("%w: %w", reply.ErrMalformed, err)
	}
	return grant{worker: int(worker), lease: lease, layout: layout}, nil
}
