package forward

import (
	"slices"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/timeline"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/host/trace"
)

// bundle is the batches of one order, mode and form, as one request.
type bundle struct {
	order *order
	// until is when it is given up; zero: Config.Timeout after it was sent.
	until time.Time
	mode  isotone.ReadMode
	u64   bool
	op    timeline.Op // of the only batch, with at
	at    uint64
	floor isotone.Timestamp // of the only batch; zero: none
	count uint64
	trace *trace.Context // of the first part that is traced; nil: none is
	parts []*front.Batch // none: it only asks whether there is an answer
	got   isotone.Range
	err   error
}

// bundleOf makes a bundle of one batch with its floor.
func (u *Upstream) bundleOf(o *order, batch *front.Batch) *bundle {
	b := u.newBundle(o, batch.Mode, batch.U64)
	b.floor, b.count, b.trace = batch.Floor, sum(batch.Counts), batch.Trace
	b.parts = append(b.parts, batch)
	return b
}

// bundlePending makes a bundle of all that is pending of an order and of the mode and form of the first, or of that alone if it asks the oracle of reads
// and writes.
func (u *Upstream) bundlePending(o *order) *bundle {
	b := u.newBundle(o, o.pending[0].Mode, o.pending[0].U64)
	if first := o.pending[0]; first.Op != timeline.OpIssue {
		o.pending = slices.Delete(o.pending, 0, 1)
		b.op, b.at, b.count, b.trace = first.Op, first.At, 1, first.Trace
		b.parts = append(b.parts, first)
		return b
	}
	left := o.pending[:0]
	full := false
	for _, batch := range o.pending {
		count := sum(batch.Counts)
		// Those of a kind keep their order: behind one that does not fit none does.
		same := batch.Mode == b.mode && batch.U64 == b.u64 && batch.Op == timeline.OpIssue
		if !same || full || len(b.parts) > 0 && b.count+count > b.countMax() {
			full = full || same
			left = append(left, batch)
			continue
		}
		b.parts = append(b.parts, batch)
		b.count += count
		if b.trace == nil {
			b.trace = batch.Trace
		}
	}
	clear(o.pending[len(left):])
	o.pending = left
	return b
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// isAbove reports whether the bundle has a floor.
func (b *bundle) isAbove() bool { return b.floor != (isotone.Timestamp{}) }

// countMax returns how many timestamps one request gives.
func (b *bundle) countMax() uint64 {
	if b.u64 {
		return isotone.Range64CountMax
	}
	return isotone.RangeCountMax
}

func (u *Upstream) newBundle(o *order, mode isotone.ReadMode, u64 bool) *bundle {
	b := &bundle{}
	if n := len(u.spare); n > 0 {
		b, u.spare = u.spare[n-1], u.spare[:n-1]
	}
	b.order, b.mode, b.u64 = o, mode, u64
	return b
}

// split gives the requests of a batch their parts of a range, from place at on, and
// returns the place behind them.
func split(r isotone.Range, at uint64, b *front.Batch) uint64 {
	b.Ranges = slices.Grow(b.Ranges[:0], len(b.Counts))[:len(b.Counts)]
	for i, n := range b.Counts {
		b.Ranges[i] = isotone.Range{First: r.At(at), Count: n}
		if b.U64 {
			b.Ranges[i].First = front.Range64(r).At(at).Timestamp()
		}
		at += n
	}
	return at
}
