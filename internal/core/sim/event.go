package sim

import "time"

// agenda holds the scheduled events: a binary heap of their moments, earliest first, and their
// functions. Events at the same moment happen in the order of scheduling. The heap holds no
// pointers, so moving its items costs the garbage collector nothing: a run schedules millions.
type agenda struct {
	heap []moment
	todo []func() // by moment.slot
	free []int32
	last uint64
}

// moment is the time of an event.
type moment struct {
	at   time.Duration
	seq  uint64
	slot int32
}

func (m moment) before(o moment) bool {
	return m.at < o.at || m.at == o.at && m.seq < o.seq
}

func (a *agenda) push(at time.Duration, do func()) {
	var slot int32
	if n := len(a.free); n > 0 {
		slot = a.free[n-1]
		a.free = a.free[:n-1]
		a.todo[slot] = do
	} else {
		slot = int32(len(a.todo))
		a.todo = append(a.todo, do)
	}
	a.last++
	a.heap = append(a.heap, moment{at, a.last, slot})
	h, i := a.heap, len(a.heap)-1
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// pop removes the earliest event. The agenda must not be empty.
func (a *agenda) pop() (at time.Duration, do func()) {
	first := a.heap[0]
	end := len(a.heap) - 1
	a.heap[0] = a.heap[end]
	a.heap = a.heap[:end]
	h := a.heap
	for i := 0; ; {
		child := 2*i + 1
		if child >= end {
			break
		}
		if child+1 < end && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	do = a.todo[first.slot]
	a.todo[first.slot] = nil
	a.free = append(a.free, first.slot)
	return first.at, do
}

// after schedules do after the duration d.
func (w *world) after(d time.Duration, do func()) {
	w.agenda.push(w.now+max(d, 0), do)
}

// advance runs events until the given time or the first violation.
func (w *world) advance(until time.Duration) {
	for w.violation == nil && len(w.agenda.heap) > 0 && w.agenda.heap[0].at <= until {
		at, do := w.agenda.pop()
		w.now = at
		do()
	}
	if w.violation == nil {
		w.now = until
	}
}
