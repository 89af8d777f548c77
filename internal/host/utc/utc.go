// Package utc says how far the wall clock of this machine may be from UTC, as the programs that
// synchronize it say. It is information for people and dashboards: no rule of the cluster rests on
// it, because nobody can check it from inside.
//
// Two sources are known, both on Linux only: the shared memory of ClockBound, and the kernel, which
// tells what chronyd or ntpd have set (adjtimex(2)).
package utc

import "time"

// Source names who says it.
type Source string

// The sources, the better one first.
const (
	ClockBound Source = "clockbound"
	Kernel     Source = "kernel"
)

// Status is what a source says.
type Status struct {
	Source Source
	// Synchronized is set while the source says that the clock is being synchronized.
	Synchronized bool
	// Known is set if there is a bound: the wall clock is at most Error away from UTC.
	Known bool
	Error time.Duration
}

// Read returns what the best source says that has a bound, or else the first one that answers at
// all. It reports false if there is none. It takes some microseconds. It is safe for concurrent use.
func Read() (Status, bool) { return best(readClockBound, readKernel) }

func best(sources ...func() (Status, bool)) (first Status, found bool) {
	for _, read := range sources {
		s, ok := read()
		if ok && s.Known {
			return s, true
		}
		if ok && !found {
			first, found = s, true
		}
	}
	return first, found
}
