package demoscale

import (
	"fmt"
	"slices"
	"time"
)

// phaseResult is the result of one phase of a trial.
type phaseResult struct {
	Rate    float64 `json:"requestsPerSecond"`
	P50     float64 `json:"p50Seconds"`
	P99     float64 `json:"p99Seconds"`
	HitRate float64 `json:"hitRate"`
	Answers int     `json:"answers"`
	Errors  int     `json:"errors"`
	// Served has the answers by word and worker.
	Served [][]int `json:"served"`
}

// modelResult is the result of one model.
type modelResult struct {
	Name string `json:"name"`
	// Healthy is before the first worker dies, Dead until it is back, Back after that.
	Healthy phaseResult `json:"healthy"`
	Dead    phaseResult `json:"dead"`
	Back    phaseResult `json:"back"`
	// LastError is the time from the death to the last error of a client; null: there was none.
	LastError *float64 `json:"lastErrorSeconds"`
	// UsedAgain is the time from the return of the worker to its first answer; null: none.
	UsedAgain *float64 `json:"usedAgainSeconds"`
	// Moved is the share of words that have another home while the worker is dead; null: words have no
	// home in this model. See homes.
	Moved *float64 `json:"movedWords"`
	// Lookups counts the requests to the name service.
	Lookups int `json:"lookups"`
}

// sumUp makes the result of a trial.
func sumUp(name string, s modelSettings, line *timeline, clients []*modelClient) modelResult {
	r := modelResult{Name: name}
	killed, returned := time.Duration(line.killed.Load()), time.Duration(line.returned.Load())
	var lastError, usedAgain time.Duration
	spans := [phases]time.Duration{killed - s.warmup, returned - killed, s.length() - returned}
	for phase, into := range []*phaseResult{&r.Healthy, &r.Dead, &r.Back} {
		sum, failures := newTally(s.words, s.workers), 0
		for _, c := range clients {
			sum.add(c.tallies[phase])
			failures += c.errors[phase]
		}
		got := sum.result(trial{Workers: s.workers}, spans[phase])
		*into = phaseResult{got.Rate, got.P50, got.P99, got.HitRate, got.Answers, failures, got.Served}
	}
	for _, c := range clients {
		lastError = max(lastError, c.lastError)
		if c.usedAgain > 0 && (usedAgain == 0 || c.usedAgain < usedAgain) {
			usedAgain = c.usedAgain
		}
	}
	if lastError > 0 {
		r.LastError = of((lastError - killed).Seconds())
	}
	if usedAgain > 0 {
		r.UsedAgain = of((usedAgain - returned).Seconds())
	}
	r.Moved = moved(homes(r.Healthy.Served), homes(r.Dead.Served))
	return r
}

func of(x float64) *float64 { return &x }

// homes returns for each word the worker that gave at least nine of ten answers, or -1.
func homes(served [][]int) (list []int) {
	for _, row := range served {
		home, total := -1, 0
		for _, n := range row {
			total += n
		}
		if worker := slices.Index(row, slices.Max(row)); total > 0 && row[worker]*10 >= total*9 {
			home = worker
		}
		list = append(list, home)
	}
	return list
}

// moved returns the share of words with another home, or nil if less than nine of ten have one.
func moved(before, after []int) *float64 {
	with, changed := 0, 0
	for word, home := range before {
		if home >= 0 {
			with++
			if after[word] != home {
				changed++
			}
		}
	}
	if with*10 < len(before)*9 {
		return nil
	}
	return of(float64(changed) / float64(with))
}

// modelTable returns the results as an aligned Markdown table.
func modelTable(results []modelResult) string {
	rows := [][]string{{"", "req/s", "p50", "p99", "hits", "one dead: req/s", "errors", "last error", "used again", "moved words"}}
	for _, r := range results {
		rows = append(rows, []string{
			r.Name, figure(r.Healthy.Rate), span(r.Healthy.P50), span(r.Healthy.P99), fmt.Sprintf("%.1f %%", 100*r.Healthy.HitRate),
			figure(r.Dead.Rate), fmt.Sprint(r.Dead.Errors), orDash(r.LastError, span), orDash(r.UsedAgain, span),
			orDash(r.Moved, func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }),
		})
	}
	return alignedTable(rows)
}

// orDash formats a figure, or the lack of it.
func orDash(x *float64, format func(float64) string) string {
	if x == nil {
		return "–"
	}
	return format(*x)
}
