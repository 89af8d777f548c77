package replica

import "github.com/isotone/isotone"

// proposals are requests of callers whose commands a leader has proposed and not applied, in the order of the proposals. Within
// its term a leader's entries are applied in that order and none gets lost, so they form a queue. A request may be applied although
// its answer failed.
type proposals struct {
	*facts
	list []proposal
	// fail answers a request whose outcome is not known.
	fail func(token uint64, err *isotone.Error)
}

// proposal is a request that is proposed and not applied.
type proposal struct {
	token uint64
	// label is what its command has as well.
	label, arrived uint64
	answered       bool // or the leader's own: nobody waits for the outcome
}

// add adds what was just proposed.
func (p *proposals) add(q proposal) {
	q.arrived = p.ticks
	p.list = append(p.list, q)
}

// applied returns the request whose command, proposed in this term, is applied now, and whether its caller still waits.
func (p *proposals) applied(label uint64) (token uint64, waits bool) {
	if len(p.list) == 0 || p.list[0].label != label {
		panic("replica: commands were not applied in the order of their proposals")
	}
	q := p.list[0]
	p.list = p.list[1:]
	return q.token, !q.answered
}

// expire fails requests that have waited too long. They keep their place.
func (p *proposals) expire() {
	for i := range p.list {
		q := &p.list[i]
		if p.ticks-q.arrived < uint64(p.cfg.RequestTicks) {
			return
		}
		if !q.answered {
			q.answered = true
			p.fail(q.token, isotone.ErrDeadlineExceeded)
		}
	}
}

// drop fails the requests of a leadership that has ended.
func (p *proposals) drop() {
	for _, q := range p.list {
		if !q.answered {
			p.fail(q.token, p.redirect())
		}
	}
}
