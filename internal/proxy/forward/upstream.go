// Package forward answers requests for timestamps by asking a cluster: many requests become a
// few.
//
// An [Upstream] is a front.Backend without a loop of its own: a node with FORWARD has one in
// each of its loops. A [Gateway] is an Upstream with a loop, for a proxy. Package client, or
// whatever else is a [Source], talks to the cluster.
package forward

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/trace"
)

// Source is a cluster, as package client reaches it.
type Source interface {
	// Timestamps returns count consecutive timestamps, all larger than any that anybody had
	// been given when it was called (I4), and larger than floor, zero for none (I13). A span in
	// ctx (see trace.Of) is the parent of what the cluster traces.
	Timestamps(ctx context.Context, mode isotone.ReadMode, floor isotone.Timestamp, count uint64) (isotone.Range, error)
	// Timestamps64 is the same for the 64-bit form, with a count of at most isotone.Range64CountMax.
	Timestamps64(ctx context.Context, mode isotone.ReadMode, floor isotone.Timestamp, count uint64) (isotone.Range64, error)
}

// Config configures an [Upstream]. Source is required.
type Config struct {
	Source Source
	// Cluster returns the ID of the cluster that Source is pinned to, 0 until it is. Nil: it
	// tells none.
	Cluster func() isotone.ClusterID
	// Addr is the proxy's client address as told to others: clients that look for the
	// leader find the proxy.
	Addr string
	// RequestsMax bounds the requests that wait for an answer; beyond it they are
	// overloaded. Default 65536: as many clients as one proxy has.
	RequestsMax int
	// BundlesMax bounds the requests to the cluster that are under way. Default 8: package
	// client sends two at a time, and gathers what waits.
	BundlesMax int
	// Timeout bounds a request to the cluster. Default 5 s: several elections.
	Timeout time.Duration
	// Log is told when the cluster begins and ceases to answer. Nil discards.
	Log *slog.Logger
}

// Upstream is a [front.Backend] over a cluster: everything that came in one turn of the
// loop becomes one request for each read mode, so thousands of clients cost the leader
// what a few do.
//
// The cluster need not be told of a floor that it has passed: all later answers are larger. It would take a higher floor as that of
// this server, which may have the right to move time. So a floor is passed on only if its client has that right, and in a request of
// its own, so that it delays nobody else. Batches of other clients are requested without their floors, together with all others, and
// answered if the result is above the floor, as it is for every floor that the cluster has issued (I4). Otherwise the floor may
// still be within the clock: the batch is parked, without occupying a request, and requested again.
//
// A request never joins one that was sent before it arrived, because a bundle is closed
// before it is sent: so its timestamps are larger than all that anyone had got when it
// arrived, as if its client had asked the leader itself (I4).
//
// Submit and Status are for any goroutine, the other methods for the loop's, on which
// Done is called.
type Upstream struct {
	cfg  Config
	wake func() // ends a sleep of the loop

	mu       sync.Mutex
	incoming []*front.Batch // since the latest Turn
	answered []*bundle
	requests int // submitted and not answered
	closed   bool

	// The loop's.
	pending []*front.Batch             // that no bundle has yet
	floored []*front.Batch             // the same, with the right to move time and floors above highest; at most flooredMax
	parked  []parked                   // not above their floors yet; at most flooredMax
	began   map[*front.Batch]time.Time // of batches that were parked, when first
	due     *time.Timer                // wakes the loop for parked; nil before there was one
	turn    bool                       // it is the turn of floored
	highest isotone.Timestamp          // the largest that the cluster has answered
	taken   []*front.Batch             // for use as incoming
	settled []*bundle                  // for use as answered
	spare   []*bundle
	under   int           // bundles under way
	above   int           // those of them with a floor
	doubted bool          // one with a floor was not answered in time, which may be due to the floor
	probed  time.Duration // the latest probe
	told    telling

	work    chan *bundle // has room for all that may be under way
	workers sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc

	status  atomic.Pointer[front.Status]
	failing atomic.Pointer[string] // why, since the latest answer; nil if that was good
}

const (
	// bundlesSpareMax is how many bundles are kept for use again.
	bundlesSpareMax = 16
	// flooredMax bounds the batches that wait with a floor. It takes a cluster that was set back,
	// or clients of another one, to have so many.
	flooredMax = 1024
	// probeEvery is how often a cluster that does not answer is asked when no client does.
	probeEvery = time.Second
)

var errClosed = isotone.Errorf(isotone.CodeNoLeader, "the proxy is shutting down")

// errTimeline: the cluster is asked for the default order.
var errTimeline = isotone.Errorf(isotone.CodeInvalidArgument, "a proxy serves no timelines; ask a node of the cluster")

// NewUpstream returns an upstream. wake must be safe for concurrent use, and make the
// loop call Turn soon. The caller must Close it.
func NewUpstream(cfg Config, wake func()) *Upstream {
	if cfg.Source == nil || wake == nil {
		panic("forward: an Upstream without a Source or a wake")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.RequestsMax = cmp.Or(cfg.RequestsMax, 65536)
	cfg.BundlesMax = cmp.Or(cfg.BundlesMax, 8)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	u := &Upstream{cfg: cfg, wake: wake, work: make(chan *bundle, cfg.BundlesMax), began: map[*front.Batch]time.Time{}, probed: -probeEvery}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	const self = 1
	u.status.Store(&front.Status{
		NodeID: self, Role: "proxy", Leader: self, LeaderAddr: cfg.Addr, Members: []front.Member{{NodeID: self, Addr: cfg.Addr}},
	})
	starting := "the cluster has not answered yet"
	u.failing.Store(&starting)
	for range cfg.BundlesMax {
		u.workers.Go(u.ask)
	}
	return u
}

// Submit takes a batch into the turn that follows; see front.Backend.
func (u *Upstream) Submit(b *front.Batch) {
	u.mu.Lock()
	var err error
	switch {
	case u.closed:
		err = errClosed
	case b.Timeline != "":
		err = errTimeline
	case u.requests+len(b.Counts) > u.cfg.RequestsMax:
		err = isotone.Errorf(isotone.CodeOverloaded, "%d requests are waiting for the cluster", u.requests)
	default:
		u.incoming = append(u.incoming, b)
		u.requests += len(b.Counts)
	}
	u.mu.Unlock()
	if err != nil {
		b.Err = err
		b.Done(b)
		return
	}
	u.wake()
}

// Status describes the proxy as the leader of a cluster of one; see front.Backend. It is
// ready when the cluster answers.
func (u *Upstream) Status() *front.Status {
	why := u.failing.Load()
	named := u.named()
	if why == nil {
		return named
	}
	s := *named
	s.NotReady, s.NotReadyTimestamps, s.Leader, s.LeaderAddr = *why, *why, 0, ""
	return &s
}

// named returns the status of a proxy that is ready, with the cluster's ID as soon as that
// is known.
func (u *Upstream) named() *front.Status {
	s := u.status.Load()
	if s.ClusterID != 0 || u.cfg.Cluster == nil {
		return s
	}
	known := *s
	if known.ClusterID = uint64(u.cfg.Cluster()); known.ClusterID == 0 {
		return s
	}
	u.status.CompareAndSwap(s, &known)
	return u.status.Load()
}

// Turn answers what has been answered and sends what has come. The loop calls it after
// everything that was ready has been read.
func (u *Upstream) Turn(now time.Duration) {
	u.mu.Lock()
	in, out := u.incoming, u.answered
	u.incoming, u.answered = u.taken, u.settled
	u.mu.Unlock()
	for i, b := range out {
		u.settle(b)
		out[i] = nil
	}
	for i, batch := range in {
		u.admit(batch)
		in[i] = nil
	}
	u.taken, u.settled = in[:0], out[:0]
	u.unpark()
	u.send()
	if (u.failing.Load() != nil && u.under == 0 || u.doubted && u.under < u.cfg.BundlesMax) && now-u.probed >= probeEvery {
		u.probed, u.doubted = now, false
		u.begin(u.newBundle(isotone.ReadDefault, false))
	}
}

// admit takes a batch into those that wait.
func (u *Upstream) admit(b *front.Batch) {
	switch {
	case !b.Raise || !u.highest.Before(b.Floor):
		u.pending = append(u.pending, b)
	case len(u.floored) < flooredMax:
		u.floored = append(u.floored, b)
	default:
		b.Err = isotone.Errorf(isotone.CodeOverloaded, "%d requests with floors are waiting for the cluster", len(u.floored))
		u.done(b)
	}
}

// send makes bundles of what waits, as far as they may be under way. Those with floors take at most half
// of the places, because the cluster may hold them until its clock has passed the floor.
func (u *Upstream) send() {
	for u.under < u.cfg.BundlesMax {
		mayFloor := len(u.floored) > 0 && u.above < max(u.cfg.BundlesMax/2, 1)
		if !mayFloor && len(u.pending) == 0 {
			return
		}
		u.turn = !u.turn
		if mayFloor && (u.turn || len(u.pending) == 0) {
			b := u.floored[0]
			u.floored = slices.Delete(u.floored, 0, 1)
			u.begin(u.bundleOf(b))
		} else {
			u.begin(u.bundlePending())
		}
	}
}

// begin sends b on its way.
func (u *Upstream) begin(b *bundle) {
	u.under++
	if b.isAbove() {
		u.above++
	}
	u.work <- b
}

// ask is the goroutine that waits for one request at a time.
func (u *Upstream) ask() {
	for b := range u.work {
		ctx, cancel := context.WithTimeout(u.ctx, u.cfg.Timeout)
		if b.trace != nil {
			ctx = trace.With(ctx, *b.trace)
		}
		u.request(ctx, b)
		cancel()
		u.mu.Lock()
		u.answered = append(u.answered, b)
		u.mu.Unlock()
		u.wake()
	}
}

// request asks for all that b wants. One batch may want more than one request gives; it
// is then asked for by its requests, one after the other.
func (u *Upstream) request(ctx context.Context, b *bundle) {
	want := max(b.count, 1)
	if want <= b.countMax() {
		b.got, b.err = u.timestamps(ctx, b, want)
		if b.err == nil && b.got.Count != want {
			b.err = isotone.Errorf(isotone.CodeInternal, "%d timestamps instead of %d", b.got.Count, want)
		}
		b.err = ownFault(b.err)
		return
	}
	for _, part := range b.parts {
		for i, count := range part.Counts {
			part.Ranges[i], b.err = u.timestamps(ctx, b, count)
			if b.err != nil {
				b.err = ownFault(b.err)
				return
			}
		}
	}
}

// timestamps requests count timestamps of the mode and form of b, above its floor.
func (u *Upstream) timestamps(ctx context.Context, b *bundle, count uint64) (isotone.Range, error) {
	if !b.u64 {
		return u.cfg.Source.Timestamps(ctx, b.mode, b.floor, count)
	}
	got, err := u.cfg.Source.Timestamps64(ctx, b.mode, b.floor, count)
	return isotone.Range{First: got.First.Timestamp(), Count: got.Count}, err
}

// ownFault returns the error of the cluster as clients are told it. That the cluster refuses this
// server does not mean that it, or this server, refuses the client.
func ownFault(err error) error {
	if errors.Is(err, isotone.ErrUnauthorized) || errors.Is(err, isotone.ErrForbidden) {
		return isotone.Errorf(isotone.CodeNoLeader, "the cluster refuses this server, which asks on behalf of its clients: %v", err)
	}
	return err
}

// settle answers the batches of b.
func (u *Upstream) settle(b *bundle) {
	u.under--
	if b.isAbove() {
		u.above--
	}
	switch {
	case b.isAbove() && errors.Is(b.err, isotone.ErrRegressed): // it is the floor of that client
	case b.isAbove() && errors.Is(b.err, isotone.ErrDeadlineExceeded):
		u.doubted = true
	default:
		u.note(b.err)
	}
	at := uint64(0)
	for i, part := range b.parts {
		if part.Err = b.err; b.err == nil && b.count <= b.countMax() {
			at = split(b.got, at, part)
		}
		b.parts[i] = nil
		if b.err == nil {
			// The cluster does not say whether it moved its time. A floor ahead of the clock is counted as if it had.
			part.Moved = b.isAbove() && b.floor.Time > uint64(time.Now().UnixNano())
			if u.park(part) {
				continue
			}
		}
		u.done(part)
	}
	*b = bundle{parts: b.parts[:0]}
	if len(u.spare) < bundlesSpareMax {
		u.spare = append(u.spare, b)
	}
}

// done answers a batch.
func (u *Upstream) done(b *front.Batch) {
	delete(u.began, b)
	u.mu.Lock()
	u.requests -= len(b.Counts)
	u.mu.Unlock()
	if n := len(b.Ranges); b.Err == nil && n > 0 && u.highest.Before(b.Ranges[n-1].First) {
		u.highest = b.Ranges[n-1].First
	}
	b.Done(b)
}

// telling is what the log was told last.
type telling uint8

const (
	toldNothing telling = iota
	toldAnswers
	toldSilence
)

// note remembers whether the cluster answers. That it refuses what makes no sense, or is too
// much, is an answer, too.
func (u *Upstream) note(err error) {
	switch {
	case err == nil || errors.Is(err, isotone.ErrInvalidArgument) || errors.Is(err, isotone.ErrQuotaExceeded):
		if u.failing.Load() != nil {
			u.failing.Store(nil)
		}
		if u.told != toldAnswers {
			u.told = toldAnswers
			u.cfg.Log.Info("the cluster answers")
		}
	case u.ctx.Err() == nil: // or it is us who give up
		why := "the cluster does not answer: " + err.Error()
		u.failing.Store(&why)
		if u.told != toldSilence {
			u.told = toldSilence
			u.cfg.Log.Warn("the cluster does not answer", "err", err)
		}
	}
}

// Close fails what waits, and waits for requests under way, which it gives up. From then
// on Submit refuses.
func (u *Upstream) Close() {
	u.mu.Lock()
	was := u.closed
	u.closed = true
	u.mu.Unlock()
	if was {
		return
	}
	u.cancel()
	close(u.work)
	u.workers.Wait()
	u.mu.Lock()
	out, in := u.answered, slices.Concat(u.pending, u.floored, u.incoming)
	u.answered, u.incoming, u.pending, u.floored = nil, nil, nil, nil
	u.mu.Unlock()
	for _, b := range out {
		u.settle(b)
	}
	if u.due != nil {
		u.due.Stop()
	}
	for _, p := range u.parked {
		in = append(in, p.batch)
	}
	for _, batch := range in {
		batch.Err = errClosed
		batch.Done(batch)
	}
}
