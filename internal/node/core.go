package node

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/redislock"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/session"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/telemetry"
	"github.com/isotone/isotone/internal/host/trace"
)

const (
	// statusTicks is how often, in ticks, the status is published although nothing changed.
	statusTicks = 10
	// stallTicks is how many ticks without a turn are worth a warning: half of the
	// shortest election timeout.
	stallTicks = 10
	// queueWait is the maximum delay before the submit queue is polled while as many rounds
	// as possible are in flight.
	queueWait = time.Millisecond
)

// core is the replica with its disk and its peers. It is a [loop.Work]; everything but
// queue belongs to the core loop's goroutine.
type core struct {
	node    *Node
	loop    *loop.Loop
	replica *replica.Replica
	disk    *disk
	queue   *submitQueue
	peers   peers
	lessor  lessor
	// timelines are changes that operators wait for.
	timelines timelineRequests
	sessions  sessions
	// keeper has the locks of Redis libraries, whose session is on keeperConn.
	keeper     *redislock.Keeper
	keeperConn session.Conn
	quotas     quotas
	busy       telemetry.Busy // timelines that this process owns, or owned
	// forwarder asks the leader for what reaches this loop; nil: nobody does.
	forwarder Forwarder

	// next collects the input of the next step.
	next replica.Input
	// submitted are the batches of this loop's fronts in this turn.
	submitted []*front.Batch
	pending   pendingBatches

	due     time.Duration // when the next tick is, by the loop's clock
	started bool          // the first turn is over
	// unpublished counts the ticks since the status was published; changed is set when Flushed has
	// to publish it.
	unpublished int
	changed     bool
	wall        time.Time     // as of the latest turn
	mono        time.Duration // the same

	transfers  []chan struct{} // closed once another node leads
	returned   []chan struct{} // closed once all worker ids were given back
	operations []operation     // of operators, before their turn; at most operationsMax
	carrying   carrying
	elections  elections
	reported   reported
	// steps is nil but in builds for tests.
	steps Steps
}

// Sleep implements [loop.Work].
func (c *core) Sleep() time.Duration {
	wait := max(0, c.due-c.loop.Now())
	if c.sessions.skipped {
		wait = min(wait, watchInterval)
	}
	switch {
	case !c.started || len(c.operations) > 0:
		return 0 // a replica that is alone has something to do at once
	case c.replica.RoundsAreFull() && c.node.cfg.Mode == isotone.ReadQuorum:
		// The submit queue can wait: the answer of a peer, which is on its way, has to come
		// first, and makes the next turn.
		return min(wait, queueWait)
	case !c.queue.isEmpty():
		return 0
	}
	return wait
}

// Turn steps the replica once with everything that has arrived, and carries out the effects.
func (c *core) Turn() {
	ticks := c.takeTicks()
	c.takeRequests()
	c.next.Ticks, c.next.Behind = ticks, c.node.ids.takeBehind()
	op := c.takeOperation()
	c.readClocks()
	c.keepRedisLocks()
	if c.steps != nil {
		c.steps.Before(c.replica, &c.next)
	}
	e := c.replica.Step(&c.next)
	c.reset()
	if e.Fatal != nil {
		c.node.fail(e.Fatal)
		c.changed = true
		return
	}
	if c.steps != nil {
		c.steps.After(c.replica, e)
	}
	c.carryOut(e)
	c.lookAtWatches()
	op.answer(e)
	if c.forwarder != nil {
		c.forwarder.Turn(c.loop.Now())
	}
	c.started = true
	c.unpublished += ticks
	c.changed = c.changed || e.Changed || c.unpublished >= statusTicks
	c.retryTransfers(ticks)
}

// Flushed implements [loop.Work].
func (c *core) Flushed() {
	if c.steps != nil {
		c.steps.Flushed()
	}
	if c.changed {
		c.unpublished, c.changed = 0, false
		c.publish()
	}
}

// takeTicks returns how many ticks are due. Those that a paused process missed are dropped: a
// burst would make a follower campaign before it has read the heartbeats that piled up.
func (c *core) takeTicks() int {
	now, tick := c.loop.Now(), c.node.cfg.Tick
	if now < c.due {
		return 0
	}
	if c.due += tick; c.due <= now {
		c.due = now + tick
	}
	return 1
}

// takeRequests adds the batches that were submitted to the input.
func (c *core) takeRequests() {
	c.submitted = c.queue.take(c.submitted)
	for _, b := range c.submitted {
		mode := b.Mode
		if mode == isotone.ReadDefault {
			mode = c.node.cfg.Mode
		}
		if !runsInSuspend {
			mode = isotone.ReadQuorum // which promises more
		}
		b.Err = nil
		if b.Trace != nil {
			b.Taken = time.Now()
		}
		if b.Timeline != "" {
			if err := c.quotas.refuse(c.replica, b, c.loop.Now()); err != nil {
				c.busy.Refused(b.Timeline, len(b.Counts), c.mono)
				b.Err = err
				b.Done(b)
				continue
			}
		}
		c.next.Requests = append(c.next.Requests, replica.Request{
			Token: c.pending.put(b), Mode: mode, U64: b.U64, Timeline: b.Timeline, Op: b.Op, At: b.At, Floor: b.Floor, Raise: b.Raise, Counts: b.Counts, Ranges: b.Ranges,
		})
	}
	clear(c.submitted)
	c.submitted = c.submitted[:0]
}

// readClocks reads the clocks for the turn.
func (c *core) readClocks() {
	cfg := &c.node.cfg
	wall, mono := cfg.Clock.Wall(), cfg.Clock.Mono()
	if wall.Before(c.wall) {
		cfg.Metrics.CountClockBackward()
		cfg.Log.Warn("the wall clock went back", "by", c.wall.Sub(wall).String())
	}
	if stall := mono - c.mono; c.mono > 0 && stall > stallTicks*cfg.Tick {
		cfg.Metrics.CountStall()
		cfg.Log.Warn("this process did not run for a while; was it stopped, or the machine too busy?", "for", stall.String())
	}
	c.wall, c.mono = wall, mono
	c.next.Now, c.next.Mono = unixNanos(wall), mono
	if cfg.Interval > 0 {
		c.next.Steady = cfg.Clock.Exact() // after everything in this input has arrived (R4)
	}
}

// reset empties the input. Effects may already add to the next one.
func (c *core) reset() {
	in := &c.next
	clear(in.Messages)
	clear(in.Requests)
	in.Persisted, in.Transfer, in.TransferTo = nil, false, 0
	in.Change, in.RaiseLevel, in.RaiseFloor, in.Reserve = nil, false, nil, false
	in.Messages, in.Requests, in.Hellos = in.Messages[:0], in.Requests[:0], in.Hellos[:0]
	in.Gone = in.Gone[:0]
	in.Refused = in.Refused[:0]
	in.Clocks, in.LeaseRequests, in.TimelineRequests = in.Clocks[:0], in.LeaseRequests[:0], in.TimelineRequests[:0]
	in.ClockAsks, in.ClockAnswers = in.ClockAsks[:0], in.ClockAnswers[:0]
	in.OwnerAsks, in.OwnerAnswers = in.OwnerAsks[:0], in.OwnerAnswers[:0]
	in.SessionsGone = in.SessionsGone[:0]
}

// carryOut sends, writes and answers.
func (c *core) carryOut(e *replica.Effects) {
	c.peers.send(e.Send)
	if e.Announce {
		c.peers.announce(c.replica.Hello())
	}
	if e.SendClock {
		c.peers.sendClock()
	}
	c.exchangeClock(e)
	c.exchangeOwners(e)
	if e.Write != nil {
		c.disk.write(e.Write)
	}
	for _, a := range e.Answers {
		b := c.pending.take(a.Token)
		b.Moved = a.Moved
		if a.Err != nil {
			b.Err = a.Err
			b.Apart = c.isApart(b)
		}
		if b.Timeline != "" && b.Err == nil {
			c.busy.Served(b.Timeline, b.Counts, c.mono)
		}
		if b.Trace != nil {
			c.endTrace(b)
		}
		answer(c.forwarder, b)
	}
	c.tellSessions(e.Sessions)
	for i := range e.LeaseAnswers {
		c.lessor.answer(&e.LeaseAnswers[i])
	}
	for i := range e.TimelineAnswers {
		c.timelines.answer(e.TimelineAnswers[i])
	}
	for _, g := range e.Grants {
		c.node.cfg.Metrics.ObserveGrant(g.Waited, g.Committed)
	}
	for _, r := range e.Rounds {
		if r.Requests == 0 {
			continue // for the lease's sake
		}
		c.node.cfg.Metrics.ObserveRound(r.Requests, r.Took)
		c.node.cfg.Metrics.AddTimestamps(r.Timestamps)
		c.logRound(&r, c.loop.Now())
	}
}

// endTrace makes the span of a traced batch in the core: from when it was taken until a round,
// or a lease, answered it, or it was refused.
func (c *core) endTrace(b *front.Batch) {
	code := "ok"
	if b.Err != nil {
		code = string(front.ErrorOf(b.Err).Code)
	}
	c.node.cfg.Trace.Add(trace.Span{
		Context: b.Trace.Child(), Parent: b.Trace.Span, Name: "round", Kind: trace.Internal, Start: b.Taken, End: time.Now(),
		Attrs: []trace.Attr{
			trace.String("isotone.code", code), trace.String("isotone.mode", b.Mode.String()),
			trace.Int("isotone.requests", int64(len(b.Counts))), trace.Int("isotone.term", int64(c.node.status.Load().Term)),
		},
	})
}

// Close answers everything that still waits.
func (c *core) Close() {
	err := errStopped
	if c.node.Err() != nil {
		err = errFailed
	}
	for _, b := range append(append(c.pending.drain(), c.submitted...), c.queue.close()...) {
		b.Err = err
		b.Done(b)
	}
	c.lessor.close(err)
	c.closeWatches(err)
	c.keeper.Stop(err)
	if c.forwarder != nil {
		c.forwarder.Close()
	}
	c.publish()
}

// coreBackend is the node as the fronts in the core loop see it; see front.Backend,
// front.Lessor and front.Sessions. It belongs to that loop's goroutine.
type coreBackend struct{ *core }

// Submit adds a batch to this turn's step.
func (b coreBackend) Submit(batch *front.Batch) { b.submitted = append(b.submitted, batch) }

// Status returns what the node knows.
func (b coreBackend) Status() *front.Status { return b.node.Status() }

// LeaseWorker adds a request to this turn's step.
func (b coreBackend) LeaseWorker(r *front.WorkerRequest) { b.takeWorkerRequest(r) }
