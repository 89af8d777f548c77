package interval

import "time"

// RateWindow is how long readings must agree with each other, after they did not, until the clocks are
// believed again.
const RateWindow = 10 * time.Second

// Rate keeps whether the rates of the cluster clock and of the own steady clock are believed.
//
// It judges by contradictions of an [Estimate]. A difference that exceeds what bounds allow for
// by x millionths gets all readings of a term outside the bounds of earlier ones within about the round
// trip divided by x: 0.1 s at a round trip of 100 µs and 1000 millionths more. So a difference over
// [RateWindow] or any other time that the round trips do not explain is a contradiction, and there is
// no use in measuring the rate besides. But a contradiction makes the estimate begin anew, and it would be
// good again for a while although the rate is still wrong. Therefore Rate asks for a whole window without one.
//
// Nothing tells which of the clocks is wrong: the own one, the leader's, or that of the node that
// told the reading. The zero Rate has seen no reading, and believes the clocks. It is not safe for
// concurrent use.
type Rate struct {
	term  uint64
	since Instant // when the first reading of the window was received
	wrong bool
}

// Take records that a reading of a term was received, and what [Estimate.Take] returned for it. It
// reports whether the clocks are believed: after a contradiction, of whatever term, not until all
// readings of a window within a term have agreed. Readings of earlier terms are ignored.
func (r *Rate) Take(received Instant, term uint64, agrees bool) (ok bool) {
	switch {
	case term < r.term:
	case !agrees:
		r.term, r.since, r.wrong = term, received, true
	case term > r.term:
		r.term, r.since = term, received
	case received.Lo-r.since.Hi >= int64(RateWindow):
		r.wrong = false
	}
	return !r.wrong
}

// OK reports whether the clocks are believed.
func (r *Rate) OK() bool { return !r.wrong }
