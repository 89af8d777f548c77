package sim

import (
	"container/heap"
	"time"
)

// event is something that happens at a moment of simulated time. Events at the same
// moment happen in the order in which they were scheduled.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// agenda is a heap of events, earliest first.
type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = event{}
	*a = (*a)[:last]
	return e
}

// after schedules do to happen when d has passed.
func (w *world) after(d time.Duration, do func()) {
	w.scheduled++
	heap.Push(&w.agenda, event{at: w.now + max(d, 0), seq: w.scheduled, do: do})
}

// advance carries out events until the given moment, or until something is wrong.
func (w *world) advance(until time.Duration) {
	for w.violation == nil && len(w.agenda) > 0 && w.agenda[0].at <= until {
		e := heap.Pop(&w.agenda).(event)
		w.now = e.at
		e.do()
	}
	if w.violation == nil {
		w.now = until
	}
}
