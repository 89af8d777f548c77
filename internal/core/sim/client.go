package sim

import (
	"errors"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/core/timeline"
)

// client sends one request after the other to the node that it takes for the leader.
type client struct {
	id uint64
	// searcher finds that node as production does; nil for a client that takes any.
	searcher *searcher
	target   *node
	// sticky clients stay with a node for a while whatever it answers: they would notice that
	// a former leader still answers.
	sticky bool
	// timeout is how long it waits for an answer.
	timeout time.Duration
	// pause is the mean time between requests.
	pause time.Duration
	// seen is the largest timestamp that it has received.
	seen isotone.Timestamp
}

// call is one request on its way.
type call struct {
	client   *client
	line     *line             // of a searcher
	sent     isotone.Timestamp // its floor when it was sent
	op       int               // place in world.history
	u64      bool
	counts   []uint64
	ranges   []isotone.Range
	mode     isotone.ReadMode
	floor    isotone.Timestamp
	strange  bool   // the floor is that of another cluster
	earliest uint64 // that a process had read of the cluster clock when it was sent
	over     bool   // answered, or given up by the client
	// session, if not nil, is what a user says over the connection of its session.
	session *sessionCall
	// timeline is nil for the default order.
	timeline *timelineClient
	// asks, if not timeline.OpIssue, asks its oracle of reads and writes, with at; op is a place in timelineOrder.readWrites then.
	asks timeline.Op
	at   uint64
}

// operationsMax bounds the history of one run, until its last fault.
const operationsMax = 20000

// timeoutMax is the longest, in ticks, that a client waits for an answer.
const timeoutMax = 150

func (w *world) runClient(c *client) {
	w.after(w.between(0, 2*c.pause), func() {
		if !w.closing && (w.quiet || len(w.history) < operationsMax) {
			w.request(c)
		}
	})
}

// request sends a request, with one to three counts, to the client's node.
func (w *world) request(c *client) {
	if c.searcher != nil && c.searcher.want != nil {
		return
	}
	if c.searcher == nil && (c.target == nil || w.chance(0.02)) {
		c.target = w.nodes[w.rng.IntN(len(w.nodes))]
		if l := w.leader(); l != nil && w.chance(0.5) {
			c.target = l
		}
	}
	u64 := w.asks64()
	counts := make([]uint64, 1+w.rng.IntN(3))
	for i := range counts {
		counts[i] = 1 + w.rng.Uint64N(5)
		if w.chance(0.01) {
			counts[i] = isotone.RangeCountMax
			switch {
			case u64 && w.interval.length > 0: // more than a front accepts would have all others wait for seconds
				counts[i] = isotone.Range64CountMax
			case u64 && len(w.history)&1 == 0:
				counts[i] = isotone.Range64CountMax << (len(w.history) / 2 % 5) // up to 16 ms of time
			}
		}
	}
	k := &call{client: c, op: len(w.history), u64: u64, counts: counts, ranges: make([]isotone.Range, len(counts)), mode: isotone.ReadQuorum}
	if w.chance(w.cfg.leaseShare) {
		k.mode = isotone.ReadLease
	}
	for range counts {
		w.history = append(w.history, lincheck.Operation{Client: c.id, Invocation: int64(w.now)})
	}
	if s := c.searcher; s != nil {
		s.want = k
		w.after(c.timeout, func() {
			if s.want == k {
				w.goOn(s)
			}
		})
		w.seek(s)
		return
	}
	k.floor, k.strange = w.drawFloor(c)
	k.earliest = w.interval.earliest
	n := c.target
	w.after(w.clientTransit(), func() { w.arrive(n, k) })
	w.after(c.timeout, func() { w.finish(k, errConnectionLost) })
}

func (w *world) clientTransit() time.Duration {
	return w.between(20*time.Microsecond, time.Millisecond)
}

// arrive gives a request to a node. A paused process reads it when it goes on.
func (w *world) arrive(n *node, k *call) {
	if !n.up() {
		w.dropCall(k)
		return
	}
	n.calls = append(n.calls, k)
	n.in.requests = append(n.in.requests, replica.Request{
		Token: uint64(len(n.calls) - 1), Mode: k.mode, U64: k.u64, Timeline: k.timeline.nameOf(), Op: k.asks, At: k.at, Floor: k.floor, Raise: k.raises(), Counts: k.counts, Ranges: k.ranges,
		Session: k.session.request(),
	})
	w.wake(n)
}

// answer sends an answer back.
func (w *world) answer(n *node, k *call, err *isotone.Error) {
	if k.session != nil {
		w.answerSession(k, err)
		return
	}
	w.after(w.clientTransit(), func() { w.finish(k, err) })
	if err == nil {
		for _, r := range k.ranges {
			w.note('a', n.id, r.First.Time, r.First.Index, r.Count)
		}
	}
}

// dropCall tells a client that its connection has ended, unless the machine is down.
func (w *world) dropCall(k *call) {
	if k.session != nil {
		return // see breakSessions
	}
	if k.line != nil && k.line.node.isSilent() && !k.line.node.up() {
		return
	}
	w.after(w.clientTransit(), func() { w.finish(k, errConnectionLost) })
}

// finish ends a call for its client, which goes on to the next one. An answer after the
// client gave up is lost: its timestamps were issued, but nobody saw them.
func (w *world) finish(k *call, err *isotone.Error) {
	if k.over {
		return
	}
	k.over = true
	w.checkRegressed(k, err)
	if k.timeline != nil {
		w.finishTimeline(k, err)
		return
	}
	if k.line != nil {
		w.served(k, err)
		return
	}
	c := k.client
	switch {
	case err == nil:
		w.take(k)
	case c.sticky && w.chance(0.95) && !w.healing: // at the end it may be the only client, and answers have to come
	case errors.Is(err, isotone.ErrNotLeader):
		c.target = w.nodes[0]
		for _, n := range w.nodes {
			if w.clientAddr(n) == err.Leader {
				c.target = n
			}
		}
	default:
		c.target = nil
	}
	w.runClient(c)
}

// take handles the answer to a call.
func (w *world) take(k *call) {
	w.stats.Answered += uint64(len(k.counts))
	w.noteAnswered(k.form())
	for i, r := range k.ranges {
		for _, part := range k.parts(i) {
			o := lincheck.Operation{Client: k.client.id, Invocation: w.history[k.op+i].Invocation, Completion: int64(w.now), Range: part, Answered: true}
			if part.First == r.First {
				w.history[k.op+i] = o
			} else {
				w.history = append(w.history, o)
			}
			w.checkFloor(time.Duration(o.Invocation), part.First.Time)
			w.checkOrder(k, part)
			w.checkClientFloor(k, part)
			w.checkAnswer(k, part)
		}
	}
}

// asks64 decides whether the next request is for 64-bit timestamps. It draws from no generator: so runs
// are the same with and without them, up to what is answered.
func (w *world) asks64() bool {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return uint64(len(w.history)+1)*odd>>62 == 0
}

// form returns the form of the timestamps that are asked for.
func (k *call) form() form {
	if k.u64 {
		return form64
	}
	return form16
}

// parts returns the answer to one count as ranges: of 64-bit timestamps each by itself or, of many, the
// first and the last.
func (k *call) parts(i int) []isotone.Range {
	r := k.ranges[i]
	if !k.u64 {
		return []isotone.Range{r}
	}
	const each = 8
	first := isotone.Timestamp64From(r.First)
	var parts []isotone.Range
	for at := uint64(0); at < r.Count; at++ {
		if at == 1 && r.Count > each {
			at = r.Count - 1
		}
		parts = append(parts, isotone.Range{First: (first + isotone.Timestamp64(at)).Timestamp(), Count: 1})
	}
	return parts
}
