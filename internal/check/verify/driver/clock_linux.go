package driver

import "golang.org/x/sys/unix"

// clockShared says that all processes of the machine read the same clock by [Now].
const clockShared = true

// Now returns a reading of CLOCK_MONOTONIC, in nanoseconds.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("driver: CLOCK_MONOTONIC: " + err.Error()) // every Linux has it
	}
	return now.Nano()
}
