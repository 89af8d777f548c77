package lincheck

import (
	"slices"

	"github.com/isotone/isotone"
)

// window is the set of the highest timestamps issued so far, in a fixed amount of memory. It
// holds sorted disjoint spans and joins spans that touch. An oracle with one user issues
// consecutive indexes, so there are about as many spans as epochs and open operations,
// however many timestamps there are.
//
// When there are more spans than the limit, the window drops the lowest and sets forgotten to
// its end. Hence the spans are exactly the timestamps added that are above forgotten, and
// forgotten was added as well. A range that add refuses was not added.
//
// New ranges arrive almost in order, so a sorted array beats a tree: the search starts from
// the top, and only what is above the new range moves. What moves are 4-byte places, not
// 24-byte spans, for loads with thousands of open operations.
type window struct {
	spans  []span   // by place
	unused []uint32 // places in spans
	// order has the places in use by ascending span. It slides through store, so
	// that forgetting the lowest moves nothing.
	order []uint32
	store []uint32
	limit int

	forgotten isotone.Timestamp // the highest; zero if there is none
}

// span is the timestamps of one epoch from index first to index last.
type span struct {
	time, first, last uint64
}

// init allocates all memory of the window.
func (w *window) init(limit int) {
	places := limit + 1 // add makes one too many before it forgets one
	w.limit = limit
	w.spans = make([]span, places)
	w.unused = make([]uint32, places)
	for i := range w.unused {
		w.unused[i] = uint32(places - 1 - i)
	}
	w.store = make([]uint32, 2*places)
	w.order = w.store[:0]
}

// add puts a well-formed range into the set. If part of it is known to be there
// already, add changes nothing and returns such a part and false. Below forgotten
// nothing is known.
func (w *window) add(r isotone.Range) (isotone.Range, bool) {
	s := span{r.First.Time, r.First.Index, r.Last().Index}
	if s.end().Before(w.forgotten) {
		return isotone.Range{}, true // as if added and forgotten
	}
	if !w.forgotten.Before(r.First) {
		return isotone.Range{First: w.forgotten, Count: 1}, false
	}
	i := w.search(r.First)
	if i < len(w.order) {
		if common, ok := s.intersect(w.at(i)); ok {
			return common, false
		}
	}
	w.insert(i, s)
	if len(w.order) > w.limit {
		w.forgotten = w.at(0).end()
		w.unused = append(w.unused, w.order[0])
		w.order = w.order[1:]
	}
	return isotone.Range{}, true
}

// search returns the number of spans that end before t: an exponential search from the top,
// then a binary one.
func (w *window) search(t isotone.Timestamp) int {
	high, stride := len(w.order), 1
	for high >= stride && !w.at(high-stride).end().Before(t) {
		high -= stride
		stride *= 2
	}
	low := max(high-stride, 0)
	for low < high {
		middle := int(uint(low+high) / 2)
		if w.at(middle).end().Before(t) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// insert adds s before the i-th span, which it does not overlap, and joins it with the
// neighbours that it touches. No sum overflows: each has a larger index above it.
func (w *window) insert(i int, s span) {
	below := i > 0 && w.at(i-1).time == s.time && w.at(i-1).last+1 == s.first
	above := i < len(w.order) && w.at(i).time == s.time && s.last+1 == w.at(i).first
	switch {
	case below && above:
		w.at(i - 1).last = w.at(i).last
		w.unused = append(w.unused, w.order[i])
		w.order = slices.Delete(w.order, i, i+1)
	case below:
		w.at(i - 1).last = s.last
	case above:
		w.at(i).first = s.first
	default:
		place := w.unused[len(w.unused)-1]
		w.unused = w.unused[:len(w.unused)-1]
		w.spans[place] = s
		if len(w.order) == cap(w.order) {
			// Slides back at most once in limit additions.
			w.order = append(w.store[:0], w.order...)
		}
		w.order = slices.Insert(w.order, i, place)
	}
}

// at returns the i-th span from below.
func (w *window) at(i int) *span { return &w.spans[w.order[i]] }

// end returns the highest timestamp of the span.
func (s *span) end() isotone.Timestamp {
	return isotone.Timestamp{Time: s.time, Index: s.last}
}

// intersect returns the timestamps that both spans have, if any.
func (s *span) intersect(t *span) (isotone.Range, bool) {
	first, last := max(s.first, t.first), min(s.last, t.last)
	if s.time != t.time || first > last {
		return isotone.Range{}, false
	}
	return isotone.Range{
		First: isotone.Timestamp{Time: s.time, Index: first},
		Count: last - first + 1,
	}, true
}
