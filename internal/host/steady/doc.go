// Package steady reads a steady clock of this process: one that never jumps, runs through suspend,
// and that nobody slews. The cluster clock rests on its rate being right within
// interval.RateError.
//
// On Linux it is CLOCK_MONOTONIC_RAW, which stands still in suspend, plus the time that the machine
// was suspended, CLOCK_BOOTTIME - CLOCK_MONOTONIC. CLOCK_MONOTONIC will not do: NTP may slew it by a
// tenth. On other systems it is Go's monotonic clock, which is weaker: it may be slewed, and may
// stand still while the machine sleeps. There, time in which the machine sleeps is not counted, and
// so bounds of the cluster clock may be wrong after it.
//
// [Exact] costs some system calls, [Now] about as much as time.Now. Both are safe for concurrent use.
package steady
