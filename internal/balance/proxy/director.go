package proxy

import (
	"log/slog"
	"sync"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/balance"
)

// director says where requests go, for both paths. It is safe for concurrent use: one
// lock for decisions of some ten nanoseconds.
type director struct {
	targets    []target
	log        *slog.Logger
	began      time.Time
	retriesMax int

	mu      sync.Mutex
	set     *balance.Set
	picker  balance.Picker
	ejector *balance.Ejector
	budget  *balance.Budget
	counts  []Count
	refused uint64 // retries, by the budget
}

// Count is what a backend has done so far.
type Count struct {
	// Requests were sent there, each try counted.
	Requests uint64 `json:"requests"`
	// Failures are those without a valid answer, and with a 502, 503 or 504.
	Failures uint64 `json:"failures"`
	// Retries are those that were sent there after they had failed somewhere.
	Retries uint64 `json:"retries"`
	// Ejections counts how often it was ejected.
	Ejections uint64 `json:"ejections"`
}

func newDirector(cfg *Config) (*director, error) {
	targets, set, err := parseTargets(cfg.Backends)
	if err != nil {
		return nil, err
	}
	strategy := cfg.Strategy
	if strategy == "" {
		strategy = balance.LeastBusy
	}
	if strategy, err = balance.ParseStrategy(string(strategy)); err != nil {
		return nil, err
	}
	if p := cfg.StickyPercent; p != 0 && (p < 100 || p > balance.StickyPercentMax) {
		return nil, isotone.Errorf(isotone.CodeInvalidArgument, "sticky load bound %d %%: want 100 to %d", p, balance.StickyPercentMax)
	}
	d := &director{targets: targets, log: cfg.Log, began: time.Now(), retriesMax: cfg.RetriesMax, set: set, counts: make([]Count, len(targets))}
	if d.retriesMax == 0 {
		d.retriesMax = 2
	}
	seed := balance.Seeded(d.began.UnixNano())
	d.picker = balance.New(strategy, &seed)
	if strategy == balance.Sticky {
		d.picker = balance.NewSticky(cfg.StickyPercent)
	}
	d.ejector = balance.NewEjector(set, cfg.Ejection)
	d.budget = balance.NewBudget(cfg.Retry)
	return d, nil
}

// now is the time for all accounts.
func (d *director) now() time.Duration { return time.Since(d.began) }

// begin chooses a backend for a new request, and counts it there. It returns
// balance.None if all are down.
func (d *director) begin(now time.Duration, r *balance.Request) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.budget.Request(now)
	d.ejector.Expire(now)
	at := d.picker.Pick(d.set, *r)
	if at != balance.None {
		d.set.Begin(at)
		d.counts[at].Requests++
	}
	return at
}

// again chooses another backend for a request that has failed tries times, if the budget
// allows.
func (d *director) again(now time.Duration, r *balance.Request, tries int) int {
	if tries > d.retriesMax {
		return balance.None
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ejector.Expire(now)
	at := d.picker.Pick(d.set, *r)
	switch {
	case at == balance.None:
		return at
	case !d.budget.Take(now):
		d.refused++
		return balance.None
	}
	d.set.Begin(at)
	d.counts[at].Requests++
	d.counts[at].Retries++
	return at
}

// outcome is how a try has ended.
type outcome uint8

const (
	succeeded outcome = iota
	failed            // by the backend
	abandoned         // says nothing about the backend
)

// end notes how a try at backend i has ended.
func (d *director) end(now time.Duration, i int, how outcome) {
	d.mu.Lock()
	d.set.End(i)
	ejected := false
	if how != abandoned {
		ejected = d.ejector.Report(now, i, how == succeeded)
	}
	if how == failed {
		d.counts[i].Failures++
	}
	if ejected {
		d.counts[i].Ejections++
	}
	d.mu.Unlock()
	if ejected {
		d.log.Warn("a backend fails, and gets no requests for a while", "backend", d.targets[i].name)
	}
}

// setDown notes what a health check has found.
func (d *director) setDown(i int, down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set.SetDown(i, down)
}

// outcomeOf says what an answer's status means for its backend: that something behind it
// is broken, or that it cannot take more.
func outcomeOf(status int) outcome {
	if status >= 502 && status <= 504 {
		return failed
	}
	return succeeded
}

// BackendStatus is one backend as the proxy sees it.
type BackendStatus struct {
	URL     string `json:"url"`
	Down    bool   `json:"down"` // by its health check
	Ejected bool   `json:"ejected"`
	Load    int    `json:"load"` // requests under way
	Count
}

// status returns all backends, and how many retries the budget has refused.
func (d *director) status() (list []BackendStatus, refused uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ejector.Expire(d.now())
	for i, t := range d.targets {
		list = append(list, BackendStatus{
			URL: t.name, Down: d.set.Down(i), Ejected: d.set.Ejected(i), Load: d.set.Load(i), Count: d.counts[i],
		})
	}
	return list, d.refused
}
