package disruptor

import "runtime"

// Wait is how [Consumer.Next] waits. While there is nothing to take it is called
// with attempt = 0, 1, 2 and so on. It passes some time in its own way and returns
// true, to look again, or it returns false, to park the goroutine until there is
// something.
//
// [Spin], [Yield] and [Park] are those that come with the package. A Wait is called
// by the goroutine of the consumer; one without state may serve several.
type Wait func(attempt int) bool

const (
	// spinTurns is how long Spin looks away, in turns of an empty loop: some ten
	// nanoseconds. Each look at a sequence takes its cache line from the core that
	// writes it, which costs that core more than the reader gains.
	spinTurns = 64
	// spinsMax is how often Spin looks before it lets others run once. Without that a
	// program with one processor would stand still until it is preempted.
	spinsMax = 128
	// yieldsMax is how often a goroutine yields before it parks: as long as it takes
	// to park and to be woken, a microsecond or two.
	yieldsMax = 16
)

// Spin looks again and again and keeps its core busy. It has the lowest latency,
// if there are more cores than goroutines that want to run, and is the worst choice
// if there are not.
func Spin(attempt int) bool {
	if attempt%spinsMax == spinsMax-1 {
		runtime.Gosched()
		return true
	}
	for range spinTurns {
	}
	return true
}

// Yield lets other goroutines run between two looks. It never sleeps, so that a
// core is busy when there is nothing else to run on it.
func Yield(int) bool {
	runtime.Gosched()
	return true
}

// Park yields a few times and then sleeps: an idle consumer takes no CPU at all. A
// Consumer whose Wait is nil does this, and so do producers while the ring is full.
func Park(attempt int) bool {
	if attempt >= yieldsMax {
		return false
	}
	runtime.Gosched()
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
