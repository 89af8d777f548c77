package disruptor

import (
	"runtime"
	"time"
)

// Wait is the wait strategy of [Consumer.Next]. While there is nothing to take it is called
// with attempt = 0, 1, 2 and so on, and with the size of the last batch, 0 at first. It
// lets some time pass and returns true to poll again, or returns false to park the goroutine
// until there are elements. Next checks its context between calls.
//
// The package has [Park], [Yield] and [Spin]. Wait runs in the consumer's goroutine; several
// consumers may share a Wait that has no state.
type Wait func(attempt, last int) bool

const (
	// yieldsMax is how often Park yields before it parks. That takes about as long as
	// parking and being woken.
	yieldsMax = 16
	// streamPause is how long Park waits between polls while elements come in batches.
	// A poll takes the cache line with the count from the core that writes it, and
	// reading a small batch takes lines of slots that are still being written; both
	// slow the writer down. On two cores, 10 µs make that cost small, and a sleep and a
	// wake-up may take longer.
	streamPause = 10 * time.Microsecond
	// spinTurns is how many turns of an empty loop Spin makes between polls: some tens
	// of nanoseconds.
	spinTurns = 64
	// spinsMax is how often Spin polls before it yields once. Otherwise a program with
	// one processor would make no progress until it is preempted.
	spinsMax = 128
)

// Park waits a few microseconds and then sleeps: an idle consumer uses no CPU time. If
// elements come one by one, it polls often, for a short time. If the last ones came in
// a batch, more are likely to follow, so it lets the next batch build up first. It is
// the default of Consumer.Wait.
func Park(attempt, last int) bool {
	if last <= 1 {
		if attempt >= yieldsMax {
			return false
		}
		runtime.Gosched()
		return true
	}
	if attempt > 0 {
		return false
	}
	for start := time.Now(); time.Since(start) < streamPause; {
		runtime.Gosched()
	}
	return true
}

// Yield lets other goroutines run between two polls. It never sleeps, so it keeps a core
// busy.
func Yield(int, int) bool {
	runtime.Gosched()
	return true
}

// Spin polls in a loop and keeps its core busy. It has the lowest latency if there are more
// cores than runnable threads, and by far the highest otherwise.
func Spin(attempt, _ int) bool {
	if attempt%spinsMax == spinsMax-1 {
		runtime.Gosched()
		return true
	}
	for range spinTurns {
	}
	return true
}

// isDone reports whether done is closed.
func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
