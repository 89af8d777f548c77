//go:build linux

package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newSleep returns a sleep function for the pacer, and a function that frees it. The Go
// runtime's timers round up to a millisecond when the process is idle, which would be most
// of the latency of a fast oracle. A timerfd in the runtime's poller is exact to some
// microseconds, without a spinning thread.
func newSleep() (sleep func(time.Duration), release func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return time.Sleep, func() {}
	}
	timer := os.NewFile(uintptr(fd), "timer")
	expirations := make([]byte, 8)
	sleep = func(d time.Duration) {
		setting := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(1, d)))}
		if unix.TimerfdSettime(fd, 0, &setting, nil) != nil {
			time.Sleep(d)
			return
		}
		_, _ = timer.Read(expirations)
	}
	return sleep, func() { _ = timer.Close() }
}
