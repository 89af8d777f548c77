package demoscale

import (
	"fmt"
	"strings"

	"github.com/isotone/isotone/internal/proxy/balance"
)

// The figures of the talk "Distribution, Balance, and Locality": requests a second without a cache, and
// the hit rate with one.
const (
	talkRandom     = 4.0
	talkRoundRobin = 7.0
	talkLeastBusy  = 8.0
	talkHitsFrom   = 0.2
	talkHitsTo     = 0.3
)

// Compared is a figure of the talk beside ours.
type Compared struct {
	What string  `json:"what"`
	From float64 `json:"talk_from"` // both 0: the talk has no figure
	To   float64 `json:"talk_to"`
	Here float64 `json:"here"`
	Why  string  `json:"why"`
}

// compare fills Talk from the runs of the last act.
func (r *ScaleResult) compare() {
	var runs []Measured
	for _, act := range r.Acts {
		if act.Number == ActsMax {
			runs = act.Runs
		}
	}
	least := named(runs, string(balance.LeastBusy))
	for _, c := range []struct {
		strategy balance.Strategy
		talk     float64
	}{{balance.Random, talkRandom}, {balance.RoundRobin, talkRoundRobin}, {balance.LeastBusy, talkLeastBusy}} {
		if m := named(runs, string(c.strategy)); m != nil {
			r.Talk = append(r.Talk, Compared{string(c.strategy) + ", req/s", c.talk, c.talk, m.Rate, whyRate(c.strategy, c.talk, m, least)})
		}
	}
	hits, answers := 0.0, 0
	for _, strategy := range []balance.Strategy{balance.Random, balance.RoundRobin, balance.LeastBusy} {
		if m := named(runs, cached(strategy)); m != nil {
			hits, answers = hits+m.HitRate*float64(m.Answers), answers+m.Answers
		}
	}
	if answers > 0 {
		r.Talk = append(r.Talk, Compared{"hits with a cache of 2", talkHitsFrom, talkHitsTo, hits / float64(answers),
			"A cache has 2 of 10 words, and clients draw all of them equally often: 20 % hit by chance."})
	}
	if m := named(runs, cached(balance.Sticky)); m != nil {
		r.Talk = append(r.Talk, Compared{What: "sticky with the cache, req/s", Here: m.Rate, Why: fmt.Sprintf("The talk says only that it is faster. Here %.1f %% hit, "+
			"so few requests sleep; how many depends on how many words the hash gives to one worker.", 100*m.HitRate)})
	}
}

// whyRate explains a rate. In a closed loop the mean time of a request is clients / rate, whatever the strategy
// (Little's law); and a strategy divided by least-busy does not depend on the cost of a request.
func whyRate(strategy balance.Strategy, talk float64, m, least *Measured) string {
	clients := float64(m.Clients)
	why := fmt.Sprintf("%.0f clients: a request takes %s here, %s in the talk.", clients, span(clients/m.Rate), span(clients/talk))
	switch {
	case strategy == balance.LeastBusy:
		return why + " With a worker for each client nobody waits, so this is the cost of a request itself: it sets all rates."
	case least == nil:
		return why
	}
	why += fmt.Sprintf(" %.0f %% of least-busy here, %.0f %% in the talk", 100*m.Rate/least.Rate, 100*talk/talkLeastBusy)
	if strategy == balance.Random {
		workers := float64(m.Workers)
		return why + fmt.Sprintf("; by chance n/(n+k-1) = %.0f %% of k workers are busy with n clients.", 100*clients/(clients+workers-1))
	}
	return why + "; the more the sleeps differ, the less. Ours are 50 to 150 % of their mean, the talk's program draws from 0 on."
}

// comparison is the last screen.
func (r *ScaleResult) comparison() string {
	var b strings.Builder
	b.WriteString("\nThe talk and this run\n\n")
	rows := [][]string{{"", "talk", "here"}}
	for _, c := range r.Talk {
		talk, here := "more", figure(c.Here)
		switch {
		case c.To > 0 && c.To <= 1:
			talk, here = fmt.Sprintf("%.0f-%.0f %%", 100*c.From, 100*c.To), fmt.Sprintf("%.1f %%", 100*c.Here)
		case c.To > 0:
			talk = fmt.Sprintf("%.0f", c.To)
		}
		rows = append(rows, []string{c.What, talk, here})
	}
	b.WriteString(alignedTable(rows) + "\n")
	for _, c := range r.Talk {
		name, _, _ := strings.Cut(c.What, ",")
		fmt.Fprintf(&b, "%s: %s\n", name, c.Why)
	}
	return b.String()
}
