package stats

import (
	"time"

	"golang.org/x/sys/unix"
)

// A thread has two clocks, and both are needed. CLOCK_THREAD_CPUTIME_ID is exact to the
// nanosecond, but does not separate user and system. getrusage(RUSAGE_THREAD) does, but
// counts in microseconds, and most kernels update it only at the timer tick: alone it would
// report 0 for many requests and their sum for a later one. Reading the first updates the
// second, so it is read first. The first gives the total, the second its split.
//
// Unless the kernel was built to account for each switch between user and kernel, it samples
// at its ticks. Then a single short request is all user or all system, and only the split
// of the sum of many is right.

// threadCPU returns the CPU time of the calling thread.
func threadCPU() (time.Duration, bool) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return time.Duration(now.Nano()), err == nil
}

// threadSystem returns the part of it in the kernel, as of the last tick or call of threadCPU.
func threadSystem() (time.Duration, bool) {
	var usage unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &usage)
	return time.Duration(usage.Stime.Nano()), err == nil
}
