package disruptor

import (
	"runtime"
	"time"
)

// Wait is the wait strategy of [Consumer.Next]. While there is nothing to take it is called
// with attempt = 0, 1, 2 and so on, and with the size of the last batch, 0 at first. It
// passes some time and returns true to poll again, or returns false to park the goroutine
// until there are elements. Next checks its context between calls.
//
// The package has [Park], [Yield] and [Spin]. The goroutine of the consumer calls its Wait;
// several consumers may share one without state.
type Wait func(attempt, last int) bool

const (
	// yieldsMax is how often Park yields before it parks: about as long as it takes to
	// park and to be woken.
	yieldsMax = 16
	// streamPause is how long Park looks away in a stream. A look takes the cache line
	// with the count from the core that writes it, and with a small batch go lines of
	// slots that are still being written; the writer pays for both. On two cores,
	// 10 µs make that a small part, and a sleep and a wake-up may take longer.
	streamPause = 10 * time.Microsecond
	// spinTurns is how long Spin looks away, in turns of an empty loop: some ten
	// nanoseconds.
	spinTurns = 64
	// spinsMax is how often Spin looks before it lets others run once. Without that a
	// program with one processor would stand still until it is preempted.
	spinsMax = 128
)

// Park waits a few microseconds and then sleeps: an idle consumer takes no CPU at
// all. If elements come one by one, it looks often, for a short time. If the last
// ones came together, more are on their way, and it lets a batch build up first. A
// Consumer whose Wait is nil does this.
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
