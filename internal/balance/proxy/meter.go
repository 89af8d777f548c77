package proxy

import "github.com/isotone/isotone/internal/front/stats"

// meter says what the lane's thread works for each request. The loop works for many in
// one turn, so what a turn has cost is divided among the requests that it has dealt with:
// of a single one that is an estimate, the sum of all is exact, but for turns without any.
// It belongs to the loop's goroutine.
type meter struct {
	stats.Meter
	started bool
	turn    uint64
	shares  int       // in the cost of this turn
	touched []*client // those that had a share, some of them for a request that has ended
	ended   []*ended  // in this turn
}

// ended is a request that has been answered, but for the cost of its last turn.
type ended struct {
	record   record
	reported bool // it is to be logged
}

func newMeter() *meter { return &meter{turn: 1} }

// touch notes that this turn works for h's request.
func (m *meter) touch(h *client) {
	if m != nil && h.turn != m.turn {
		h.turn = m.turn
		m.shares++
		m.touched = append(m.touched, h)
	}
}

// end takes the record of h's request, which has ended in this turn.
func (m *meter) end(h *client, e *ended) {
	m.touch(h)
	e.record.section = e.record.section.Plus(h.cost)
	h.cost, h.turn = stats.Section{}, 0 // the next one may begin in the same turn
	m.ended = append(m.ended, e)
}

// settle ends a turn, which has cost lap, and divides that.
func (m *meter) settle(lap stats.Section, tell func(*record, bool)) {
	if m.shares == 0 {
		return
	}
	share := lap.Share(m.shares)
	for _, h := range m.touched {
		if h.turn == m.turn {
			h.cost, h.turn = h.cost.Plus(share), 0
		}
	}
	for _, e := range m.ended {
		e.record.section = e.record.section.Plus(share)
		tell(&e.record, e.reported)
	}
	clear(m.touched)
	clear(m.ended)
	m.turn, m.shares, m.touched, m.ended = m.turn+1, 0, m.touched[:0], m.ended[:0]
}
