package frontier_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
)

// A simulation of leaders, writers and one store with a fence. Whatever is on its way arrives in the order of its connection, at any time, or is lost with it; writes arrive at
// any time in any order. A step is a millisecond.

const name = "orders"

// world is a run.
type world struct {
	rng     *rand.Rand
	now     time.Duration
	issued  uint64 // the largest stamp of all terms
	leaders []*leader
	writers []*writer
	flying  []*write
	fence   isotone.Timestamp
	told    isotone.Timestamp // the largest frontier
	calm    bool
	err     error
}

// leader is the leader of a term. It may go on after the next one has opened, with stamps below those of that one.
type leader struct {
	table         *frontier.Table
	next, ceiling uint64
	last          isotone.Timestamp // the frontier that it has told last
	// ended are the sessions that it has ended, and overdue those that it has fenced.
	ended, overdue map[frontier.Session]bool
}

// writer is a client with a session. lead is the leader that it is connected to.
type writer struct {
	id   frontier.Session
	lead *leader
	dead bool
	// up and down are the messages on the connection.
	up, down []func()
	taking   bool
	// open are stamps that are not decided, and doubts those of them that it does not wait for.
	open   []isotone.Timestamp
	doubts []isotone.Timestamp
	high   isotone.Timestamp
}

// write is a write on its way to the store.
type write struct {
	by    *writer
	stamp isotone.Timestamp
}

func at(n uint64) isotone.Timestamp { return isotone.Timestamp{Time: n >> 4, Index: n & 15} }

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%v: "+format, append([]any{w.now}, args...)...)
	}
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// lead is the leader of the latest term.
func (w *world) lead() *leader { return w.leaders[len(w.leaders)-1] }

// open has another leader open, above all that earlier ones may issue.
func (w *world) open() {
	floor := w.issued + 1 + w.rng.Uint64N(20)
	if len(w.leaders) > 0 {
		floor = w.lead().ceiling
	}
	w.issued = max(w.issued, floor)
	w.leaders = append(w.leaders, &leader{
		table: frontier.New(at(floor), w.now, 200*time.Millisecond), next: floor, ceiling: floor + 400, ended: map[frontier.Session]bool{}, overdue: map[frontier.Session]bool{},
	})
}

// bind connects a writer to the latest leader, and tells it what is not decided. What was on the old connection is lost.
func (w *world) bind(c *writer) {
	l := w.lead()
	c.lead, c.up, c.down, c.taking = l, nil, nil, false
	r := frontier.Report{Group: name, Low: isotone.Timestamp{Index: 1}}
	if len(c.open) > 0 {
		r.Low, r.High = slices.MinFunc(c.open, isotone.Timestamp.Compare), c.high
	}
	c.up = append(c.up, func() {
		if l.ended[c.id] {
			c.down = append(c.down, func() { w.expired(c) })
		} else if err := l.table.Bind(c.id, []frontier.Report{r}); err != nil {
			w.fail("%v", err)
		}
	})
}

// expired ends a writer, whose place another one takes.
func (w *world) expired(c *writer) {
	if !c.dead {
		c.dead = true
		w.join()
	}
}

func (w *world) join() {
	c := &writer{id: frontier.Session(len(w.writers) + 1)}
	w.writers = append(w.writers, c)
	w.bind(c)
}

// tell has the leader of a writer handle something, if that is connected to it still.
func (w *world) tell(c *writer, f func(t *frontier.Table)) {
	l := c.lead
	c.up = append(c.up, func() {
		if l.ended[c.id] {
			c.down = append(c.down, func() { w.expired(c) })
		} else {
			f(l.table)
		}
	})
}

// low tells the leader what is decided.
func (w *world) low(c *writer) {
	x := isotone.Timestamp{Time: c.high.Time, Index: c.high.Index + 1}
	if len(c.open) > 0 {
		x = slices.MinFunc(c.open, isotone.Timestamp.Compare)
	}
	w.tell(c, func(t *frontier.Table) { t.Low(c.id, name, x) })
}

// decided removes a stamp from those that are open.
func (c *writer) decided(stamp isotone.Timestamp) {
	c.open = slices.DeleteFunc(c.open, func(o isotone.Timestamp) bool { return o == stamp })
	c.doubts = slices.DeleteFunc(c.doubts, func(o isotone.Timestamp) bool { return o == stamp })
}

// take asks for one stamp, or for the right to make some.
func (w *world) take(c *writer) {
	c.taking = true
	l, count := c.lead, 1+w.rng.Uint64N(3)
	w.tell(c, func(t *frontier.Table) {
		if l.next+count >= l.ceiling {
			c.down = append(c.down, func() { c.taking = false })
			return
		}
		first, last := l.next, l.next+count-1
		if t.Take(c.id, name, at(first), at(last)) {
			l.next, w.issued = last+1, max(w.issued, last)
		}
		c.down = append(c.down, func() {
			c.taking, c.high = false, at(last)
			for n := first; n <= last; n++ {
				c.open = append(c.open, at(n))
				w.flying = append(w.flying, &write{c, at(n)})
			}
		})
	})
}

// doubt gives up a write without an answer: it stays open until the leader has answered.
func (w *world) doubt(c *writer) {
	stamp := c.open[w.rng.IntN(len(c.open))]
	if slices.Contains(c.doubts, stamp) {
		return
	}
	c.doubts = append(c.doubts, stamp)
	w.tell(c, func(t *frontier.Table) {
		t.Doubt(c.id, name, stamp)
		c.down = append(c.down, func() { c.decided(stamp); w.low(c) })
	})
}

// arrive has a write reach the store.
func (w *world) arrive() {
	i := w.rng.IntN(len(w.flying))
	f := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	if !f.stamp.Before(w.fence) && !w.told.Before(f.stamp) {
		w.fail("a write stamped %v is accepted after the frontier %v was told", f.stamp, w.told)
	}
	if !f.by.dead && w.chance(0.9) { // or the answer is lost
		f.by.decided(f.stamp)
		w.low(f.by)
	} else if !f.by.dead {
		w.flying = append(w.flying, f) // it is repeated
	}
}

// turn has a leader do what it does in each tick.
func (w *world) turn(l *leader) {
	l.table.Advance(w.now, at(l.next))
	for _, f := range l.table.Overdue() {
		l.overdue[f.Session] = true
	}
	for _, s := range l.table.Seals() {
		w.checkInnocent(l, s)
		for _, c := range w.writers {
			if c.id == s.Session && c.lead == l {
				c.down = append(c.down, func() { w.seal(c, s.Through) })
			}
		}
	}
	f := l.table.Frontier(name)
	if f.Before(l.last) {
		w.fail("the frontier sinks from %v to %v", l.last, f)
	}
	l.last = f
	if w.told.Before(f) {
		w.told = f
	}
}

// checkInnocent checks that a seal is below what live writers may write, of whom the leader has heard all.
func (w *world) checkInnocent(l *leader, s frontier.Seal) {
	for _, c := range w.writers {
		if c.dead || c.lead != l || l.ended[c.id] || l.overdue[c.id] || len(c.up) > 0 {
			continue
		}
		for _, stamp := range c.open {
			if l.last.Before(stamp) && !s.Through.Before(stamp) {
				w.fail("a seal through %v is asked for while a live writer may write %v", s.Through, stamp)
			}
		}
	}
}

// seal has a writer raise the fence of the store.
func (w *world) seal(c *writer, through isotone.Timestamp) {
	up := isotone.Timestamp{Time: through.Time, Index: through.Index + 1}
	if up.Index == 0 {
		up.Time++
	}
	if w.fence.Before(up) {
		w.fence = up
	}
	w.tell(c, func(t *frontier.Table) { t.Sealed(name, through) })
}

// step does one thing at random.
func (w *world) step() {
	w.now += time.Millisecond
	if !w.calm && w.chance(0.004) {
		w.open()
	}
	for _, l := range w.leaders[max(0, len(w.leaders)-2):] {
		if l == w.lead() || w.chance(0.3) {
			if l.next+1 < l.ceiling && w.chance(0.3) {
				l.next++ // time passes
				w.issued = max(w.issued, l.next)
			}
			w.turn(l)
		}
	}
	for _, c := range slices.Clone(w.writers) {
		if !c.dead {
			w.act(c)
		}
	}
	for len(w.flying) > 0 && w.chance(0.6) {
		w.arrive()
	}
}

// act has a writer, and its connection, do something.
func (w *world) act(c *writer) {
	for range 3 {
		if len(c.up) > 0 && w.chance(0.6) {
			f := c.up[0]
			c.up = c.up[1:]
			f()
		}
		if len(c.down) > 0 && w.chance(0.6) && !c.dead {
			f := c.down[0]
			c.down = c.down[1:]
			f()
		}
	}
	switch {
	case c.dead:
	case c.lead != w.lead() && w.chance(0.2):
		w.bind(c)
	case w.calm:
		if w.chance(0.01) {
			w.low(c)
		}
	case w.chance(0.003):
		c.dead = true // its writes may still arrive
		w.join()
	case w.chance(0.004):
		w.bind(c) // its connection has broken
	case w.chance(0.02) && len(c.open) > 0:
		w.doubt(c)
	case !c.taking && w.chance(0.4):
		w.take(c)
	}
	for _, l := range w.leaders[max(0, len(w.leaders)-2):] {
		if !l.ended[c.id] && (c.dead && w.chance(0.2) || !w.calm && w.chance(0.001)) { // nothing was heard of it
			l.ended[c.id] = true
			l.table.End(c.id)
		}
	}
}

// run simulates with a seed, and returns what is wrong.
func run(seed uint64) error {
	w := &world{rng: rand.New(rand.NewPCG(seed, 41))}
	w.open()
	for range 1 + w.rng.IntN(4) {
		w.join()
	}
	for range 1500 {
		if w.step(); w.err != nil {
			return w.err
		}
	}
	w.calm = true
	for range 1000 {
		w.step()
	}
	if l := w.lead(); w.err == nil && l.last.Compare(at(l.next-1)) < 0 {
		w.fail("at the end the frontier stays at %v, and %v is next", l.last, at(l.next))
	}
	return w.err
}
