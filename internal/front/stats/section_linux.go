package stats

import (
	"time"

	"golang.org/x/sys/unix"
)

// A thread has two clocks, and both are needed. CLOCK_THREAD_CPUTIME_ID is exact to the
// nanosecond, but does not tell user from system. getrusage(RUSAGE_THREAD) does, but
// counts in microseconds, and most kernels bring it up to date with the timer tick only:
// alone it would say of many a request that it had cost nothing, and of a later one the
// sum of both. Asking the first brings the second up to date, so it is asked before. How
// much is taken from the first, which kind from the second.
//
// Unless the kernel was built to account for each change between user and kernel, it
// splits by what it finds at its ticks. Then a single short request is said to be all
// user or all system, and the split is right in the sum of many.

// threadCPU returns the CPU time of the calling thread.
func threadCPU() (time.Duration, bool) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return time.Duration(now.Nano()), err == nil
}

// threadSystem returns that part of it which the kernel has worked. It is as old as the
// last tick, or threadCPU before it.
func threadSystem() (time.Duration, bool) {
	var usage unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &usage)
	return time.Duration(usage.Stime.Nano()), err == nil
}
