package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/snowflake"
)

// idConfig is how a run makes ids. Its float64 fields are probabilities.
type idConfig struct {
	layout      snowflake.Layout
	leaseMillis uint64
	ahead       time.Duration
	workersMax  int     // the largest number of workers of a node
	fixed       float64 // a node has a fixed worker
	foreign     float64 // a node has a wrong layout
	echo        float64 // a member's proposal arrives once more, late
	churn       float64 // a node releases workers while it could keep them
}

// drawIDs decides how a run makes ids. Workers are few, so they change hands, and a
// millisecond has few ids, so generators run ahead of their clocks.
func (w *world) drawIDs(c *config) {
	workers := uint8(1 + w.rng.IntN(4))
	sequence := []uint8{1, 4, 12}[w.rng.IntN(3)]
	datacenters := uint8(w.rng.IntN(int(workers)))
	c.ids = idConfig{
		layout: snowflake.Layout{
			TimeBits: 63 - workers - sequence, DatacenterBits: datacenters, WorkerBits: workers - datacenters, SequenceBits: sequence,
			Epoch: []int64{0, int64(worldStart/time.Millisecond) / 2}[w.rng.IntN(2)],
		},
		leaseMillis: uint64(w.between(30*c.tick, 300*c.tick) / time.Millisecond),
		ahead:       w.between(c.tick, 40*c.tick),
		workersMax:  w.rng.IntN(4),
		fixed:       []float64{0, 0.7, 1}[w.rng.IntN(3)],
		echo:        []float64{0, 0.5}[w.rng.IntN(2)],
		churn:       []float64{0, 0, 0.05}[w.rng.IntN(3)],
	}
	if w.chance(0.2) {
		c.ids.foreign = 0.3
	}
}

// idSetup is the configuration of one machine for ids.
type idSetup struct {
	layout  snowflake.Layout
	fixed   int
	workers int
}

func (w *world) drawSetup() idSetup {
	c := w.cfg.ids
	s := idSetup{layout: c.layout, fixed: oracle.AnyWorker, workers: w.rng.IntN(c.workersMax + 1)}
	if w.chance(c.fixed) {
		s.fixed = w.rng.IntN(min(3, s.layout.Workers()))
	}
	if w.chance(c.foreign) {
		s.layout.Epoch += 1000
	}
	return s
}

// maker makes ids by one lease in one process.
type maker struct {
	name string // for messages
	// lease as its process knows it: node and session, and the end as of now.
	lease oracle.WorkerLease
	gen   *snowflake.Generator
	last  uint64 // the number of its last id
	made  bool   // it has made any
}

// newMaker makes a maker for a client, which has no replica to make its generators.
func (w *world) newMaker(name string, l oracle.WorkerLease, layout snowflake.Layout, c *clock) *maker {
	gen, err := snowflake.NewGenerator(int(l.Worker), snowflake.Options{
		Layout: layout, AheadMax: w.cfg.ids.ahead,
		Lease: snowflake.Lease{Start: int64(l.Start), End: int64(l.End)},
		Now:   w.millis(c),
	})
	if err != nil {
		w.fail("I9: %s cannot make ids of %+v: %v", name, l, err)
		return nil
	}
	return w.makerOf(gen, name, l)
}

// millis returns a clock for generators.
func (w *world) millis(c *clock) func() int64 {
	return func() int64 {
		wall, _ := c.read(w.now)
		return int64(wall / time.Millisecond)
	}
}

func (w *world) makerOf(gen *snowflake.Generator, name string, l oracle.WorkerLease) *maker {
	w.trace("%s makes ids of worker %d in [%d, %d)", name, l.Worker, l.Start, l.End)
	w.ledger.begin(&w.stats, l)
	return &maker{name: name, lease: l, gen: gen}
}

func (m *maker) extend(end uint64) {
	m.lease.End = end
	m.gen.Extend(int64(end))
}

// stop ends the maker and returns how far it used its lease.
func (m *maker) stop() oracle.Used {
	return oracle.Used{Worker: m.lease.Worker, Start: m.lease.Start, Next: uint64(m.gen.Stop())}
}

// idsMax is the largest batch.
const idsMax = 256

// make makes some ids and enters them in the ledger, or returns the generator's error.
func (w *world) make(m *maker) error {
	count := 1
	if w.chance(0.3) {
		count = 1 + w.rng.IntN(idsMax)
	}
	ids := w.ids[:count]
	if err := m.gen.TryFill(ids); err != nil {
		return err
	}
	layout := m.gen.Layout()
	first := number(layout, ids[0])
	for i, id := range ids {
		switch ms := layout.Millis(id); {
		case id < 0 || layout.Worker(id) != int(m.lease.Worker) || number(layout, id) != first+uint64(i):
			w.fail("I9: %s makes id %d, number %d of a batch from %d of worker %d", m.name, id, i, first, m.lease.Worker)
		case ms < int64(m.lease.Start) || ms >= int64(m.lease.End):
			w.fail("I9: %s makes id %d of %d ms outside its lease %+v", m.name, id, ms, m.lease)
		}
	}
	if m.made && first <= m.last {
		w.fail("I9: %s makes number %d after number %d", m.name, first, m.last)
	}
	w.checkRestored(m, first)
	m.last, m.made = first+uint64(count)-1, true
	w.stats.IDs += uint64(count)
	if m.lease.Node != 0 {
		w.noteAnswered(formID)
	}
	w.note('i', uint64(m.lease.Worker), first, uint64(count))
	if err := w.ledger.enter(layout, span{first: first, last: m.last, by: m, at: w.now}); err != nil {
		w.fail("%w", err)
	}
	return nil
}

// number returns the milliseconds and the sequence of an id as one number.
func number(l snowflake.Layout, id snowflake.ID) uint64 {
	return uint64(l.Millis(id)-l.Epoch)<<l.SequenceBits | uint64(l.Sequence(id))
}

// ledger knows every id of a run.
type ledger struct {
	layout  snowflake.Layout // of the first id; zero before
	spans   [][]span         // by worker, sorted
	holders []holding        // by worker, the latest
}

// span are consecutive numbers of one worker.
type span struct {
	first, last uint64
	by          *maker
	at          time.Duration
}

// holding is the latest lease of a worker, for the counters.
type holding struct {
	lease    oracle.WorkerLease
	returned bool
}

// enter adds new ids. It returns an error if one exists already.
func (l *ledger) enter(layout snowflake.Layout, s span) error {
	if l.layout == (snowflake.Layout{}) {
		l.layout = layout
	}
	worker := s.by.lease.Worker
	if layout != l.layout {
		return fmt.Errorf("I9: %s makes ids of layout %v since %d, others of %v since %d", s.by.name, layout, layout.Epoch, l.layout, l.layout.Epoch)
	}
	for len(l.spans) <= int(worker) {
		l.spans = append(l.spans, nil)
	}
	list := l.spans[worker]
	i, _ := slices.BinarySearchFunc(list, s.first, func(o span, first uint64) int {
		if o.last < first {
			return -1
		}
		return 1
	})
	if i < len(list) && list[i].first <= s.last {
		o := list[i]
		return fmt.Errorf("I9: number %d of worker %d twice: %s at %v by %+v, %s at %v by %+v",
			max(o.first, s.first), worker, o.by.name, o.at, o.by.lease, s.by.name, s.at, s.by.lease)
	}
	l.spans[worker] = slices.Insert(list, i, s)
	return nil
}

// begin counts a lease that a process has begun to use.
func (l *ledger) begin(s *Stats, lease oracle.WorkerLease) {
	for len(l.holders) <= int(lease.Worker) {
		l.holders = append(l.holders, holding{})
	}
	h := &l.holders[lease.Worker]
	s.WorkerGrants++
	if before := h.lease; before.Session != 0 && before.Session != lease.Session {
		switch {
		case lease.Fixed && before.Fixed && before.Node == lease.Node && lease.Node != 0:
			s.WorkerRestarts++
		case !h.returned:
			s.WorkerTakeovers++
		}
	}
	*h = holding{lease: lease}
}

// giveBack notes a release.
func (l *ledger) giveBack(s *Stats, lease oracle.WorkerLease) {
	s.WorkerReleases++
	if h := &l.holders[lease.Worker]; h.lease.Start == lease.Start {
		h.returned = true
	}
}

// updateMakers makes the makers of a node those of its generators.
func (w *world) updateMakers(n *node) {
	s := n.replica.Status()
	if r := s.WorkersRefused; r != nil && r != n.workersRefused {
		w.stats.WorkerRefusals++
		w.trace("node %d: %v", n.id, r.Err())
	}
	n.workersRefused = s.WorkersRefused
	makers := make([]*maker, len(s.Generators))
	for slot, gen := range s.Generators {
		if gen == nil {
			continue
		}
		i := slices.IndexFunc(n.makers, func(m *maker) bool { return m != nil && m.gen == gen })
		if i < 0 {
			l, _ := n.replica.WorkerLease(uint16(gen.Worker()))
			makers[slot] = w.makerOf(gen, fmt.Sprintf("node %d", n.id), l)
			continue
		}
		makers[slot], n.makers[i] = n.makers[i], nil
		if l, _ := n.replica.WorkerLease(uint16(gen.Worker())); l.Start == makers[slot].lease.Start && l.End > makers[slot].lease.End {
			w.stats.WorkerRenewals++
			makers[slot].lease.End = l.End
		}
	}
	for _, m := range n.makers {
		if m != nil {
			w.ledger.giveBack(&w.stats, m.lease)
			n.retired = append(n.retired, m)
		}
	}
	n.retired = n.retired[max(0, len(n.retired)-retiredMax):]
	n.makers = makers
}

// retiredMax bounds how many stopped generators of a node are tried.
const retiredMax = 4

// makeIDs makes ids on a node as a request would. Threads beside the core loop do that: they
// go on while it is paused, and may still have a generator that was stopped.
func (w *world) makeIDs(n *node) {
	if !n.up() || len(n.makers) == 0 || n.paused && w.chance(0.5) {
		return
	}
	if len(n.retired) > 0 && w.chance(0.2) {
		if m := n.retired[w.rng.IntN(len(n.retired))]; w.make(m) == nil {
			w.fail("I9: %s makes ids by %+v, which it gave back", m.name, m.lease)
		}
		return
	}
	slot := w.rng.IntN(len(n.makers))
	m := n.makers[slot]
	if m == nil || n.replica.Status().IDsRefused != nil {
		return
	}
	if errors.Is(w.make(m), snowflake.ErrInvalidSystemClock) {
		n.in.behind |= 1 << slot
	}
	// The node's view of its lease must be what is on record.
	l, _ := n.replica.WorkerLease(m.lease.Worker)
	if !l.IsHeldBy(n.id, m.lease.Session) || l.Start != m.lease.Start || l.End < uint64(m.gen.Lease().End) {
		w.fail("I9: %s makes ids by %+v, on record is %+v", m.name, m.lease, l)
	}
}

// runIDRequests runs a client that asks any node for ids.
func (w *world) runIDRequests(pause time.Duration) {
	w.after(w.between(0, 2*pause), func() {
		if !w.closing {
			n := w.nodes[w.rng.IntN(len(w.nodes))]
			w.makeIDs(n)
			if w.chance(w.cfg.ids.churn) {
				w.releaseSome(n)
			}
			w.runIDRequests(pause)
		}
	})
}

// releaseSome lets a node release some of its leases, as if its clock had gone back, and
// request others.
func (w *world) releaseSome(n *node) bool {
	if !n.up() || n.paused || len(n.makers) == 0 {
		return false
	}
	// Twice: commands about the former lease may then arrive after the next grant.
	for _, in := range []time.Duration{0, w.between(0, 50*w.cfg.tick)} {
		session := n.session
		w.after(in, func() {
			if n.session == session && !n.paused {
				n.in.behind |= w.rng.Uint64N(1 << len(n.makers))
				w.wake(n)
			}
		})
	}
	return true
}

// awaitWorkers waits after the last fault until every member has its workers or was told why
// not. A member that was away while the leader joined does not know it and has nobody to ask.
func (w *world) awaitWorkers() {
	from := w.now
	for w.violation == nil {
		lead := w.leader()
		waits := slices.IndexFunc(w.nodes, func(n *node) bool {
			return lead != nil && n.up() && lead.knows(n) && n.knows(lead) && !n.hasWorkers(w.now)
		})
		if waits < 0 {
			return
		}
		if n := w.nodes[waits]; w.now > from+healTicks*w.cfg.tick {
			s := n.replica.Status()
			w.fail("liveness: node %d wants %d workers, has %+v, and was refused none within %d ticks after the last fault", n.id, len(s.Generators), s.Workers, healTicks)
		}
		w.advance(w.now + w.cfg.tick)
	}
}

// hasWorkers reports whether a node has all its workers or knows why not.
func (n *node) hasWorkers(now time.Duration) bool {
	s := n.replica.Status()
	missing := len(s.Generators)
	wall, _ := n.clock.read(now)
	for _, l := range s.Workers {
		if l.End > uint64(wall/time.Millisecond) && !l.Revoked {
			missing--
		}
	}
	return missing <= 0 || s.WorkersRefused != nil || s.IDsRefused != nil
}

// setUpIDs sets the fields for ids in the configuration of a node.
func (w *world) setUpIDs(n *node, c *replica.Config) {
	c.LeaseMillis, c.Space, c.FixedWorker = w.cfg.ids.leaseMillis, oracle.Space(n.ids.layout), n.ids.fixed
	c.Workers, c.IDClock, c.IDAheadMax = n.ids.workers, w.millis(&n.clock), w.cfg.ids.ahead
	if n.disk.durable.cluster == 0 {
		c.Space = oracle.Space(w.cfg.ids.layout) // a cluster is formed with one layout; some nodes come back with another
	}
	if c.FixedWorker != oracle.AnyWorker {
		c.Workers = min(c.Workers, 1)
	}
}
