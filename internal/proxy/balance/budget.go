package balance

import (
	"cmp"
	"time"
)

// BudgetConfig configures a [Budget].
type BudgetConfig struct {
	// Percent of the requests of the latest ten seconds may be retried. 0 means 20; less than
	// 0, none.
	Percent int
	// Reserve is the number of retries per second that are always allowed, for times with few
	// requests. 0 means 3; less than 0, none.
	Reserve int
}

// budgetSeconds is the window of a budget. A longer one lets a quiet minute pay for a burst of
// retries, a shorter one forbids the retries that a short failure needs.
const budgetSeconds = 10

// Budget bounds retries in proportion to all requests: when a backend fails under load, retries
// must not double the load. Times are of a monotonic clock.
type Budget struct {
	cfg      BudgetConfig
	requests [budgetSeconds]uint64 // by second
	retries  [budgetSeconds]uint64
	sum      struct{ requests, retries uint64 }
	second   int64 // the latest counted
}

// NewBudget returns a budget without any requests.
func NewBudget(cfg BudgetConfig) *Budget {
	cfg.Percent = max(cmp.Or(cfg.Percent, 20), 0)
	cfg.Reserve = max(cmp.Or(cfg.Reserve, 3), 0)
	return &Budget{cfg: cfg}
}

// Request counts a new request.
func (b *Budget) Request(now time.Duration) {
	b.requests[b.slot(now)]++
	b.sum.requests++
}

// Take reports whether a request may be retried, and counts the retry if so.
func (b *Budget) Take(now time.Duration) bool {
	at := b.slot(now)
	if b.sum.retries >= b.sum.requests*uint64(b.cfg.Percent)/100+uint64(b.cfg.Reserve)*budgetSeconds {
		return false
	}
	b.retries[at]++
	b.sum.retries++
	return true
}

// slot returns the index of the current second, and forgets seconds outside the window.
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

// forget reuses the slot of a second.
func (b *Budget) forget(second int64) {
	at := second % budgetSeconds
	b.sum.requests -= b.requests[at]
	b.sum.retries -= b.retries[at]
	b.requests[at], b.retries[at] = 0, 0
}
