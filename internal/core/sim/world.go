package sim

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// slots is the largest number of nodes in a run, with those added later.
const slots = 6

// world is everything in one run.
type world struct {
	cfg    config
	seed   uint64
	rng    *rand.Rand
	now    time.Duration
	agenda agenda

	nodes   []*node
	links   [slots][slots]link
	conns   [slots][slots]conn
	weather weather
	clients []*client
	active  []fault // going on, or just over
	quiet   bool    // no new faults for now
	healing bool    // no new faults any more

	history  []lincheck.Operation
	liveness liveness
	closing  bool // clients send nothing new
	// stalledLong is set once a disk has hung for minutes, wiped once a member has lost its
	// disk for good.
	stalledLong, wiped bool
	// raising is set once the feature level may be raised.
	raising bool
	floor   floor  // that an operator raises
	floors  floors // of clients
	loss    loss
	// flapping is when no link comes and goes any more.
	flapping time.Duration
	servers  []uint64
	states   []agreed
	ceiling  uint64 // the largest seen
	// votersChanged is when a node last saw the voters change.
	votersChanged time.Duration
	// removedAt is the log index at which a member was removed, or one after it, by ID.
	removedAt map[uint64]uint64
	cluster   uint64 // the ID of the cluster that has served, 0: none yet
	ledger    ledger
	revoker   revoker
	pieces    *rand.Rand // see newPieces
	broken    *rand.Rand // draws the links that stay broken
	journals  journals
	addresses addresses
	interval  intervals
	timelines timelines
	sessions  sessionState
	ids       [idsMax]snowflake.ID

	hash      hash.Hash64
	scratch   [64]byte
	turns     uint64
	stats     Stats
	coverage  *Coverage
	violation error
	out       io.Writer
	observe   func(replica.Config) replica.Observer
}

// config is drawn before a run begins. Its float64 fields are probabilities.
type config struct {
	size          int
	tick          time.Duration
	epochTicks    int
	epochInterval time.Duration
	snapshotEvery uint64
	leaseShare    float64
	partial       float64 // a turn reads only part of what has arrived
	slowDial      float64 // a step of a handshake takes long
	duration      time.Duration
	faultEvery    time.Duration
	kinds         []Kind
	ids           idConfig
	formation     formation
	clockJumpMax  time.Duration
	old, newest   uint64 // feature levels of the two versions; old is 0 if there is one
}

func newWorld(o Options) *world {
	w := &world{
		seed:      o.Seed,
		rng:       rand.New(rand.NewPCG(o.Seed, 0x15070e)),
		hash:      fnv.New64a(),
		out:       o.Trace,
		observe:   o.Observe,
		coverage:  &Coverage{},
		removedAt: map[uint64]uint64{},
		floors:    newFloors(o.Seed),
		revoker:   newRevoker(o.Seed),
		loss:      newLoss(o.Seed),
		pieces:    newPieces(o.Seed),
		broken:    rand.New(rand.NewPCG(o.Seed, 0x11f4)),
		journals:  newJournals(o.Seed),
		addresses: newAddresses(o.Seed),
		timelines: newTimelines(o.Seed),
		sessions:  newSessionState(o.Seed),
	}
	w.cfg = w.draw(o)
	w.interval = newIntervals(o.Seed, w.cfg.tick)
	w.weather = calm(w.cfg.tick)
	return w
}

// draw draws the configuration of a run.
func (w *world) draw(o Options) config {
	ticks := []time.Duration{10, 10, 20, 50, 100}
	c := config{
		size:          []int{1, 2, 3, 3, 3, 5}[w.rng.IntN(6)],
		tick:          ticks[w.rng.IntN(len(ticks))] * time.Millisecond,
		epochTicks:    1 + w.rng.IntN(10),
		snapshotEvery: 4 + w.rng.Uint64N(40),
		duration:      o.Duration,
	}
	if c.duration == 0 {
		c.duration = time.Duration(300+w.rng.IntN(1200)) * c.tick
	}
	if w.chance(0.7) {
		c.epochInterval = time.Duration(c.epochTicks) * c.tick
	}
	if o.Lease {
		c.leaseShare = []float64{0, 0.5, 1}[w.rng.IntN(3)]
	}
	c.partial = []float64{0, 0.1, 0.5}[w.rng.IntN(3)]
	c.slowDial = []float64{0, 0.1, 0.5}[w.rng.IntN(3)]
	c.faultEvery = time.Duration(5+w.rng.IntN(60)) * c.tick
	// Swarm testing: a run with few kinds of faults reaches states that one with all of them
	// does not.
	share := 0.1 + 0.9*w.rng.Float64()
	for k := range RevokeWorker {
		if w.chance(share) {
			c.kinds = append(c.kinds, k)
		}
	}
	w.drawIDs(&c)
	w.drawFormation(&c)
	w.drawVersions(&c)
	c.clockJumpMax = w.between(10*time.Millisecond, time.Second)
	return c
}

// calm returns a good network.
func calm(tick time.Duration) weather {
	return weather{base: tick / 100, spread: tick / 20}
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// note adds an event to the hash of the run.
func (w *world) note(kind byte, values ...uint64) {
	b := append(w.scratch[:0], kind)
	b = binary.BigEndian.AppendUint64(b, uint64(w.now))
	for _, v := range values {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	_, _ = w.hash.Write(b)
}

// trace writes a line to Options.Trace.
func (w *world) trace(format string, args ...any) {
	if w.out != nil {
		fmt.Fprintf(w.out, "%12.6f  %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

// fail records the first violation, which ends the run.
func (w *world) fail(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf("at %v: %w", w.now, fmt.Errorf(format, args...))
		w.trace("VIOLATION %v", w.violation)
	}
}

// populate starts the initial members and the clients.
func (w *world) populate() {
	for range w.cfg.size {
		w.newNode().founders = founders(w.cfg.size)
	}
	if w.cfg.old > 0 {
		w.startOld()
	}
	w.startMembers()
	for i := range 1 + w.rng.IntN(6) {
		c := &client{id: uint64(i), pause: w.between(time.Millisecond, 4*w.cfg.tick)}
		c.sticky = w.chance(0.5)
		c.timeout = w.between(3*w.cfg.tick, timeoutMax*w.cfg.tick)
		w.clients = append(w.clients, c)
		if !c.sticky {
			c.searcher = w.newSearcher(c)
		}
		w.runClient(c)
	}
	for range 1 + w.rng.IntN(3) {
		w.runIDRequests(w.between(w.cfg.tick/4, 4*w.cfg.tick))
	}
	for i := range w.rng.IntN(3) {
		w.newIDClient(i + 1)
	}
	w.runRevoker()
	w.runCuts()
	w.runRot()
	w.runIntervals()
	w.runTimelines()
	w.runSessions()
	w.runMoves()
}

// newNode adds a machine with an empty disk and without a process.
func (w *world) newNode() *node {
	n := &node{id: uint64(len(w.nodes) + 1), slot: len(w.nodes), clock: newClock(), steady: w.interval.newSteady(), in: &inbox{}}
	n.clock.settle(w.now)
	n.clock.wall = worldStart + w.now
	n.clock.rate = w.drawRate()
	n.disk.durable.incarnation = w.rng.Uint64() | 1
	n.ids, n.level = w.drawSetup(), w.cfg.newest
	w.place(n)
	for _, o := range w.nodes {
		w.redial(n, o)
	}
	w.nodes = append(w.nodes, n)
	return n
}
