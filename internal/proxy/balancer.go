package proxy

import (
	"log/slog"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// balancer chooses the backends of requests, for both paths, and of connections for a
// [TCPServer], to which a connection is what a request is here. It is safe for concurrent use:
// one lock guards decisions that take tens of nanoseconds.
type balancer struct {
	targets    []target
	log        *slog.Logger
	began      time.Time
	retriesMax int
	loadMax    int // of one backend; 0: no bound

	mu      sync.Mutex
	set     *balance.Set
	picker  balance.Picker
	ejector *balance.Ejector
	budget  *balance.Budget
	counts  []Count
	refused uint64 // retries, by the budget
}

// Count has the counters of one backend.
type Count struct {
	// Requests counts the requests sent there, each try separately.
	Requests uint64 `json:"requests"`
	// Failures counts the tries without a valid answer or with a 502, 503 or 504.
	Failures uint64 `json:"failures"`
	// Retries counts the tries of requests that had failed before.
	Retries uint64 `json:"retries"`
	// Ejections counts how often it was ejected.
	Ejections uint64 `json:"ejections"`
}

// balancing is what the configurations of both servers have for a balancer.
type balancing struct {
	backends      []Backend
	parse         func(Backend) (target, error)
	strategy      balance.Strategy
	stickyPercent int
	ejection      balance.EjectorConfig
	retry         balance.BudgetConfig
	retriesMax    int // less than 0: none; 0: 2
	loadMax       int // of one backend; 0: no bound
	log           *slog.Logger
}

func newBalancer(cfg balancing) (*balancer, error) {
	targets, set, err := parseTargets(cfg.backends, cfg.parse)
	if err != nil {
		return nil, err
	}
	strategy := cfg.strategy
	if strategy == "" {
		strategy = balance.LeastBusy
	}
	if strategy, err = balance.ParseStrategy(string(strategy)); err != nil {
		return nil, err
	}
	if p := cfg.stickyPercent; p != 0 && (p < 100 || p > balance.StickyPercentMax) {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "sticky load bound %d %%: want 100 to %d", p, balance.StickyPercentMax)
	}
	b := &balancer{
		targets: targets, log: cfg.log, began: time.Now(), retriesMax: cfg.retriesMax, loadMax: cfg.loadMax,
		set: set, counts: make([]Count, len(targets)),
	}
	if b.retriesMax == 0 {
		b.retriesMax = 2
	}
	seed := balance.Seeded(b.began.UnixNano())
	b.picker = balance.New(strategy, &seed)
	if strategy == balance.Sticky {
		b.picker = balance.NewSticky(cfg.stickyPercent)
	}
	b.ejector = balance.NewEjector(set, cfg.ejection)
	b.budget = balance.NewBudget(cfg.retry)
	return b, nil
}

// now returns the time that all decisions use.
func (b *balancer) now() time.Duration { return time.Since(b.began) }

// begin chooses a backend for a new request and counts the request there. It returns
// balance.None if all are down or full.
func (b *balancer) begin(now time.Duration, r *balance.Request) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budget.Request(now)
	at := b.pick(now, *r)
	if at != balance.None {
		b.set.Begin(at)
		b.counts[at].Requests++
	}
	return at
}

// retry chooses a backend for a request that has failed tries times, or returns balance.None if
// none is left or the budget refuses.
func (b *balancer) retry(now time.Duration, r *balance.Request, tries int) int {
	if tries > b.retriesMax {
		return balance.None
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.pick(now, *r)
	switch {
	case at == balance.None:
		return at
	case !b.budget.Take(now):
		b.refused++
		return balance.None
	}
	b.set.Begin(at)
	b.counts[at].Requests++
	b.counts[at].Retries++
	return at
}

// pick chooses a backend that is not full. The caller holds the lock.
func (b *balancer) pick(now time.Duration, r balance.Request) int {
	b.ejector.Expire(now)
	if b.loadMax > 0 {
		for i := range b.set.Len() {
			if b.set.Load(i) >= b.loadMax {
				r.Tried.Add(i)
			}
		}
	}
	return b.picker.Pick(b.set, r)
}

// connected reports that backend i has accepted a connection, which is in progress until end.
func (b *balancer) connected(now time.Duration, i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ejector.Report(now, i, true)
}

// outcome is the result of a try.
type outcome uint8

const (
	succeeded outcome = iota
	failed            // by the backend
	abandoned         // says nothing about the backend
)

// end reports the outcome of a try at backend i.
func (b *balancer) end(now time.Duration, i int, how outcome) {
	b.mu.Lock()
	b.set.End(i)
	ejected := false
	if how != abandoned {
		ejected = b.ejector.Report(now, i, how == succeeded)
	}
	if how == failed {
		b.counts[i].Failures++
	}
	if ejected {
		b.counts[i].Ejections++
	}
	b.mu.Unlock()
	if ejected {
		b.log.Warn("a backend is ejected: it keeps failing", "backend", b.targets[i].name)
	}
}

// setDown takes the result of health checks of backend i.
func (b *balancer) setDown(i int, down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set.SetDown(i, down)
}

// outcomeOf returns what an answer's status says about its backend. 502 to 504 mean that something
// behind it is broken or that it is overloaded.
func outcomeOf(status int) outcome {
	if status >= 502 && status <= 504 {
		return failed
	}
	return succeeded
}

// BackendStatus describes one backend.
type BackendStatus struct {
	URL     string `json:"url"`
	Down    bool   `json:"down"` // according to its health check
	Ejected bool   `json:"ejected"`
	Load    int    `json:"load"` // requests in progress
	Count
}

// status describes all backends, and returns how many retries the budget has refused.
func (b *balancer) status() (list []BackendStatus, refused uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ejector.Expire(b.now())
	for i, t := range b.targets {
		list = append(list, BackendStatus{
			URL: t.name, Down: b.set.Down(i), Ejected: b.set.Ejected(i), Load: b.set.Load(i), Count: b.counts[i],
		})
	}
	return list, b.refused
}
