package sim

import (
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/core/timeline"
)

// drawReadWrite draws a call of the oracle of reads and writes of a timeline. Mostly a write that was answered is applied, and now and then a time that
// nobody was given, which may be beyond the ceiling.
func (w *world) drawReadWrite(c *timelineClient) *call {
	rng, o := w.timelines.rng, c.order
	k := &call{timeline: c, op: len(o.readWrites), counts: []uint64{1}, ranges: make([]isotone.Range, 1), asks: timeline.OpWrite + timeline.Op(rng.IntN(4))}
	if k.asks == timeline.OpApply {
		k.at = o.written
		if rng.IntN(4) == 0 {
			k.at = o.seenMillis + rng.Uint64N(100)
		}
	}
	o.readWrites = append(o.readWrites, lincheck.ReadWrite{Client: c.id, Op: k.asks, At: k.at, Invocation: int64(w.now)})
	return k
}

// takeReadWrite adds an answer to the history.
func (w *world) takeReadWrite(k *call) {
	o, got := k.timeline.order, k.ranges[0].First.Time
	w.stats.Timelines++
	op := &o.readWrites[k.op]
	op.Completion, op.Time, op.Answered = int64(w.now), got, true
	o.seenMillis = max(o.seenMillis, got)
	if k.asks == timeline.OpWrite {
		o.written = got
	}
	if invoked := k.invoked(); o.floorAt > 0 && invoked > o.floorAt && got < o.floor/uint64(time.Millisecond) {
		w.fail("T9: the timeline %q answers %v with %d ms after its floor was raised to %d ns", o.name, k.asks, got, o.floor)
	}
}

// invoked returns when a call of a timeline began.
func (k *call) invoked() time.Duration {
	o := k.timeline.order
	if k.asks != timeline.OpIssue {
		return time.Duration(o.readWrites[k.op].Invocation)
	}
	return time.Duration(o.history[k.op].Invocation)
}
