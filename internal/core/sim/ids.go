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

// idConfig is how a run makes ids.
type idConfig struct {
	layout      snowflake.Layout
	leaseMillis uint64
	ahead       time.Duration
	workersMax  int     // how many workers a node may want
	fixed       float64 // how many nodes insist on a worker
	foreign     float64 // how many have another layout than they should
	echo        float64 // how often a member's proposal arrives again, late
	churn       float64 // how often a node gives workers back of its own accord
}

// drawIDs decides how a run makes ids. Workers are few, so that they change hands; and a
// millisecond holds few ids, so that generators run ahead of their clocks.
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
		fixed:       []float64{0, 0.3, 1}[w.rng.IntN(3)],
		echo:        []float64{0, 0.5}[w.rng.IntN(2)],
		churn:       []float64{0, 0, 0.05}[w.rng.IntN(3)],
	}
	if w.chance(0.2) {
		c.ids.foreign = 0.3
	}
}

// idSetup is what one machine is set up with to make ids.
type idSetup struct {
	layout snowflake.Layout
	fixed  int
	wanted int
}

func (w *world) drawSetup() idSetup {
	c := w.cfg.ids
	s := idSetup{layout: c.layout, fixed: oracle.AnyWorker, wanted: w.rng.IntN(c.workersMax + 1)}
	if w.chance(c.fixed) {
		s.fixed = w.rng.IntN(min(3, s.layout.Workers()))
	}
	if w.chance(c.foreign) {
		s.layout.Epoch += 1000
	}
	return s
}

// maker makes ids of one worker, by one lease, in one process.
type maker struct {
	name string // for messages
	// lease as its process knows it: node and session, and the end as of now.
	lease oracle.WorkerLease
	gen   *snowflake.Generator
	last  uint64 // the number of its last id
	made  bool   // it has made any
}

// newMaker is for a library, which has no replica to make its generators.
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

// stop ends the maker and says what it has used.
func (m *maker) stop() oracle.Used {
	return oracle.Used{Worker: m.lease.Worker, Start: m.lease.Start, Next: uint64(m.gen.Stop())}
}

// idsMax is the largest batch.
const idsMax = 256

// make makes some ids, if the generator has any, and enters them in the ledger. It returns
// the generator's error.
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
	m.last, m.made = first+uint64(count)-1, true
	w.stats.IDs += uint64(count)
	w.note('i', uint64(m.lease.Worker), first, uint64(count))
	if err := w.ledger.enter(layout, span{first: first, last: m.last, by: m, at: w.now}); err != nil {
		w.fail("%w", err)
	}
	return nil
}

// number is an id without its worker: the milliseconds and the sequence.
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

// holding is who held a worker last, for the counters.
type holding struct {
	lease    oracle.WorkerLease
	returned bool
}

// enter takes in new ids, and returns an error if one was there before.
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

// giveBack notes that a lease was given back.
func (l *ledger) giveBack(s *Stats, lease oracle.WorkerLease) {
	s.WorkerReleases++
	if h := &l.holders[lease.Worker]; h.lease.Start == lease.Start {
		h.returned = true
	}
}

// followWorkers does what a node does when its generators have changed: it hands them to
// those who make ids.
func (w *world) followWorkers(n *node) {
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
		if end := uint64(gen.Lease().End); end > makers[slot].lease.End {
			w.stats.WorkerRenewals++
			makers[slot].lease.End = end
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

// retiredMax bounds how many ended generators of a node are tried.
const retiredMax = 4

// makeOn lets a node make ids, as a request to it would. Other threads than its loop may
// do that, and go on when the loop stands still; they may still have a generator that has
// been ended.
func (w *world) makeOn(n *node) {
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
	// What the node believes of its lease, and what is on record, must not differ.
	l, _ := n.replica.WorkerLease(m.lease.Worker)
	if !l.IsHeldBy(n.id, m.lease.Session) || l.Start != m.lease.Start || l.End != uint64(m.gen.Lease().End) {
		w.fail("I9: %s makes ids by %+v, on record is %+v", m.name, m.lease, l)
	}
}

// askIDs keeps a client going that asks any node for ids.
func (w *world) askIDs(pause time.Duration) {
	w.after(w.between(0, 2*pause), func() {
		if !w.closing {
			n := w.nodes[w.rng.IntN(len(w.nodes))]
			w.makeOn(n)
			if w.chance(w.cfg.ids.churn) {
				w.relinquish(n)
			}
			w.askIDs(pause)
		}
	})
}

// relinquish lets a node give some of its leases back, as if the clock had gone back for
// them, and ask for others.
func (w *world) relinquish(n *node) bool {
	if !n.up() || n.paused || len(n.makers) == 0 {
		return false
	}
	// Once more soon: what was on its way for the lease before comes after the next one.
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

// awaitWorkers waits, when all faults have ended, until every member that wants workers
// has them or was told why not. A member that was away while the leader joined does not
// know it, and has nobody to ask.
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

// hasWorkers reports whether a node has as many workers as it wants, or knows why not.
func (n *node) hasWorkers(now time.Duration) bool {
	s := n.replica.Status()
	wanted := len(s.Generators)
	wall, _ := n.clock.read(now)
	for _, l := range s.Workers {
		if l.End > uint64(wall/time.Millisecond) {
			wanted--
		}
	}
	return wanted <= 0 || s.WorkersRefused != nil || s.IDsRefused != nil
}

// setUpIDs puts what concerns ids into the configuration of a node's process.
func (w *world) setUpIDs(n *node, c *replica.Config) {
	c.LeaseMillis, c.Space, c.FixedWorker = w.cfg.ids.leaseMillis, oracle.Space(n.ids.layout), n.ids.fixed
	c.Workers, c.IDClock, c.IDAheadMax = n.ids.wanted, w.millis(&n.clock), w.cfg.ids.ahead
	if c.FixedWorker != oracle.AnyWorker {
		c.Workers = min(c.Workers, 1)
	}
}
