package telemetry

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"
)

const (
	// BusyMax bounds how many names are counted each by itself.
	BusyMax = 1024
	// busyWindow is the least time over which rates are taken.
	busyWindow = time.Second
)

// Busy counts what is served by names, those of timelines, and what is refused by their quotas. Up to BusyMax names are counted exactly. Of more,
// a new one takes the place of the one with the least weight, and its weight (Metwally's space-saving): so each that gets more than a part
// in as many of the requests has a place, though it is counted only since it has. The zero Busy is ready. It is not safe for concurrent use.
type Busy struct {
	names map[string]*busyName
	least busyHeap
	// began is when the window began, and took how long the one before it was. now and last are all names in these.
	began, took time.Duration
	now, last   servedCount
}

// Load is what was served in each second, and how many requests were refused.
type Load struct{ Requests, Timestamps, Refused float64 }

// servedCount counts requests that were served, their timestamps, and requests that were refused.
type servedCount struct{ requests, timestamps, refused uint64 }

// busyName is the count of one name.
type busyName struct {
	name      string
	weight    uint64 // requests of both kinds, half of those of the window before, a quarter of those before that, and so on
	at        int    // its place in the heap
	now, last servedCount
}

// Served counts requests that were answered with timestamps, as many as counts has; now is the time of any steady clock.
func (b *Busy) Served(name string, counts []uint64, now time.Duration) {
	c := servedCount{requests: uint64(len(counts))}
	for _, n := range counts {
		c.timestamps += n
	}
	b.count(name, c, now)
}

// Refused counts requests that a quota refused.
func (b *Busy) Refused(name string, requests int, now time.Duration) {
	b.count(name, servedCount{refused: uint64(requests)}, now)
}

func (b *Busy) count(name string, c servedCount, now time.Duration) {
	b.roll(now)
	n := b.names[name]
	if n == nil {
		n = b.place(name)
	}
	n.weight += c.requests + c.refused
	n.now.add(c)
	b.now.add(c)
	heap.Fix(&b.least, n.at)
}

func (s *servedCount) add(c servedCount) {
	s.requests += c.requests
	s.timestamps += c.timestamps
	s.refused += c.refused
}

// place returns a new place for a name.
func (b *Busy) place(name string) *busyName {
	if b.names == nil {
		b.names = map[string]*busyName{}
	}
	n := &busyName{name: name}
	if len(b.least) < BusyMax {
		heap.Push(&b.least, n)
	} else {
		old := b.least[0]
		delete(b.names, old.name)
		n.weight, b.least[0] = old.weight, n
	}
	b.names[name] = n
	return n
}

// roll begins a new window if the present one has lasted long enough.
func (b *Busy) roll(now time.Duration) {
	took := now - b.began
	if took < busyWindow {
		return
	}
	b.began, b.took = now, took
	b.last, b.now = b.now, servedCount{}
	kept := b.least[:0]
	for _, n := range b.least {
		n.last, n.now = n.now, servedCount{}
		n.weight /= 2 // which keeps the order
		if n.weight == 0 && n.last == (servedCount{}) {
			delete(b.names, n.name)
			continue
		}
		n.at = len(kept)
		kept = append(kept, n)
	}
	clear(b.least[len(kept):])
	b.least = kept
	heap.Init(&b.least)
}

// Report returns the load of the latest window that is over, which is a second or longer, and calls tell for each name that was asked for in it,
// the one with the most requests first, until it returns false.
func (b *Busy) Report(now time.Duration, tell func(name string, l Load) bool) Load {
	b.roll(now)
	for _, n := range b.busiest() {
		if !tell(n.name, b.load(n.last)) {
			break
		}
	}
	return b.load(b.last)
}

// busiest returns the names that were asked for in the latest window that is over.
func (b *Busy) busiest() []*busyName {
	asked := slices.DeleteFunc(slices.Clone(b.least), func(n *busyName) bool { return n.last == servedCount{} })
	slices.SortFunc(asked, func(x, y *busyName) int {
		return cmp.Or(cmp.Compare(y.last.requests+y.last.refused, x.last.requests+x.last.refused), strings.Compare(x.name, y.name))
	})
	return asked
}

// load returns counts of the latest window as rates.
func (b *Busy) load(c servedCount) Load {
	if b.took == 0 {
		return Load{}
	}
	seconds := b.took.Seconds()
	return Load{Requests: float64(c.requests) / seconds, Timestamps: float64(c.timestamps) / seconds, Refused: float64(c.refused) / seconds}
}

// busyHeap has the name with the least weight first.
type busyHeap []*busyName

func (h busyHeap) Len() int           { return len(h) }
func (h busyHeap) Less(i, j int) bool { return h[i].weight < h[j].weight }
func (h busyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *busyHeap) Push(x any) {
	n := x.(*busyName)
	n.at = len(*h)
	*h = append(*h, n)
}

// Pop implements heap.Interface.
func (h *busyHeap) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return n
}
