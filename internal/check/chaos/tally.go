//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/check/evidence"
)

// Tally adds up the faults and results of storms.
type Tally struct {
	faults     map[string]int
	outcomes   map[string]int
	answered   map[string]int // by query
	exact      int            // requests checked exactly
	online     uint64         // answers checked online
	unverified uint64
	violations int
	unexpected int
	stopped    int // nodes that stopped because of a disk fault
	calms      int
	recovery   time.Duration // longest, from the end of all faults to the next answer
	gap        time.Duration
	took       time.Duration
	ids        int
	events     uint64 // checked against the specification
}

// AddEvents adds events that were checked against the specification.
func (y *Tally) AddEvents(events uint64) { y.events += events }

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{faults: map[string]int{}, outcomes: map[string]int{}, answered: map[string]int{}}
}

func (y *Tally) add(r *Report, answered map[string]Answers) {
	z := Tally{
		outcomes: r.Outcomes, answered: map[string]int{}, online: r.Online.Checked, unverified: r.Online.Unverified,
		violations: int(r.Online.Violations), gap: r.Gap, took: r.Took, ids: r.IDs,
	}
	for query, a := range answered {
		z.answered[query] = a.Count
	}
	y.Merge(&z)
}

// Merge adds another tally.
func (y *Tally) Merge(z *Tally) {
	for _, pair := range []struct{ to, from map[string]int }{{y.faults, z.faults}, {y.outcomes, z.outcomes}, {y.answered, z.answered}} {
		for name, count := range pair.from {
			pair.to[name] += count
		}
	}
	y.exact += z.exact
	y.online += z.online
	y.unverified += z.unverified
	y.violations += z.violations
	y.unexpected += z.unexpected
	y.stopped += z.stopped
	y.calms += z.calms
	y.recovery = max(y.recovery, z.recovery)
	y.gap = max(y.gap, z.gap)
	y.took += z.took
	y.ids += z.ids
	y.events += z.events
}

// Faults returns how many faults there were.
func (y *Tally) Faults() (total int) {
	for count := range maps.Values(y.faults) {
		total += count
	}
	return total
}

// Storm returns the tally as a line of the ledger, without the command.
func (y *Tally) Storm() evidence.Storm {
	s := evidence.Storm{
		Took: y.took, Faults: fmt.Sprintf("%d faults", y.Faults()), Answered: uint64(y.outcomes["ok"]), Leased: uint64(y.answered["&mode=lease"]),
		IDs: uint64(y.ids), Violations: uint64(y.violations + y.unexpected),
		Note: fmt.Sprintf("%v at most for an answer after a heal; %d nodes stopped by a disk fault; %d events checked against the specification", y.recovery.Round(time.Millisecond), y.stopped, y.events),
	}
	for count := range maps.Values(y.outcomes) {
		s.Operations += uint64(count)
	}
	return s
}

// String returns a table.
func (y *Tally) String() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", name, value) }
	b.WriteString("\n| what | how many |\n|---|---|\n")
	for _, k := range kinds {
		if count := y.faults[k.name]; count > 0 {
			line("fault: "+k.name, count)
		}
	}
	line("**faults**", y.Faults())
	line("nodes stopped by a disk fault, and restarted", y.stopped)
	line("**operations**", y.Storm().Operations)
	line("**answered**", y.outcomes["ok"])
	for _, query := range stormQueries {
		line("answered, "+strings.TrimPrefix(query, "&"), y.answered[query])
	}
	line("checked exactly, checked online", fmt.Sprintf("%d, %d", y.exact, y.online))
	line("**violations**, unverified", fmt.Sprintf("%d, %d", y.violations, y.unverified))
	line("snowflake IDs, all different", y.ids)
	line("events checked against the specification", y.events)
	line("**unexpected exits**", y.unexpected)
	line("calms, longest wait for an answer in them", fmt.Sprintf("%d, %v", y.calms, y.recovery.Round(time.Millisecond)))
	line("longest gap between answers", y.gap.Round(time.Millisecond))
	line("time under load", y.took.Round(time.Second))
	return b.String()
}
