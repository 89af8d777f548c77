//go:build linux

package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newSleep returns a sleep for the pacer, and what frees it. The runtime's own timers
// round up to a millisecond when the process is idle, which would be most of the latency
// of a fast oracle; a timer of the kernel, waited for as for a socket, is exact to some
// microseconds and needs no thread that spins.
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
