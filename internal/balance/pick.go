package balance

import "math/bits"

// below returns a number from 0 to n-1, evenly but for 1 in 2^64/n (Lemire: Fast random
// integer generation in an interval, 2019, without its rejection).
func below(source Source, n uint64) uint64 {
	hi, _ := bits.Mul64(source.Uint64(), n)
	return hi
}

type random struct{ source Source }

// Pick draws a backend by weight.
func (p *random) Pick(s *Set, r Request) int { return draw(s, p.source, &r.Tried) }

// draw returns a usable backend that is not in without, each with the probability of its
// weight.
func draw(s *Set, source Source, without *Mask) int {
	total := s.weight
	if *without != (Mask{}) {
		total = 0
		for _, i := range s.usable {
			if !without.Has(i) {
				total += s.all[i].weight
			}
		}
	}
	if total == 0 {
		return None
	}
	at := below(source, total)
	for _, i := range s.usable {
		if without.Has(i) {
			continue
		}
		if at < s.all[i].weight {
			return i
		}
		at -= s.all[i].weight
	}
	panic("balance: the weights do not add up")
}

// roundRobin is the smooth weighted round robin of nginx: in as many choices as the
// weights sum up to, each backend is chosen as often as it weighs, evenly spread. Each
// choice credits every backend its weight and debits the chosen one the sum.
type roundRobin struct {
	credit [BackendsMax]int64
	shift  uint64 // of the set that credit belongs to
}

// Pick returns the backend with the largest credit.
func (p *roundRobin) Pick(s *Set, r Request) int {
	if p.shift != s.shift {
		// Credit that was left when others came or went would be paid out in a burst.
		p.shift, p.credit = s.shift, [BackendsMax]int64{}
	}
	best, total := None, int64(0)
	for _, i := range s.usable {
		if r.Tried.Has(i) {
			continue
		}
		p.credit[i] += int64(s.all[i].weight)
		total += int64(s.all[i].weight)
		if best == None || p.credit[i] > p.credit[best] {
			best = i
		}
	}
	if best != None {
		p.credit[best] -= total
	}
	return best
}

// leastBusy chooses by load for weight, and among equals as roundRobin does, so that the
// requests of a quiet hour, when all are idle, go to each of them by its weight.
type leastBusy struct{ equals roundRobin }

// Pick returns a backend with the least load.
func (p *leastBusy) Pick(s *Set, r Request) int {
	best := None
	for _, i := range s.usable {
		if !r.Tried.Has(i) && (best == None || s.lighter(i, best)) {
			best = i
		}
	}
	if best == None {
		return None
	}
	for _, i := range s.usable {
		if s.lighter(best, i) {
			r.Tried.Add(i)
		}
	}
	return p.equals.Pick(s, r)
}

// twoChoices draws two and takes the less busy one. That is nearly as even as looking at
// all (Mitzenmacher: The power of two choices in randomized load balancing, 2001), and
// unlike the least busy one of all it does not send everybody to a backend that has just
// come up, or that fails quickly.
type twoChoices struct{ source Source }

// Pick returns the less busy of two.
func (p *twoChoices) Pick(s *Set, r Request) int {
	first := draw(s, p.source, &r.Tried)
	if first == None {
		return None
	}
	without := r.Tried
	without.Add(first)
	second := draw(s, p.source, &without)
	if second != None && s.lighter(second, first) {
		return second
	}
	return first
}
