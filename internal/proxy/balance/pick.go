package balance

import "math/bits"

// below returns a number from 0 to n-1, uniform up to a bias of n/2^64 (Lemire: Fast random
// integer generation in an interval, 2019, without its rejection step).
func below(source Source, n uint64) uint64 {
	hi, _ := bits.Mul64(source.Uint64(), n)
	return hi
}

type random struct{ source Source }

// Pick draws a backend by weight.
func (p *random) Pick(s *Set, r Request) int { return draw(s, p.source, &r.Tried) }

// draw returns a usable backend that is not in without, each with a probability in proportion
// to its weight.
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

// roundRobin is the smooth weighted round robin of nginx: among as many choices as the sum of
// the weights, each backend is chosen as often as its weight, evenly spread. Each choice credits
// every backend its weight and debits the chosen one the sum.
type roundRobin struct {
	credit  [BackendsMax]int64
	version uint64 // of the set, for which credit is valid
}

// Pick returns the backend with the largest credit.
func (p *roundRobin) Pick(s *Set, r Request) int {
	if p.version != s.version {
		// Credit from before backends came or went would cause a burst.
		p.version, p.credit = s.version, [BackendsMax]int64{}
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

// leastBusy chooses the lowest load per weight, and among equals by roundRobin, so that idle
// backends get requests by their weight.
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

// twoChoices draws two and takes the less busy one. That is nearly as even as considering all
// (Mitzenmacher: The power of two choices in randomized load balancing, 2001), and unlike
// leastBusy it does not send all requests to a backend that has just come up or fails fast.
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
