//go:build !linux

package steady

import "time"

// systemSources has nothing but Go's monotonic clock: it may be slewed, and may not run in suspend.
func systemSources() Sources {
	still := func() int64 { return 0 }
	return Sources{
		Raw:  func() int64 { return int64(time.Since(origin)) },
		Mono: still,
		Boot: still,
		Go:   goClock,
	}
}

// Sleep is time.Sleep.
func Sleep(d time.Duration) { time.Sleep(d) }
