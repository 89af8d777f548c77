"""Reads the steady clock of this process. It never jumps, and nobody slews it: the cluster clock rests on its rate.

On Linux it is CLOCK_MONOTONIC_RAW, plus the time in which the machine slept: CLOCK_BOOTTIME - CLOCK_MONOTONIC. On
other systems it is the monotonic clock, which may be slewed and may stand still while the machine sleeps: bounds
of the cluster clock may be wrong after that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from ._interval import Instant

if sys.platform == "linux":

    def steady(read: Callable[[int], int] = time.clock_gettime_ns) -> Instant:
        """Returns what the clock showed at some instant of the call.

        The sum below is not more than the clock shows at the end: if the machine sleeps after boot is read, that is
        not in it. Nor is it less than the clock showed at the beginning, except by what NTP slews mono by between
        its two readings, which is far below a quarter of the time that the call has taken.
        """
        begin = read(time.CLOCK_MONOTONIC_RAW)
        boot = read(time.CLOCK_BOOTTIME)
        mono = read(time.CLOCK_MONOTONIC)
        raw = read(time.CLOCK_MONOTONIC_RAW)
        low = boot - mono + raw
        return Instant(low, low + (raw - begin) // 4)

else:

    def steady() -> Instant:
        """Returns what the clock showed at some instant of the call."""
        now = time.perf_counter_ns()
        return Instant(now, now)
