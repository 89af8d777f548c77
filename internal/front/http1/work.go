package http1

import (
	"math/bits"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/httpapi"
)

// ask is what an answer must know of its request, beside the count.
type ask struct {
	format httpapi.Format
	query  uint16 // the length of the raw query; the bytes are one after the other
}

// answerHeadMax is about what the header of an answer has, with that of a fault.
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

// group is a batch in the making. It is used again for each.
type group struct {
	mode    isotone.ReadMode
	size    int // of the answers
	counts  []uint64
	asks    []ask
	queries []byte
	parsed  request // the one that is being looked at
}

func (g *group) reset() {
	g.size, g.counts, g.asks, g.queries = 0, g.counts[:0], g.asks[:0], g.queries[:0]
}

func (g *group) empty() bool { return len(g.counts) == 0 }
func (g *group) len() int    { return len(g.counts) }

// add takes r, which b begins with, unless that must wait for the next batch.
func (g *group) add(l *Lane, r *request, b []byte) bool {
	mode := r.mode
	if mode == isotone.ReadDefault {
		mode = l.cfg.Mode
	}
	size := r.answerSize()
	switch {
	case g.empty():
		g.mode = mode
	case mode != g.mode, g.len() >= l.cfg.Limits.PipelineMax, g.size+size > l.cfg.Limits.AnswerBytesMax:
		return false
	}
	g.size += size
	g.counts = append(g.counts, r.count)
	g.asks = append(g.asks, ask{format: r.format, query: uint16(r.query)})
	g.queries = append(g.queries, r.rawQuery(b)...)
	return true
}

// work is a batch with all that its answers need. It belongs to no connection: one that
// is idle has none, and one that ends leaves its own to the backend.
type work struct {
	lane    *Lane
	owner   *handler // nil: the connection has ended
	batch   front.Batch
	counts  []uint64 // the batch's, whatever the backend makes of it
	ranges  []isotone.Range
	asks    []ask
	queries []byte
	began   time.Duration
	class   int // it has room for 1<<class requests
}

func newWork(l *Lane, class int) *work {
	w := &work{
		lane: l, class: class,
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
	clear(w.batch.Ranges) // what the backend does not set must not be the last one's
	w.asks = append(w.asks[:0], g.asks...)
	w.queries = append(w.queries[:0], g.queries...)
}

// done is the batch's Done.
func (w *work) done(*front.Batch) {
	if w.owner != nil {
		w.owner.answer(w)
	}
	w.lane.spare.put(w)
}

// err returns why the batch has failed, or nil.
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
	// spareRequestsMax bounds the room in the works of one class that are kept: 1 MiB,
	// and as many connections as a busy node has in work at once.
	spareRequestsMax = 16 << 10
	// spareQueryMax is the most bytes of queries that a kept work has room for.
	spareQueryMax = 1 << 10
)

// spare keeps works for use again, by how many requests they have room for.
type spare [classes][]*work

// take returns a work with room for n requests.
func (s *spare) take(l *Lane, n int) *work {
	class := bits.Len(uint(n - 1))
	if class >= classes {
		return newWork(l, class)
	}
	list := s[class]
	if len(list) == 0 {
		return newWork(l, class)
	}
	w := list[len(list)-1]
	s[class] = list[:len(list)-1]
	return w
}

// put keeps w, unless there are many.
func (s *spare) put(w *work) {
	w.owner, w.batch.Err = nil, nil
	if cap(w.queries) > spareQueryMax {
		w.queries = nil
	}
	if w.class < classes && len(s[w.class]) < max(1, spareRequestsMax>>w.class) {
		s[w.class] = append(s[w.class], w)
	}
}
