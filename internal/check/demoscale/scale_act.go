package demoscale

import (
	"fmt"
	"math"
	"time"

	"github.com/isotone/isotone/internal/proxy/balance"
)

// ActsMax is the number of acts.
const ActsMax = 5

// acts has the title of each act, what it is about, and what follows from its runs.
var acts = [ActsMax]struct {
	title, about string
	conclude     func([]Measured) []string
}{
	{"An echo", "One worker that only echoes, one request at a time.", concludeEcho},
	{"CPU and stall", "One worker on one core computes, then sleeps as if it waited for a disk or another server. One client.", concludeStall},
	{"Workers per core", "The same with more workers on one core, each with a client of its own.", concludeCore},
	{"Three models", "How a request finds one of ten workers with small caches: a TCP proxy, a name service, a hash in the client. One worker dies.", concludeModels},
	{"Balance and locality", "Ten clients, ten workers, ten words: strategies of the proxy without a cache, then with a cache for two answers.", concludeStrategies},
}

// Settings of runs. The times are those with the defaults.
const (
	actRounds   = 50_000 // of SHA-256: some milliseconds of CPU time
	actClients  = 10
	coreSleep   = 30 * time.Millisecond
	modelSleep  = 200 * time.Millisecond
	modelLease  = time.Second
	modelRounds = 1000

	// knee is the share of the best rate from which on more workers do not pay.
	knee = 0.9
	// quiet is the share of a core that requests use at the best rate if they have it for themselves; the
	// rest is that of clients and servers.
	quiet = 0.6
)

// coreWorkers are the numbers of workers on one core.
var coreWorkers = []int{1, 2, 4, 8, 16, 32}

// planned is one run.
type planned struct {
	settings
	name     string
	strategy balance.Strategy
	model    string // instead of a strategy
	oneCore  bool   // with a request log
}

// length is how long the run takes.
func (p *planned) length() time.Duration {
	if p.model != "" {
		return p.warmup + phases*p.duration
	}
	return p.warmup + p.duration
}

// plan returns the runs of an act: those of the script, as long and with the sleeps that the options ask for.
func (o *ScaleOptions) plan(number int) []planned {
	list := script(number)
	part := float64(o.lasting()) / float64(ownDuration(o.Acts))
	for i := range list {
		p := &list[i]
		p.warmup, p.duration = time.Duration(part*float64(p.warmup)), time.Duration(part*float64(p.duration))
		p.sleep = time.Duration(float64(p.sleep) * o.Sleep.Seconds()) // the defaults are for a second
	}
	return list
}

// lasting is how long the acts that run take together.
func (o *ScaleOptions) lasting() time.Duration {
	if o.Duration == 0 {
		return ownDuration(o.Acts)
	}
	return o.Duration
}

// allDuration is how long all acts take by the script, with what is between their runs.
const allDuration = 3 * time.Minute

// ownDuration is how long acts take by the script: their part of [allDuration].
func ownDuration(numbers []int) time.Duration {
	return time.Duration(float64(allDuration) * float64(scripted(numbers)) / float64(scripted(ScaleDefault().Acts)))
}

// scripted is how long the runs of acts take by the script.
func scripted(numbers []int) (sum time.Duration) {
	for _, number := range numbers {
		for _, p := range script(number) {
			sum += p.length()
		}
	}
	return sum
}

// script returns the runs of an act with the defaults of the options.
func script(number int) (list []planned) {
	add := func(p planned, warmup, duration time.Duration) {
		p.warmup, p.duration = warmup, duration
		p.seed, p.bound, p.slow, p.words = 1, 400, 1, max(p.words, 10)
		list = append(list, p)
	}
	switch number {
	case 1:
		for _, clients := range []int{1, actClients} {
			add(planned{name: count(clients, "client"), settings: settings{workers: 1, clients: clients}}, 500*time.Millisecond, 2500*time.Millisecond)
		}
	case 2, 3:
		for _, workers := range coreWorkers[:1+(number-2)*(len(coreWorkers)-1)] {
			s := settings{workers: workers, clients: workers, rounds: actRounds, sleep: coreSleep}
			add(planned{name: count(workers, "worker"), settings: s, oneCore: true}, 500*time.Millisecond, 4*time.Second)
		}
	case 4:
		for _, name := range modelNamesAll() {
			s := settings{workers: 10, words: 40, cache: 10, clients: 24, rounds: modelRounds, sleep: modelSleep}
			add(planned{name: name, settings: s, model: name}, 2*time.Second, 3500*time.Millisecond)
		}
	case 5:
		for _, strategy := range []balance.Strategy{balance.Random, balance.RoundRobin, balance.LeastBusy} {
			s := settings{workers: 10, clients: actClients, rounds: actRounds, sleep: time.Second}
			add(planned{name: string(strategy), settings: s, strategy: strategy}, 2*time.Second, 10*time.Second)
		}
		for _, strategy := range []balance.Strategy{balance.Random, balance.RoundRobin, balance.LeastBusy, balance.Sticky} {
			s := settings{workers: 10, clients: actClients, cache: 2, rounds: actRounds, sleep: time.Second}
			add(planned{name: cached(strategy), settings: s, strategy: strategy}, 4*time.Second, 12*time.Second)
		}
	}
	return list
}

// modelSettings returns the settings of a run of a model. The periods are shorter in short runs, so
// that clients notice the death within its phase.
func (p *planned) modelSettings() modelSettings {
	lease := max(min(modelLease, p.duration/3), 10*time.Millisecond)
	return modelSettings{settings: p.settings, refresh: lease, lease: lease, probe: lease / 2}
}

// cached names a run of a strategy with a cache.
func cached(s balance.Strategy) string { return string(s) + "+cache" }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// named returns the run with a name, or nil if it has no answers or was not made.
func named(runs []Measured, name string) *Measured {
	for i := range runs {
		if runs[i].Name == name && runs[i].Answers > 0 {
			return &runs[i]
		}
	}
	return nil
}

func concludeEcho(runs []Measured) []string {
	last := runs[len(runs)-1]
	return []string{fmt.Sprintf("With %s the rate is %s a second, p50 %s: the most that one worker and its clients can exchange here.",
		count(last.Clients, "client"), figure(last.Rate), span(last.P50))}
}

func concludeStall(runs []Measured) []string {
	log := runs[0].Log
	if log == nil {
		return []string{"This system does not tell the CPU time of a request, so there is nothing to predict from."}
	}
	return []string{fmt.Sprintf("The request log: %s wall, %s CPU, so the core idles for %.0f %% of a request. isotone stats: use wall/CPU = %.1f workers per core.",
		span(log.Wall), span(log.CPU), 100*(1-log.CPU/log.Wall), log.WorkersPerCore)}
}

// optimum returns the fewest workers whose rate is near the best, as [knee] says, or 0 if there are no answers.
func optimum(runs []Measured) int {
	best := bestRate(runs)
	for _, r := range runs {
		if r.Rate >= knee*best && best > 0 {
			return r.Workers
		}
	}
	return 0
}

func bestRate(runs []Measured) (best float64) {
	for _, r := range runs {
		best = max(best, r.Rate)
	}
	return best
}

func concludeCore(runs []Measured) []string {
	says := []string{fmt.Sprintf("Measured: %s per core, the fewest with %.0f %% of the best rate.", count(optimum(runs), "worker"), 100*knee)}
	first, last := runs[0].Log, runs[len(runs)-1]
	if first != nil {
		says[0] += fmt.Sprintf(" Predicted by isotone stats from the log of one worker: %s / %s = %.1f.", span(first.Wall), span(first.CPU), first.WorkersPerCore)
		near := runs[0] // the run whose number of workers is the nearest to the prediction
		for _, r := range runs {
			if math.Abs(float64(r.Workers)-first.WorkersPerCore) < math.Abs(float64(near.Workers)-first.WorkersPerCore) {
				near = r
			}
		}
		if best := bestRate(runs); best > 0 {
			says = append(says, fmt.Sprintf("With %s the rate is %.0f %% of the best: sleeps differ, so at times all workers sleep.", count(near.Workers, "worker"), 100*near.Rate/best))
		}
	}
	if first != nil && last.Log != nil && last.Log.WorkersPerCore > first.WorkersPerCore {
		says = append(says, fmt.Sprintf("From the log of %s it would be %.1f: a wait for the core counts as stall, so measure at a low load.", count(last.Workers, "worker"), last.Log.WorkersPerCore))
	}
	if first != nil && last.Workers == coreWorkers[len(coreWorkers)-1] {
		if used := bestRate(runs) * first.CPU; used < quiet {
			says = append(says, fmt.Sprintf("At the best rate the requests used only %.0f %% of a core. Other programs use this machine, so both figures may be wrong.", 100*used))
		}
	}
	return says
}

func concludeModels(runs []Measured) (says []string) {
	for _, r := range runs {
		says = append(says, fmt.Sprintf("%s: %.0f %% hits, %s when a worker died.", r.Name, 100*r.HitRate, count(r.Model.Errors, "error")))
	}
	return says
}

func concludeStrategies(runs []Measured) (says []string) {
	random, least := named(runs, string(balance.Random)), named(runs, string(balance.LeastBusy))
	if random != nil && least != nil {
		says = append(says, fmt.Sprintf("Balance: least-busy is %.1f times as fast as random.", least.Rate/random.Rate))
	}
	balanced, sticky := named(runs, cached(balance.LeastBusy)), named(runs, cached(balance.Sticky))
	if balanced != nil && sticky != nil {
		says = append(says, fmt.Sprintf("Locality: sticky is %.1f times as fast as least-busy with the same caches, and hits %.0f %% instead of %.0f %%.",
			sticky.Rate/balanced.Rate, 100*sticky.HitRate, 100*balanced.HitRate))
	}
	if len(says) == 0 {
		says = append(says, "There is nothing to compare: too few strategies had answers in that time. A longer --duration gives them more.")
	}
	return says
}
