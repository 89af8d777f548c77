//go:build linux

package chaos

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/core/lincheck"
	"github.com/isotone/isotone/internal/host/faults"
)

const (
	// strikeEvery is the average time between two faults, calmEvery between two calms.
	strikeEvery = 700 * time.Millisecond
	calmEvery   = 15 * time.Second
	// calmAnswerMax is how long an answer may take after the end of all faults. The longest
	// wait of the product is the peers' stall timeout, 5 s; the rest is for a busy machine.
	calmAnswerMax = 20 * time.Second
	// overlapMax bounds the faults at a time that can keep the cluster from answering; with
	// more, hardly any request would be answered.
	overlapMax = 3
	// unexpectedMax is the number of unexpected exits after which the storm gives up.
	unexpectedMax = 20
	// stormPoll is the interval at which faults begin and end.
	stormPoll = 2 * time.Millisecond
)

// stormQueries are the read modes, half of the load each.
var stormQueries = []string{"&mode=quorum", "&mode=lease"}

// StormOptions describe a storm.
type StormOptions struct {
	// Seed decides which faults begin when. What the processes do meanwhile is up to the
	// machine, so a seed does not replay a run exactly.
	Seed uint64
	// For is how long faults are injected.
	For time.Duration
	// Only names the kinds of faults; empty means all that the cluster allows.
	Only []string
	// Intervals is LoadOptions.Intervals.
	Intervals int
	// Tally gets the counts.
	Tally *Tally
}

// Storm injects random faults into a cluster under load, several at a time. Every few seconds
// it ends them all and checks that the cluster recovers. One goroutine begins and ends all
// faults.
type Storm struct {
	t          testing.TB
	c          *Cluster
	o          StormOptions
	rand       *rand.Rand
	kinds      []kind
	load       *Load
	timelines  []*stormTimeline
	began      time.Time
	active     []*fault
	unexpected map[*Process]bool
	// ahead is by how many milliseconds all clocks are ahead between faults, furthest the most
	// that any ever was. The time of timestamps stands still until the clocks get there, so
	// now and then ahead is set to furthest.
	ahead, furthest int64
}

// fault is one fault that lasts for a while.
type fault struct {
	kind, note string
	until      time.Time
	lasts      time.Duration
	// about names what it affects: processes, clocks, connections. No two active faults
	// affect the same.
	about []string
	// harmless faults leave the cluster able to answer.
	harmless bool
	// over reports whether to end the fault early; nil means no.
	over       func() bool
	begin, end func()
}

// Unleash runs a storm on a running cluster, and fails the test unless all promises hold.
func Unleash(t testing.TB, c *Cluster, o StormOptions) {
	t.Helper()
	s := &Storm{t: t, c: c, o: o, rand: rand.New(rand.NewPCG(o.Seed, 0)), began: time.Now(), unexpected: map[*Process]bool{}}
	if s.kinds = s.possible(); len(s.kinds) == 0 {
		t.Skip("none of the requested faults is possible here")
	}
	s.load = StartLoad(t, LoadOptions{
		Addrs: c.Addrs(), Intervals: o.Intervals, Pause: 2 * time.Millisecond, ShortTimeout: 25 * time.Millisecond, Queries: stormQueries, NodesMayFail: true,
	})
	s.startTimelines()
	s.calm()
	s.run()
	s.calm()
	s.finish()
}

func (s *Storm) run() {
	end := s.began.Add(s.o.For)
	strike, calm := time.Now(), time.Now().Add(calmEvery)
	for now := time.Now(); now.Before(end); now = time.Now() {
		s.endDue(now)
		s.watch()
		switch {
		case now.After(calm):
			s.heal()
			s.calm()
			calm = time.Now().Add(calmEvery)
		case now.After(strike):
			s.strike()
			strike = now.Add(time.Duration(s.rand.ExpFloat64() * float64(strikeEvery)))
		}
		time.Sleep(stormPoll)
	}
	s.heal()
}

// strike begins a random fault, unless an active one affects the same or too many are active.
func (s *Storm) strike() {
	total := 0
	for _, k := range s.kinds {
		total += k.weight
	}
	at := s.rand.IntN(total)
	i := 0
	for ; at >= s.kinds[i].weight; i++ {
		at -= s.kinds[i].weight
	}
	f := s.kinds[i].plan(s)
	if slices.ContainsFunc(s.active, f.meets) || s.broken() >= overlapMax && !f.harmless {
		return
	}
	f.kind = s.kinds[i].name
	s.logf("%s %s", f.kind, f.note)
	s.o.Tally.faults[f.kind]++
	f.begin()
	f.until = time.Now().Add(f.lasts)
	s.active = append(s.active, f)
}

// broken counts the active faults that could keep the cluster from answering.
func (s *Storm) broken() (count int) {
	for _, f := range s.active {
		if !f.harmless {
			count++
		}
	}
	return count
}

// meets reports whether two faults affect the same.
func (f *fault) meets(g *fault) bool {
	return slices.ContainsFunc(f.about, func(what string) bool { return slices.Contains(g.about, what) })
}

func (s *Storm) endDue(now time.Time) {
	for _, f := range slices.Clone(s.active) {
		if now.After(f.until) || f.over != nil && f.over() {
			s.end(f)
		}
	}
}

func (s *Storm) end(f *fault) {
	s.active = slices.DeleteFunc(s.active, func(a *fault) bool { return a == f })
	f.end()
}

// heal ends all faults.
func (s *Storm) heal() {
	for len(s.active) > 0 {
		s.end(s.active[len(s.active)-1])
	}
	if s.rand.IntN(2) == 0 {
		s.ahead = s.furthest
	}
	s.setClocks(s.c.Nodes, faults.ClockSetting{})
}

// calm checks that the cluster recovers while there are no faults: it must answer soon in both
// modes, all nodes must agree, and no answer may have been wrong.
func (s *Storm) calm() {
	s.t.Helper()
	s.watch()
	healed := time.Now()
	s.eachLoad(func(l *Load) {
		for query := range slices.Values(l.opt.Queries) {
			for !l.Answered()[query].Sent.After(healed) {
				if time.Since(healed) > calmAnswerMax {
					s.t.Fatalf("%s: no answer to %s for %v without any fault", s.clock(), query, calmAnswerMax)
				}
				time.Sleep(pollInterval)
			}
		}
	})
	answered := time.Since(healed)
	s.c.Settle()
	s.o.Tally.calms++
	s.o.Tally.recovery = max(s.o.Tally.recovery, answered)
	s.logf("calm: an answer after %v, all well after %v", answered.Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
	s.watch()
	s.judge()
}

// judge runs the exact check on the operations since its last call.
func (s *Storm) judge() {
	s.t.Helper()
	s.eachLoad(s.judgeLoad)
}

// judgeLoad judges one load: each has an order of its own.
func (s *Storm) judgeLoad(l *Load) {
	s.t.Helper()
	history, truncated := l.TakeHistory()
	if truncated {
		s.t.Error("too many requests between two calms for an exact check")
	}
	s.o.Tally.exact += len(history)
	if err := lincheck.Check(history); err != nil {
		s.o.Tally.violations++
		s.t.Errorf("%s: exact check: %v", s.clock(), err)
	}
	for _, fault := range l.Faults() {
		s.t.Errorf("%s: %s", s.clock(), fault)
	}
}

// watch reports processes that ended unexpectedly and restarts their nodes, so that the storm
// can find further faults.
func (s *Storm) watch() {
	s.t.Helper()
	for _, n := range s.c.Nodes {
		if fault := n.proc.Fault(); fault != "" && !s.unexpected[n.proc] {
			s.unexpected[n.proc] = true
			s.o.Tally.unexpected++
			s.t.Errorf("%s: %s:\n%s", s.clock(), fault, tail(n.logPath, logTailMax))
			if s.o.Tally.unexpected > unexpectedMax {
				s.t.Fatal("too many nodes ended unexpectedly")
			}
			s.restart(n)
		}
	}
}

// restart starts a node that has ended by itself, after ending the faults that affect its
// process.
func (s *Storm) restart(n *Node) {
	for _, f := range slices.Clone(s.active) {
		if slices.Contains(f.about, processes(n)[0]) {
			s.end(f)
		}
	}
	if n.Exited() {
		n.Start()
	}
}

// finish stops the load and adds up.
func (s *Storm) finish() {
	s.t.Helper()
	s.eachLoad(func(l *Load) {
		r := l.Stop()
		if l != s.load {
			r.Took = 0 // at the same time
		}
		s.o.Tally.add(r, l.Answered())
		r.Verify(s.t, 1)
		for _, query := range l.opt.Queries {
			if l.Answered()[query].Count == 0 {
				s.t.Errorf("no answer to %s in the whole storm", query)
			}
		}
	})
}

func (s *Storm) logf(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%s %s", s.clock(), fmt.Sprintf(format, args...))
}

// clock returns the wall clock and the time since the beginning, for the log.
func (s *Storm) clock() string {
	return fmt.Sprintf("%s %7.2f s", time.Now().Format("15:04:05.000"), time.Since(s.began).Seconds())
}

// node draws a node, every second time the leader if the load knows one.
func (s *Storm) node() *Node {
	n := s.c.Nodes[s.rand.IntN(len(s.c.Nodes))]
	if s.rand.IntN(2) == 0 {
		leader := s.load.Leader()
		if i := slices.IndexFunc(s.c.Nodes, func(n *Node) bool { return n.HTTPAddr == leader }); i >= 0 {
			n = s.c.Nodes[i]
		}
	}
	return n
}

// name names a node for the log.
func (s *Storm) name(n *Node) string {
	if n.HTTPAddr == s.load.Leader() {
		return fmt.Sprintf("node %d (leader)", n.ID)
	}
	return fmt.Sprintf("node %d", n.ID)
}

// between draws a duration, uniform on a logarithmic scale: 10 to 20 ms is as likely as 1 to
// 2 s.
func (s *Storm) between(low, high time.Duration) time.Duration {
	return time.Duration(float64(low) * math.Pow(float64(high)/float64(low), s.rand.Float64())).Round(time.Millisecond)
}

// possible returns the kinds of faults that are possible here, and logs why others are not.
func (s *Storm) possible() (list []kind) {
	for _, k := range kinds {
		if !k.fits(s.c) || len(s.o.Only) > 0 && !slices.Contains(s.o.Only, k.name) {
			continue
		}
		if why := k.denied(); why != "" {
			s.logf("left out: %s: %s", k.name, why)
			continue
		}
		list = append(list, k)
	}
	return list
}
