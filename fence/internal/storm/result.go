package storm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what has happened in a storm. Counts by kind have the names of [Kinds].
type Result struct {
	ElapsedS float64 `json:"elapsed_s"`
	Rounds   int     `json:"rounds"`
	// Grants are those of locks, Begins those of stamps, Seals how often a fence was raised in both stores, and Told how often a reader was told that a frontier has moved.
	Grants int `json:"grants"`
	Begins int `json:"begins"`
	Seals  int `json:"seals"`
	Told   int `json:"frontiers_told"`
	// Accepted and Fenced are writes that stores have accepted and refused. Failed counts sessions that have ended, and writes of which the worker was not told.
	Accepted map[string]int `json:"accepted"`
	Fenced   map[string]int `json:"fenced"`
	Failed   int            `json:"failed"`

	HolderPauses int `json:"holder_pauses"`
	WriterPauses int `json:"writer_pauses"`
	WorkerKills  int `json:"worker_kills"`
	LeaderPauses int `json:"leader_pauses"`
	LeaderKills  int `json:"leader_kills"`

	// Stale are accepted writes under a token after one under a later token, and Late those at or below a frontier that was told before.
	Stale map[string]int `json:"stale"`
	Late  map[string]int `json:"late"`
	// Violations describes the first of them, and whatever else was wrong.
	Violations []string `json:"violations"`

	failures []string // the first, for people
}

// Kinds are those of writes.
var Kinds = []string{"lock redis", "lock postgres", "group redis", "group postgres"}

const (
	violationsMax = 20
	failuresMax   = 20
)

func newResult() *Result {
	return &Result{Accepted: map[string]int{}, Fenced: map[string]int{}, Stale: map[string]int{}, Late: map[string]int{}, Violations: []string{}}
}

func (r *Result) violation(format string, args ...any) {
	if len(r.Violations) < violationsMax {
		r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
	}
}

// count adds what a worker has reported.
func (r *Result) count(log string) {
	for line := range strings.Lines(log) {
		word, of, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case granted:
			r.Grants++
		case begun:
			r.Begins++
		case sealed:
			r.Seals++
		case accepted:
			r.Accepted[of]++
		case fenced:
			r.Fenced[of]++
		case failed:
			r.Failed++
			if len(r.failures) < failuresMax {
				r.failures = append(r.failures, of)
			}
		default: // a panic, for instance
			r.violation("a worker has said: %.500s", line)
		}
	}
}

func sum(counts map[string]int) (all int) {
	for n := range maps.Values(counts) {
		all += n
	}
	return all
}

// Elapsed is how long the storm took.
func (r *Result) Elapsed() time.Duration { return time.Duration(r.ElapsedS * float64(time.Second)) }

// AcceptedWrites and FencedWrites are how many writes were accepted and refused.
func (r *Result) AcceptedWrites() int { return sum(r.Accepted) }
func (r *Result) FencedWrites() int   { return sum(r.Fenced) }

// Wrong is how many writes were accepted that should not have been.
func (r *Result) Wrong() int { return sum(r.Stale) + sum(r.Late) }

// String returns a line.
func (r *Result) String() string {
	return fmt.Sprintf("%v, %d rounds: %d grants, %d stamps, %d seals, %d frontiers told; %d writes accepted, %d fenced (%s), %d failures; "+
		"%d pauses and %d kills of workers (%d pauses of holders), %d pauses and %d kills of leaders; %d stale writes accepted, %d at or below a told frontier",
		r.Elapsed().Round(time.Second), r.Rounds, r.Grants, r.Begins, r.Seals, r.Told, r.AcceptedWrites(), r.FencedWrites(), byKind(r.Fenced), r.Failed,
		r.HolderPauses+r.WriterPauses, r.WorkerKills, r.HolderPauses, r.LeaderPauses, r.LeaderKills, sum(r.Stale), sum(r.Late))
}

func byKind(counts map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return strings.Join(parts, ", ")
}

// Faults is how many pauses and kills there were.
func (r *Result) Faults() int {
	return r.HolderPauses + r.WriterPauses + r.WorkerKills + r.LeaderPauses + r.LeaderKills
}
