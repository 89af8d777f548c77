package balance

import "time"

// BudgetConfig says how many requests may be tried again.
type BudgetConfig struct {
	// Percent of the requests of the latest ten seconds. 0 means 20; less than 0, none.
	Percent int
	// Reserve is how many a second are always allowed, for times with few requests.
	// 0 means 3; less than 0, none.
	Reserve int
}

// budgetSeconds is the window of a budget. Longer would let a quiet minute pay for a storm
// of retries, shorter would forbid what a short failure needs.
const budgetSeconds = 10

// Budget bounds how many requests are tried again, in proportion to all requests: when a
// backend fails under load, retries must not double the load. Time is whatever runs
// evenly.
type Budget struct {
	cfg      BudgetConfig
	requests [budgetSeconds]uint64 // by second
	retries  [budgetSeconds]uint64
	sum      struct{ requests, retries uint64 }
	second   int64 // the latest that is counted
}

// NewBudget returns a budget with nothing counted.
func NewBudget(cfg BudgetConfig) *Budget {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
		*v = max(*v, 0)
	}
	set(&cfg.Percent, 20)
	set(&cfg.Reserve, 3)
	return &Budget{cfg: cfg}
}

// Request counts a request that is tried for the first time.
func (b *Budget) Request(now time.Duration) {
	b.requests[b.slot(now)]++
	b.sum.requests++
}

// Take reports whether a request may be tried again, and counts it if so.
func (b *Budget) Take(now time.Duration) bool {
	at := b.slot(now)
	if b.sum.retries >= b.sum.requests*uint64(b.cfg.Percent)/100+uint64(b.cfg.Reserve)*budgetSeconds {
		return false
	}
	b.retries[at]++
	b.sum.retries++
	return true
}

// slot returns the place of the current second, and forgets those that are too old.
func (b *Budget) slot(now time.Duration) int {
	second := int64(now / time.Second)
	for range min(second-b.second, budgetSeconds) {
		b.second++
		b.forget(b.second)
	}
	if b.second < second { // more than a window has passed
		b.second = second
	}
	return int(b.second % budgetSeconds)
}

func (b *Budget) forget(second int64) {
	at := second % budgetSeconds
	b.sum.requests -= b.requests[at]
	b.sum.retries -= b.retries[at]
	b.requests[at], b.retries[at] = 0, 0
}
