package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

func systemSources() Sources {
	return Sources{
		Raw:  func() int64 { return get(unix.CLOCK_MONOTONIC_RAW) },
		Mono: func() int64 { return get(unix.CLOCK_MONOTONIC) },
		Boot: func() int64 { return get(unix.CLOCK_BOOTTIME) },
		Go:   goClock,
	}
}

func get(clock int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic("steady: clock_gettime: " + err.Error())
	}
	return ts.Nano()
}

// Sleep pauses the calling goroutine for d, and about 60 µs longer, which is the slack of the
// kernel's timers. It occupies a thread, and nothing can end it early: it is for pauses below a
// millisecond, which time.Sleep would extend to a millisecond.
func Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early; the caller looks at the clock again
}
