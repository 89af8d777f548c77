package session

import (
	"container/heap"
	"math"
	"slices"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/frontier"
	"github.com/isotone/isotone/internal/core/mutant"
)

// clientGroup is what a client has to do with a group.
type clientGroup struct {
	name string
	// open are the stamps that are not decided. heap has them all, and may have others.
	open map[isotone.Timestamp]struct{}
	heap stamps
	// doubts are those of them for which nobody waits; told of them are said over this connection.
	doubts []isotone.Timestamp
	told   int
	// issued is the largest stamp that it was issued, high the largest that it may write, and said the low that it has said.
	issued, high, said isotone.Timestamp
	// own and bound are the smallest and the largest stamp that it may make itself.
	own, bound isotone.Timestamp
	// want is how many stamps are to be asked for, taking how many are on their way: those are above issued, and may be below high.
	want, taking uint64
	ahead, u64   bool
}

func (c *Client) group(name string) *clientGroup {
	for _, g := range c.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// Take has n more stamps asked for, for writes in a group of the session. EventStamps or EventRefused follows. With ahead the session may then make
// stamps itself; see Make. With u64 they have the 64-bit form.
func (c *Client) Take(group string, n uint64, ahead, u64 bool) {
	g := c.group(group)
	g.want += n
	g.ahead, g.u64 = ahead, u64
}

// Done tells that a write is decided: stored, refused, or never to be sent. All stamps that were taken are to be decided (R11).
func (c *Client) Done(group string, stamp isotone.Timestamp) {
	g := c.group(group)
	delete(g.open, stamp)
	if at := slices.Index(g.doubts, stamp); at >= 0 {
		g.doubts = slices.Delete(g.doubts, at, at+1)
		if at < g.told {
			g.told--
		}
	}
}

// Doubt tells that a write has no answer, and that nobody waits for one any more. It may be stored at any time, until a seal.
func (c *Client) Doubt(group string, stamp isotone.Timestamp) {
	g := c.group(group)
	if _, ok := g.open[stamp]; !ok || slices.Contains(g.doubts, stamp) {
		return
	}
	g.doubts = append(g.doubts, stamp)
	if mutant.On(mutant.DoubtIsDone) {
		delete(g.open, stamp)
	}
}

// Make registers a stamp that the session makes itself, with an index from oracle.IndexMax on. It reports false if it may not: the stamp is beyond the bound of the
// latest Take, or all below a larger one are said to be decided.
func (c *Client) Make(group string, stamp isotone.Timestamp) bool {
	g := c.group(group)
	if stamp.Before(g.own) || g.bound.Before(stamp) && !mutant.On(mutant.BoundIgnored) {
		return false
	}
	g.add(stamp)
	return true
}

// MayWrite reports whether a stamp that was taken or made may be used: it is neither decided nor fenced.
func (c *Client) MayWrite(group string, stamp isotone.Timestamp) bool {
	_, ok := c.group(group).open[stamp]
	return ok
}

// take adds to a request what is to be taken of a group.
func (c *Client) take(k *Call) bool {
	for _, g := range c.groups {
		if g.want == 0 || g.taking > 0 {
			continue
		}
		most := uint64(isotone.RangeCountMax)
		if g.u64 {
			most = isotone.Range64CountMax
		}
		g.taking = min(g.want, most)
		g.want -= g.taking
		k.Group, k.Ahead, k.U64, k.Count = g.name, g.ahead, g.u64, g.taking
		return true
	}
	return false
}

// isTaking reports whether stamps are on their way.
func (c *Client) isTaking() bool {
	return slices.ContainsFunc(c.groups, func(g *clientGroup) bool { return g.taking > 0 })
}

// taken notes stamps of an answer.
func (c *Client) taken(k *Call) {
	g, r := c.group(k.Group), k.Range
	g.taking = 0
	last := isotone.Timestamp{Time: r.First.Time, Index: r.First.Index + r.Count - 1}
	for n := range r.Count {
		stamp := isotone.Timestamp{Time: r.First.Time, Index: r.First.Index + n}
		if k.U64 {
			stamp = (isotone.Timestamp64From(r.First) + isotone.Timestamp64(n)).Timestamp()
			last = stamp
		}
		if !c.closed { // else nobody uses them
			g.add(stamp)
		}
	}
	if g.issued = last; k.Ahead {
		g.own, g.bound = r.First, k.Reply.Bound
	}
	if r.First.Before(g.said) { // the leader has lowered it, too (R10)
		g.said = r.First
	}
	if g.high = later(g.high, later(last, k.Reply.Bound)); c.closed {
		return
	}
	c.happened(Event{Kind: EventStamps, Group: g.name, Range: r, Through: k.Reply.Bound})
}

func (g *clientGroup) add(stamp isotone.Timestamp) {
	if g.open == nil {
		g.open = map[isotone.Timestamp]struct{}{}
	}
	if _, ok := g.open[stamp]; !ok {
		g.open[stamp] = struct{}{}
		heap.Push(&g.heap, stamp)
	}
}

// lowest returns the lowest stamp that is not decided, or reports false.
func (g *clientGroup) lowest() (isotone.Timestamp, bool) {
	for len(g.heap) > 0 {
		if _, ok := g.open[g.heap[0]]; ok {
			return g.heap[0], true
		}
		heap.Pop(&g.heap)
	}
	return isotone.Timestamp{}, false
}

// low is the stamp below which all are decided.
func (g *clientGroup) low() isotone.Timestamp {
	low := above(g.high)
	if g.taking > 0 && !mutant.On(mutant.LowWhileTaking) {
		low = above(g.issued)
	}
	if t, ok := g.lowest(); ok && t.Before(low) {
		low = t
	}
	return low
}

// say adds to a request what is decided and doubted, and reports whether anything of that is new.
func (g *clientGroup) say(k *Call) (some bool) {
	if low := g.low(); g.said.Before(low) {
		k.Lows = append(k.Lows, GroupStamp{Group: g.name, Stamp: low})
		g.said, g.own, some = low, later(g.own, low), true
	}
	for _, d := range g.doubts[:min(len(g.doubts), doubtsMax)] {
		k.Doubts = append(k.Doubts, GroupStamp{Group: g.name, Stamp: d})
		if mutant.On(mutant.DoubtUnanswered) {
			delete(g.open, d)
		}
	}
	some = some || min(len(g.doubts), doubtsMax) > g.told
	g.told = min(len(g.doubts), doubtsMax)
	return some
}

// report is what may still be written, to bind with.
func (g *clientGroup) report() frontier.Report {
	low, ok := g.lowest()
	if g.said = low; !ok {
		g.said = above(g.high)
		return frontier.Report{Group: g.name, Low: isotone.Timestamp{Index: 1}}
	}
	return frontier.Report{Group: g.name, Low: low, High: g.high}
}

// disconnected gives up what was on its way, and stamps that the session might still make itself.
func (g *clientGroup) disconnected() {
	g.want += g.taking
	g.taking, g.told = 0, 0
	g.own = above(g.high)
}

// fence forgets stamps that must not be used any more.
func (g *clientGroup) fence(low, through isotone.Timestamp) {
	for t := range g.open { // order-free: each by itself
		if !t.Before(low) && !through.Before(t) {
			delete(g.open, t)
		}
	}
	g.doubts = slices.DeleteFunc(g.doubts, func(t isotone.Timestamp) bool { return !t.Before(low) && !through.Before(t) })
	g.told, g.own = min(g.told, len(g.doubts)), later(g.own, above(through))
}

// stamps is a heap of stamps, the lowest first.
type stamps []isotone.Timestamp

func (s stamps) Len() int           { return len(s) }
func (s stamps) Less(i, j int) bool { return s[i].Before(s[j]) }
func (s stamps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push implements [heap.Interface].
func (s *stamps) Push(x any) { *s = append(*s, x.(isotone.Timestamp)) }

// Pop implements [heap.Interface].
func (s *stamps) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	*s = (*s)[:last]
	return t
}

// above returns the smallest stamp above t.
func above(t isotone.Timestamp) isotone.Timestamp {
	if t.Index == math.MaxUint64 {
		return isotone.Timestamp{Time: t.Time + 1}
	}
	t.Index++
	return t
}

func later(a, b isotone.Timestamp) isotone.Timestamp {
	if a.Before(b) {
		return b
	}
	return a
}
