"""The arithmetic of the cluster clock: what follows from the own steady clock and from what nodes have told of it.

Times on the cluster clock are unix nanoseconds, those on the steady clock nanoseconds from an origin of its own.
Nothing here reads a clock. docs/intervals.md has the rules, and the proof that bounds hold.
"""

from __future__ import annotations

import secrets
import struct
import threading
from typing import NamedTuple

from .errors import MalformedError
from .timestamps import _U64_MAX, Timestamp

#: Bounds widen by one part in so many with the time since the reading.
_GROWTH = 1000
#: Nanoseconds in which readings must agree, after they did not, until the clocks are believed again.
RATE_WINDOW = 10_000_000_000
#: The smallest index of a timestamp that was made from an interval. Those of the oracle are below it.
INDEX_MIN = 1 << 63
_I64_MAX = (1 << 63) - 1
_READING = struct.Struct(">6Q")


class Instant(NamedTuple):
    """A read of the steady clock, which showed a time from lo to hi at some instant of it."""

    lo: int
    hi: int


class Reading(NamedTuple):
    """What a node tells: bounds of the cluster clock of a term, and up to which time they may be used."""

    earliest: int
    latest: int
    limit: int
    term: int
    cluster: int = 0
    nonce: int = 0

    @classmethod
    def decode(cls, data: object) -> Reading:
        """Decodes the answer to INTERVAL. Raises MalformedError."""
        if not isinstance(data, bytes) or len(data) != _READING.size:
            raise MalformedError("not a reading of the cluster clock")
        reading = cls(*_READING.unpack(data))
        if reading.term == 0 or not reading.earliest <= reading.latest <= _I64_MAX or reading.limit > _I64_MAX:
            raise MalformedError("a reading of the cluster clock that is out of range")
        return reading


class Bounds(NamedTuple):
    """Bounds of the cluster clock. They may be used if they are good: the later one is not above the limit."""

    earliest: int = 0
    latest: int = 0
    limit: int = 0
    term: int = 0
    good: bool = False

    def is_past(self, timestamp: Timestamp) -> bool:
        """Reports whether whatever begins now gets a larger timestamp. The bounds need not be good."""
        return self.earliest > timestamp.time


class Estimate(NamedTuple):
    """What is known of the cluster clock of one term. ``Estimate()`` is nothing."""

    term: int = 0
    earliest: int = 0  # the clock had reached it when the steady clock showed the next
    earliest_at: int = 0
    latest: int = 0  # the clock had not passed it when the steady clock showed the next
    latest_at: int = 0
    limit: int = 0
    received: int = 0

    def take(self, sent: Instant, received: Instant, r: Reading) -> tuple[Estimate, bool]:
        """Takes in a reading that was asked for after ``sent`` and had arrived before ``received``.

        A contradiction of what is known of the same term returns nothing known, and False: one of the clocks
        has a wrong rate.
        """
        if r.term < self.term:
            return self, True
        new = Estimate(r.term, r.earliest, received.hi, r.latest, sent.lo, r.limit, received.hi)
        if r.term > self.term:
            return new, True
        # Readings may be taken in in another order than they were asked for. Lines say nothing of the time before
        # they begin, so they are compared when all have.
        now = Instant(at := max(self.received, new.received), at)
        (old_earliest, old_latest), (earliest, latest) = self._lines(now), new._lines(now)
        if min(latest, old_latest) < max(earliest, old_earliest):
            return Estimate(), False
        low = new if earliest > old_earliest else self
        high = new if latest < old_latest else self
        limit = max(self.limit, new.limit)
        return Estimate(r.term, low.earliest, low.earliest_at, high.latest, high.latest_at, limit, at), True

    def _lines(self, now: Instant) -> tuple[int, int]:
        """Returns the bounds, whether they may be used or not. What is beyond 64 bits is the largest number."""
        low, high = max(now.lo - self.earliest_at, 0), max(now.hi - self.latest_at, 0)
        earliest = self.earliest + low - (low + _GROWTH - 1) // _GROWTH
        return min(earliest, _U64_MAX), min(self.latest + high + high // _GROWTH + 1, _U64_MAX)

    def bounds(self, now: Instant) -> Bounds:
        """Returns the bounds at an instant that was read after this was loaded, within the call that uses them."""
        if not self.term:
            return Bounds()
        earliest, latest = self._lines(now)
        good = latest <= self.limit
        if not good:  # a later term's clock starts above the limit, but perhaps below this line
            earliest = min(earliest, self.limit)
        return Bounds(earliest, latest, self.limit, self.term, good)

    def until(self, now: Instant, time: int) -> int | None:
        """Returns in how many nanoseconds the earlier bound is above a time; None: not without another reading."""
        if not self.term or time >= self.limit:
            return None
        if time < self.earliest:
            return 0
        need = time - self.earliest + 1
        wait = need + (need - 1) // (_GROWTH - 1) + 1
        if wait > _I64_MAX:
            return None
        return min(max(self.earliest_at + wait - now.lo, 0), _I64_MAX)


class Rate:
    """Keeps whether the rates of the cluster clock and of the own steady clock are believed.

    After a contradiction of readings they are not, until all readings of RATE_WINDOW within a term have agreed.
    """

    def __init__(self) -> None:
        self._term = 0
        self._since = 0
        self.believed = True

    def take(self, received: Instant, term: int, agrees: bool) -> None:
        """Takes in a reading, and whether it agreed."""
        if term < self._term:
            return
        if not agrees or term > self._term:
            self._term, self._since = term, received.hi
            self.believed = self.believed and agrees
        elif received.lo - self._since >= RATE_WINDOW:
            self.believed = True


class Stamper:
    """Makes unique timestamps from bounds: times of their own, and an index with 63 random bits. It is thread-safe."""

    def __init__(self, random: int | None = None, last: int = 0) -> None:
        self._index = INDEX_MIN | (secrets.randbits(63) if random is None else random)
        self._last = last
        self._lock = threading.Lock()

    def take(self, bounds: Bounds, count: int = 1) -> list[Timestamp]:
        """Returns timestamps with consecutive times, none if the bounds are not good or the limit has no room."""
        if not bounds.good:  # as in a process that was forked, where another thread may have held the lock for ever
            return []
        with self._lock:
            first = max(bounds.latest, self._last + 1)
            if first + count - 1 > bounds.limit:
                return []
            self._last = first + count - 1
        return [Timestamp(time, self._index) for time in range(first, first + count)]
