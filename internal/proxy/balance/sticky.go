package balance

import "math"

// StickyPercent is the default load bound of [Sticky]: no backend gets a request that would put
// it above 125 % of its share of all requests in progress. A smaller bound sends more requests to
// other backends under load, a larger one lets a popular key use more of one backend. By the
// measurements in the paper, 125 % keeps both effects small.
//
// It is too tight where answers are cached and few keys make up the load: a backend that is the
// first for two of ten keys needs twice its share. [NewSticky] accepts another bound.
const StickyPercent = 125

// StickyPercentMax bounds the percentage of [NewSticky], so that loads stay far from overflow.
const StickyPercentMax = 10_000

// NewSticky returns a picker for [Sticky] with a load bound in percent of a backend's share,
// 100 to StickyPercentMax; 0 means StickyPercent. It panics outside that range.
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
// Consistent hashing with bounded loads, SODA 2018): every key orders all backends, and its
// requests go to the first that is not full. With m requests in progress in total, a backend of
// weight w out of W is full when it has ⌈c·(m+1)·w/W⌉ of them, where c = percent/100. As c ≥ 1,
// the bounds sum up to more than m, so at least one backend is not full.
//
// The order is that of rendezvous hashing (Thaler, Ravishankar 1998), not that of a ring: there
// are no virtual nodes to tune and no table to build, and the keys of a backend that leaves or
// is full spread evenly over the others, where a ring would give them all to the neighbour. It
// costs one hash for each backend and choice.
type sticky struct {
	percent uint64
	other   leastBusy
}

// Pick returns the first backend in the key's order that is not full, or for a request without
// a key the least busy one. If all untried backends are full, which requires tried ones, it
// returns the first of them: a retry must not fail for that.
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

// bound returns ⌈percent/100 · under · weight / total⌉. With the limits of this package and less
// than 2^34 requests in progress it does not overflow.
func bound(under, weight, total, percent uint64) uint64 {
	return (under*weight*percent + total*100 - 1) / (total * 100)
}

// score is b's rank in a key's order: the largest comes first. With equal weights it is a hash.
// Otherwise it is -w/ln u for a uniform u in (0, 1), so that a backend is first for a share of
// the keys in proportion to its weight, and changing a weight moves only keys to or from that
// backend (Schindelhauer, Schomaker: Weighted distributed hash tables, 2005).
func (b *backend) score(key uint64, even bool) float64 {
	u := (float64(mix(key^b.hash)>>11) + 0.5) / (1 << 53)
	if even {
		return u
	}
	return -float64(b.weight) / math.Log(u)
}
