package http1

import (
	"math/bits"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
	"github.com/isotone/isotone/internal/host/trace"
)

// ask is what the answer needs to know of its request, apart from the count.
type ask struct {
	format httpapi.Format
	legacy bool   // as in request
	query  uint16 // length of the raw query; the queries of a group are concatenated
	stream uint32 // of HTTP/2; 0: none, or it was reset
	call   bool   // the answer is a range, and not spelled
}

// answerHeadMax approximates the size of an answer's header, fault fields included.
const answerHeadMax = 360

func (r *request) answerSize() int {
	switch r.format {
	case httpapi.Range:
		return answerHeadMax + isotone.RangeSize
	case httpapi.JSON:
		return answerHeadMax + int(r.count)*httpapi.JSONEntryMax
	case httpapi.U64:
		return answerHeadMax + int(r.count)*isotone.Timestamp64Size
	case httpapi.U64JSON:
		return answerHeadMax + int(r.count)*(httpapi.JSON64EntryMax+1)
	default:
		return answerHeadMax + int(r.count)*isotone.TimestampSize
	}
}

// group is a batch that is being collected. It is reused.
type group struct {
	mode     isotone.ReadMode
	u64      bool
	ends     bool // the latest answer ends the connection
	floor    isotone.Timestamp
	timeline string
	size     int // of the answers
	counts   []uint64
	asks     []ask
	queries  []byte
	parsed   request // the one being read

	measured []measured // only with a meter
	traced   []traced   // those requests that are traced
}

func (g *group) reset() {
	g.ends = false
	g.size, g.counts, g.asks, g.queries = 0, g.counts[:0], g.asks[:0], g.queries[:0]
	g.measured, g.traced = g.measured[:0], g.traced[:0]
}

func (g *group) empty() bool { return len(g.counts) == 0 }
func (g *group) len() int    { return len(g.counts) }

// sum returns how many timestamps are asked for.
func (g *group) sum() (sum uint64) {
	for _, n := range g.counts {
		sum += n
	}
	return sum
}

// add adds r, which b begins with, and whose client may ask for it, and reports whether it fits in this batch.
func (g *group) add(f *Front, r *request, b []byte) bool {
	mode := r.mode
	if mode == isotone.ReadDefault {
		mode = f.cfg.Mode
	}
	size := r.answerSize()
	switch {
	case g.empty():
		g.mode, g.u64, g.floor, g.timeline = mode, r.isU64(), r.floor, r.order
	case mode != g.mode, r.isU64() != g.u64, r.floor != g.floor, r.order != g.timeline, g.len() >= f.cfg.Limits.PipelineMax, g.size+size > f.cfg.Limits.AnswerBytesMax:
		return false
	}
	g.size += size
	g.ends = r.last
	g.counts = append(g.counts, r.count)
	g.asks = append(g.asks, ask{format: r.format, query: uint16(r.query), legacy: r.legacy})
	g.queries = append(g.queries, r.rawQuery(b)...)
	var span *trace.Context
	if f.tracer != nil {
		span = g.trace(f, r, b)
	}
	if f.meter != nil {
		g.measured = append(g.measured, f.meter.begin(r, b, span))
	}
	return true
}

// trace begins the span of r, the latest of the group, or returns nil. The result is valid until
// the next call.
func (g *group) trace(f *Front, r *request, b []byte) *trace.Context {
	one, ok := f.tracer.begin(r, b)
	if !ok {
		return nil
	}
	one.index = g.len() - 1
	g.traced = append(g.traced, one)
	return &g.traced[len(g.traced)-1].Context
}

// pendingBatch is a submitted batch with everything that its answers need. It does not
// belong to a connection: an idle one has none, and one that ends leaves it to the backend.
type pendingBatch struct {
	front   *Front
	owner   owner // nil: the connection has ended
	ends    bool  // the connection ends with the latest answer
	batch   front.Batch
	counts  []uint64 // as submitted
	ranges  []isotone.Range
	asks    []ask
	sum     uint64 // of counts
	queries []byte
	began   time.Duration
	class   int // it has room for 1<<class requests

	measured []measured // nil without a meter
	traced   []traced   // nil unless a request is traced
}

// owner is whom a batch is answered to.
type owner interface{ answer(*pendingBatch) }

func newPendingBatch(f *Front, class int) *pendingBatch {
	p := &pendingBatch{
		front: f, class: class,
		counts: make([]uint64, 1<<class), ranges: make([]isotone.Range, 1<<class), asks: make([]ask, 0, 1<<class),
	}
	p.batch.Done = p.done
	return p
}

// fill copies g.
func (p *pendingBatch) fill(g *group) {
	p.ends = g.ends
	p.batch.Mode, p.batch.U64, p.batch.Floor, p.batch.Timeline, p.batch.Moved, p.batch.Err = g.mode, g.u64, g.floor, g.timeline, false, nil
	p.batch.Counts, p.batch.Ranges = p.counts[:g.len()], p.ranges[:g.len()]
	copy(p.batch.Counts, g.counts)
	clear(p.batch.Ranges) // never answer with ranges of the previous batch
	p.asks = append(p.asks[:0], g.asks...)
	p.queries = append(p.queries[:0], g.queries...)
	if p.front.meter != nil {
		p.measured = append(p.measured[:0], g.measured...)
	}
	if p.front.tracer != nil {
		p.traced, p.batch.Trace = append(p.traced[:0], g.traced...), nil
		if len(p.traced) > 0 {
			p.batch.Trace = &p.traced[0].Context
		}
	}
}

// done is the batch's Done.
func (p *pendingBatch) done(*front.Batch) {
	if p.owner != nil {
		p.owner.answer(p)
	}
	p.front.spare.put(p)
}

// err returns why the batch failed, or nil.
func (p *pendingBatch) err() error {
	if p.batch.Err != nil {
		return p.batch.Err
	}
	for i, n := range p.counts[:len(p.asks)] {
		if i >= len(p.batch.Ranges) || p.batch.Ranges[i].Count != n {
			return httpapi.WrongCount(n)
		}
	}
	return nil
}

const (
	// classes: the largest has room for 1<<(classes-1) requests.
	classes = 16
	// spareRequestsMax bounds the capacity that is kept for each class: 1 MiB, enough for
	// the connections that a busy node serves at once.
	spareRequestsMax = 16 << 10
	// spareQueryMax bounds the capacity for queries of a pending batch that is kept.
	spareQueryMax = 1 << 10
)

// spare is a pool of pending batches, by how many requests they have room for.
type spare [classes][]*pendingBatch

// take returns a pending batch with room for n requests.
func (s *spare) take(f *Front, n int) *pendingBatch {
	class := bits.Len(uint(n - 1))
	if class >= classes {
		return newPendingBatch(f, class)
	}
	list := s[class]
	if len(list) == 0 {
		return newPendingBatch(f, class)
	}
	p := list[len(list)-1]
	s[class] = list[:len(list)-1]
	return p
}

// put returns p to the pool, unless the pool is full.
func (s *spare) put(p *pendingBatch) {
	p.owner, p.batch.Err = nil, nil
	if cap(p.queries) > spareQueryMax {
		p.queries = nil
	}
	if p.class < classes && len(s[p.class]) < max(1, spareRequestsMax>>p.class) {
		s[p.class] = append(s[p.class], p)
	}
}
