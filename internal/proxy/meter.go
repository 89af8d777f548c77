package proxy

import "github.com/isotone/isotone/internal/front/stats"

// meter measures the cost of each request on the fast path. One turn of the loop serves many
// requests, and its cost is divided equally among them: an estimate for a single request, exact
// for the sum, but for turns without requests. Only the loop's goroutine uses it.
type meter struct {
	stats.Meter
	started bool
	turn    uint64
	shares  int           // in the cost of this turn
	touched []*clientConn // those with a share, some for a request that has ended
	ended   []*ended      // in this turn
}

// ended is an answered request that lacks the cost of its last turn.
type ended struct {
	record   record
	reported bool // to be logged
}

func newMeter() *meter { return &meter{turn: 1} }

// touch gives cc's request a share in this turn.
func (m *meter) touch(cc *clientConn) {
	if m != nil && cc.turn != m.turn {
		cc.turn = m.turn
		m.shares++
		m.touched = append(m.touched, cc)
	}
}

// end takes the record of cc's request, which has ended in this turn.
func (m *meter) end(cc *clientConn, e *ended) {
	m.touch(cc)
	e.record.section = e.record.section.Plus(cc.cost)
	cc.cost, cc.turn = stats.Section{}, 0 // the next one may begin in the same turn
	m.ended = append(m.ended, e)
}

// settle ends a turn and divides its cost, lap.
func (m *meter) settle(lap stats.Section, deliver func(*record, bool)) {
	if m.shares == 0 {
		return
	}
	share := lap.Share(m.shares)
	for _, cc := range m.touched {
		if cc.turn == m.turn {
			cc.cost, cc.turn = cc.cost.Plus(share), 0
		}
	}
	for _, e := range m.ended {
		e.record.section = e.record.section.Plus(share)
		deliver(&e.record, e.reported)
	}
	clear(m.touched)
	clear(m.ended)
	m.turn, m.shares, m.touched, m.ended = m.turn+1, 0, m.touched[:0], m.ended[:0]
}
