package balance

import "math"

// StickyPercent is the load bound of [Sticky]: no backend gets a request that would put
// it above 125 % of its share of all that is under way. Smaller sends more requests away
// from their backend under load, larger lets a popular key have more of one backend; the
// paper's own measurements make 125 % the place where both are small.
//
// Where answers are cached and few keys make up the load, that is too tight: a backend that
// is the first for two of ten keys is due for twice its share. [NewSticky] takes another.
const StickyPercent = 125

// StickyPercentMax bounds what [NewSticky] takes, so that bounds stay far from overflow.
const StickyPercentMax = 10_000

// NewSticky returns a picker for [Sticky] with a load bound of its own, in percent of a
// backend's share; 0 means StickyPercent. It panics below 100 and above StickyPercentMax.
func NewSticky(percent int) Picker {
	if percent == 0 {
		percent = StickyPercent
	}
	if percent < 100 || percent > StickyPercentMax {
		panic("balance: the load bound is out of range")
	}
	return &sticky{percent: uint64(percent)}
}

// sticky is consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam:
// Consistent hashing with bounded loads, SODA 2018): every key has an order of all
// backends, and goes to the first in it that is not full. A backend is full when it has
// ⌈c·(m+1)·w/W⌉ requests, of m under way in total, with its weight w of W, and c =
// percent. As c ≥ 1, the bounds sum up to more than m, so one is never full.
//
// The order is that of rendezvous hashing (Thaler, Ravishankar 1998), not that of a ring:
// there are no virtual nodes to tune and no table to build, a backend that leaves gives
// its keys to all others evenly, and what a full one sends away spreads evenly as well,
// where a ring would send it all to the neighbour, and then to the neighbour's. It costs
// a hash for each backend and choice.
type sticky struct {
	percent uint64
	other   leastBusy
}

// Pick returns the first backend in the key's order that is not full. A request without
// a key goes to the least busy one. If all that are not tried are full, which only happens
// when some are tried, the first of them is taken: a retry must not fail for that.
func (p *sticky) Pick(s *Set, r Request) int {
	if !r.Keyed {
		return p.other.Pick(s, r)
	}
	under := uint64(1)
	even := true
	for _, i := range s.usable {
		under += uint64(s.all[i].load)
		even = even && s.all[i].weight == s.all[s.usable[0]].weight
	}
	best, fallback := None, None
	var bestScore, fallbackScore float64
	for _, i := range s.usable {
		if r.Tried.Has(i) {
			continue
		}
		b := &s.all[i]
		score := b.score(r.Key, even)
		if fallback == None || score > fallbackScore {
			fallback, fallbackScore = i, score
		}
		if (best == None || score > bestScore) && uint64(b.load) < bound(under, b.weight, s.weight, p.percent) {
			best, bestScore = i, score
		}
	}
	if best == None {
		return fallback
	}
	return best
}

// bound returns ⌈percent · under · weight / total⌉. With the limits of this
// package and less than 2^34 requests under way it does not overflow.
func bound(under, weight, total, percent uint64) uint64 {
	return (under*weight*percent + total*100 - 1) / (total * 100)
}

// score is the place of b in a key's order: the largest comes first. With equal weights
// that is a hash. Otherwise it is -w/ln u for an even u from 0 to 1, by which each is
// the first for as many keys as it weighs, and a change of one weight moves only keys
// to or from that backend (Schindelhauer, Schomaker: Weighted distributed hash tables,
// 2005).
func (b *backend) score(key uint64, even bool) float64 {
	u := (float64(mix(key^b.hash)>>11) + 0.5) / (1 << 53)
	if even {
		return u
	}
	return -float64(b.weight) / math.Log(u)
}
