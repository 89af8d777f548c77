package http1

import (
	"math/bits"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// ask is what the answer needs to know of its request, apart from the count.
type ask struct {
	format httpapi.Format
	query  uint16 // length of the raw query; the queries of a group are concatenated
}

// answerHeadMax approximates the size of an answer's header, fault fields included.
const answerHeadMax = 360

func (r *request) answerSize() int {
	switch r.format {
	case httpapi.Range:
		return answerHeadMax + isotone.RangeSize
	case httpapi.JSON:
		return answerHeadMax + int(r.count)*httpapi.JSONEntryMax
	default:
		return answerHeadMax + int(r.count)*isotone.TimestampSize
	}
}

// group is a batch that is being collected. It is reused.
type group struct {
	mode    isotone.ReadMode
	size    int // of the answers
	counts  []uint64
	asks    []ask
	queries []byte
	parsed  request // the one being read

	measured []measured // only with a meter
}

func (g *group) reset() {
	g.size, g.counts, g.asks, g.queries = 0, g.counts[:0], g.asks[:0], g.queries[:0]
	g.measured = g.measured[:0]
}

func (g *group) empty() bool { return len(g.counts) == 0 }
func (g *group) len() int    { return len(g.counts) }

// add adds r, which b begins with, and reports whether it fits in this batch.
func (g *group) add(f *Front, r *request, b []byte) bool {
	mode := r.mode
	if mode == isotone.ReadDefault {
		mode = f.cfg.Mode
	}
	size := r.answerSize()
	switch {
	case g.empty():
		g.mode = mode
	case mode != g.mode, g.len() >= f.cfg.Limits.PipelineMax, g.size+size > f.cfg.Limits.AnswerBytesMax:
		return false
	}
	g.size += size
	g.counts = append(g.counts, r.count)
	g.asks = append(g.asks, ask{format: r.format, query: uint16(r.query)})
	g.queries = append(g.queries, r.rawQuery(b)...)
	if f.meter != nil {
		g.measured = append(g.measured, f.meter.begin(r, b))
	}
	return true
}

// work is a submitted batch with everything that its answers need. It does not belong to
// a connection: an idle one has none, and one that ends leaves its work to the backend.
type work struct {
	front   *Front
	owner   *handler // nil: the connection has ended
	batch   front.Batch
	counts  []uint64 // as submitted
	ranges  []isotone.Range
	asks    []ask
	queries []byte
	began   time.Duration
	class   int // it has room for 1<<class requests

	measured []measured // nil without a meter
}

func newWork(f *Front, class int) *work {
	w := &work{
		front: f, class: class,
		counts: make([]uint64, 1<<class), ranges: make([]isotone.Range, 1<<class), asks: make([]ask, 0, 1<<class),
	}
	w.batch.Done = w.done
	return w
}

// fill copies g.
func (w *work) fill(g *group) {
	w.batch.Mode, w.batch.Err = g.mode, nil
	w.batch.Counts, w.batch.Ranges = w.counts[:g.len()], w.ranges[:g.len()]
	copy(w.batch.Counts, g.counts)
	clear(w.batch.Ranges) // never answer with ranges of the previous batch
	w.asks = append(w.asks[:0], g.asks...)
	w.queries = append(w.queries[:0], g.queries...)
	if w.front.meter != nil {
		w.measured = append(w.measured[:0], g.measured...)
	}
}

// done is the batch's Done.
func (w *work) done(*front.Batch) {
	if w.owner != nil {
		w.owner.answer(w)
	}
	w.front.spare.put(w)
}

// err returns why the batch failed, or nil.
func (w *work) err() error {
	if w.batch.Err != nil {
		return w.batch.Err
	}
	for i, n := range w.counts[:len(w.asks)] {
		if i >= len(w.batch.Ranges) || w.batch.Ranges[i].Count != n {
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
	// spareQueryMax bounds the capacity for queries of a kept work.
	spareQueryMax = 1 << 10
)

// spare is a pool of works, by how many requests they have room for.
type spare [classes][]*work

// take returns a work with room for n requests.
func (s *spare) take(f *Front, n int) *work {
	class := bits.Len(uint(n - 1))
	if class >= classes {
		return newWork(f, class)
	}
	list := s[class]
	if len(list) == 0 {
		return newWork(f, class)
	}
	w := list[len(list)-1]
	s[class] = list[:len(list)-1]
	return w
}

// put returns w to the pool, unless the pool is full.
func (s *spare) put(w *work) {
	w.owner, w.batch.Err = nil, nil
	if cap(w.queries) > spareQueryMax {
		w.queries = nil
	}
	if w.class < classes && len(s[w.class]) < max(1, spareRequestsMax>>w.class) {
		s[w.class] = append(s[w.class], w)
	}
}
