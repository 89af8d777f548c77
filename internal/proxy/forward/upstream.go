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
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/trace"
)

// Want says which timestamps are requested.
type Want struct {
	// Timeline is "" for the default order.
	Timeline string
	Mode     isotone.ReadMode
	// Floor is what all of them are larger than (I13); zero for none.
	Floor isotone.Timestamp
	Count uint64
	// Op and At are those of front.Batch.
	Op timeline.Op
	At uint64
}

// Source is a cluster, as package client reaches it. It knows the leader, and the owners of timelines.
type Source interface {
	// Timestamps returns consecutive timestamps, all larger than any of their order that anybody had
	// been given when it was called (I4). A span in ctx (see trace.Of) is the parent of what the cluster traces.
	Timestamps(ctx context.Context, w Want) (isotone.Range, error)
	// Timestamps64 is the same for the 64-bit form, with a count of at most isotone.Range64CountMax.
	Timestamps64(ctx context.Context, w Want) (isotone.Range64, error)
	// ReadWrite asks the oracle of reads and writes of a timeline, with Op, At and Mode, and returns the answer in unix milliseconds.
	ReadWrite(ctx context.Context, w Want) (ms uint64, err error)
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
	// overloaded. A timeline has an eighth of them at most. Default 65536: as many clients as one proxy has.
	RequestsMax int
	// BundlesMax bounds the requests to the cluster that are under way for the default order. Default 8: package
	// client sends two at a time, and gathers what waits.
	BundlesMax int
	// Timeout bounds a request to the cluster. Default 5 s: several elections.
	Timeout time.Duration
	// Log is told when the cluster begins and ceases to answer. Nil discards.
	Log *slog.Logger
}

// Upstream is a [front.Backend] over a cluster: everything that came in one turn of the
// loop becomes one request for each read mode, so thousands of clients cost the leader
// what a few do. So does what came of each timeline. Timelines share nothing with each other and with the default order but the
// bounds of what waits: see order.
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

	// held are the requests of each timeline that are among requests.
	held map[string]int

	// The loop's.
	main       order
	lines      map[string]*order // of the timelines of which a request waits or is under way
	waiting    []*order          // those of lines that have something to send, in turn
	linesUnder int               // bundles of lines that are under way
	parked     parking
	began      map[*front.Batch]time.Time // of batches that were parked, when first
	taken      []*front.Batch             // for use as incoming
	settled    []*bundle                  // for use as answered
	spare      []*bundle
	doubted    bool          // one with a floor was not answered in time, which may be due to the floor
	probed     time.Duration // the latest probe
	told       telling

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
	// flooredMax bounds the batches of an order that wait with a floor. It takes a cluster that was set back,
	// or clients of another one, to have so many.
	flooredMax = 1024
	// probeEvery is how often a cluster that does not answer is asked when no client does.
	probeEvery = time.Second
)

var errClosed = isotone.Errorf(isotone.CodeNoLeader, "the proxy is shutting down")

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
	u := &Upstream{
		cfg: cfg, wake: wake, work: make(chan *bundle, cfg.BundlesMax), probed: -probeEvery,
		main: order{places: cfg.BundlesMax}, lines: map[string]*order{}, held: map[string]int{}, began: map[*front.Batch]time.Time{},
	}
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
	err := u.hold(b)
	if err == nil {
		u.incoming = append(u.incoming, b)
	}
	u.mu.Unlock()
	if err != nil {
		b.Err = err
		b.Done(b)
		return
	}
	u.wake()
}

// hold counts the requests of a batch, or says why they may not wait. The caller holds mu.
func (u *Upstream) hold(b *front.Batch) error {
	n := len(b.Counts)
	switch {
	case u.closed:
		return errClosed
	case u.requests+n > u.cfg.RequestsMax:
		return isotone.Errorf(isotone.CodeOverloaded, "%d requests are waiting for the cluster", u.requests)
	case b.Timeline != "":
		if held := u.held[b.Timeline]; held > 0 && held+n > max(u.cfg.RequestsMax/lineShare, 1) {
			return isotone.Errorf(isotone.CodeOverloaded, "%d requests of timeline %s are waiting for the cluster", held, b.Timeline)
		}
		u.held[b.Timeline] += n
		b.Taken = time.Now()
	}
	u.requests += n
	return nil
}

// letGo is the end of what hold began.
func (u *Upstream) letGo(b *front.Batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(b.Counts)
	u.requests -= n
	if b.Timeline == "" {
		return
	}
	if u.held[b.Timeline] -= n; u.held[b.Timeline] == 0 {
		delete(u.held, b.Timeline)
	}
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
	u.send(&u.main)
	u.sendLines()
	if (u.failing.Load() != nil && u.main.under == 0 || u.doubted && u.main.hasPlace()) && now-u.probed >= probeEvery {
		u.probed, u.doubted = now, false
		u.begin(u.newBundle(&u.main, isotone.ReadDefault, false))
	}
}

// ask is the goroutine that waits for one request of the default order at a time.
func (u *Upstream) ask() {
	for b := range u.work {
		u.carry(b)
	}
}

// carry has the cluster answer b.
func (u *Upstream) carry(b *bundle) {
	if b.until.IsZero() {
		b.until = time.Now().Add(u.cfg.Timeout)
	}
	ctx, cancel := context.WithDeadline(u.ctx, b.until)
	defer cancel()
	if b.trace != nil {
		ctx = trace.With(ctx, *b.trace)
	}
	u.request(ctx, b)
	u.mu.Lock()
	u.answered = append(u.answered, b)
	u.mu.Unlock()
	u.wake()
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
	w := Want{Timeline: b.order.timeline, Mode: b.mode, Floor: b.floor, Count: count, Op: b.op, At: b.at}
	switch {
	case b.op != timeline.OpIssue:
		ms, err := u.cfg.Source.ReadWrite(ctx, w)
		return isotone.Range{First: isotone.Timestamp{Time: ms}, Count: 1}, err
	case !b.u64:
		return u.cfg.Source.Timestamps(ctx, w)
	}
	got, err := u.cfg.Source.Timestamps64(ctx, w)
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
	o := b.order
	u.ended(b)
	if o == &u.main {
		u.judge(b)
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
			if u.park(o, part) {
				continue
			}
		}
		u.done(o, part)
	}
	*b = bundle{parts: b.parts[:0]}
	if len(u.spare) < bundlesSpareMax {
		u.spare = append(u.spare, b)
	}
	u.goOn(o)
}

// judge notes what a request of the default order says of the cluster. One of a timeline says what its owner does.
func (u *Upstream) judge(b *bundle) {
	switch {
	case b.isAbove() && errors.Is(b.err, isotone.ErrRegressed): // it is the floor of that client
	case b.isAbove() && errors.Is(b.err, isotone.ErrDeadlineExceeded):
		u.doubted = true
	default:
		u.note(b.err)
	}
}

// done answers a batch of o.
func (u *Upstream) done(o *order, b *front.Batch) {
	delete(u.began, b)
	u.letGo(b)
	if n := len(b.Ranges); b.Err == nil && n > 0 && o.highest.Before(b.Ranges[n-1].First) {
		o.highest = b.Ranges[n-1].First
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
	out, in := u.answered, u.incoming
	u.answered, u.incoming = nil, nil
	u.mu.Unlock()
	for _, b := range out {
		u.settle(b)
	}
	in = slices.Concat(u.main.take(), in)
	for _, o := range u.lines {
		in = append(in, o.take()...)
	}
	in = append(in, u.parked.end()...)
	for _, batch := range in {
		batch.Err = errClosed
		batch.Done(batch)
	}
}
