"""The cluster clock, read in the process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ._args import DEFAULT, checked, counted, is_timeout
from ._interval import Bounds, Estimate, Stamper
from ._readings import Known, Readings
from ._steady import steady
from .errors import ClockError, ClosedError, DeadlineExceededError, Error, InvalidArgumentError, NoLeaderError
from .timestamps import Timestamp

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")

#: The most timestamps of one call: a millisecond.
BATCH_MAX = 1_000_000

_FORKED = Known(Estimate(), ClosedError("the clock was made before this process was forked"))


class Interval(NamedTuple):
    """What the cluster clock may show, in unix nanoseconds: nothing before the earliest, nothing after the latest."""

    earliest: int
    latest: int
    #: That of the leader whose clock it is.
    term: int

    @property
    def width(self) -> int:
        """How uncertain it is, in nanoseconds."""
        return self.latest - self.earliest


class Clock:
    """Reads the cluster clock without a request for each read, and makes timestamps of it. See :meth:`Client.clock`.

    It asks nodes for the time in the background. A timestamp is in one order with all others, those of the oracle
    too, once it is past for everyone: once :meth:`wait` has returned. So take one, do the work of the operation,
    and wait before you report its end (a commit wait).

    All of this rests on the steady clocks of processes: their rates must be right to 200 millionths. On systems
    other than Linux, time in which the machine sleeps is not counted: do not use it there on machines that sleep.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._readings = Readings(client)
        self._stamper = Stamper()
        self._task: asyncio.Task[None] | None = None

    async def _start(self, timeout: float | None) -> None:
        self._task = self._client._router.spawn(self._readings.run())
        self._task.add_done_callback(lambda _: self._readings.end())
        try:
            await self._until(lambda: self._read().good, timeout)
        except BaseException:
            await self.close()
            raise

    async def __aenter__(self) -> Clock:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the clock: waiting and later calls fail with ClosedError. Its connections are closed."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def now(self) -> Interval:
        """Returns what the cluster clock may show: at an instant of the call it was within the interval.

        It never waits, and is safe for threads. While no reading is valid it raises NoLeaderError, or ClockError
        if the rate of a clock is wrong.
        """
        bounds = self._read()
        if not bounds.good:
            why = self._known().why
            raise _again(why) if why else NoLeaderError("no reading of the cluster clock is valid")
        return Interval(bounds.earliest, bounds.latest, bounds.term)

    def is_past(self, timestamp: Timestamp) -> bool:
        """Reports whether a timestamp is past for everyone: whatever begins now, anywhere, gets a larger one.

        It never waits, and is safe for threads. While no reading is valid it goes by the last one that was.
        """
        return self._read().is_past(checked(timestamp))

    async def timestamp(self, *, timeout: float | None = DEFAULT) -> Timestamp:
        """Makes a timestamp. It waits only while no reading is valid."""
        return (await self.timestamps(1, timeout=timeout))[0]

    async def timestamps(self, count: int, *, timeout: float | None = DEFAULT) -> list[Timestamp]:
        """Makes timestamps, 1 to 1,000,000, with consecutive times. It waits only while no reading is valid.

        Timestamps of a clock increase, and are unique in the cluster.
        """
        counted(count, BATCH_MAX)
        return self._take(count) or await self._until(lambda: self._take(count), timeout)

    async def wait(self, timestamp: Timestamp, *, timeout: float | None = DEFAULT) -> None:
        """Waits until a timestamp is past for everyone. For one that was just made that is the width of an interval.

        The timers of asyncio may make it a millisecond longer.
        """
        if not self.is_past(timestamp):
            await self._until(lambda: self.is_past(timestamp), timeout, timestamp)

    def _known(self) -> Known:
        return _FORKED if self._client.forked else self._readings.known

    def _read(self) -> Bounds:
        known = self._known()  # before the clock is read: what comes between only makes it older
        return known.estimate.bounds(steady())

    def _take(self, count: int) -> list[Timestamp]:
        return self._stamper.take(self._read(), count)

    def _left(self, timestamp: Timestamp) -> float | None:
        """Returns in how many seconds a timestamp is past; None: not without another reading."""
        left = self._known().estimate.until(steady(), checked(timestamp).time)
        return None if left is None else left / 1e9

    async def _until(self, attempt: Callable[[], T], timeout: float | None, timestamp: Timestamp | None = None) -> T:
        """Returns the result of an attempt that succeeds: now, with another reading, or when a timestamp is past."""
        timeout = self._client.options.timeout if timeout is DEFAULT else timeout
        if not is_timeout(timeout):
            raise InvalidArgumentError(f"timeout {timeout!r:.40}: want seconds, or None")
        deadline = math.inf if timeout is None else self._client._time() + timeout
        while True:
            changed = self._readings.changed
            if got := attempt():
                return got
            left = self._left(timestamp) if timestamp else None
            if left is None:
                self._look_forward()
            rest = deadline - self._client._time()
            if rest <= 0:
                raise self._late()
            wait = rest if left is None else min(rest, left)
            await asyncio.wait([changed], timeout=None if wait == math.inf else wait)

    def _look_forward(self) -> None:
        """Has a node be asked soon if that may help. Raises what makes all waiting vain."""
        known = self._known()
        if known.why and not isinstance(known.why, ClockError):
            raise _again(known.why)
        if not known.why and not known.estimate.bounds(steady()).good:
            self._readings.hurry()

    def _late(self) -> Error:
        """Returns the error of a call whose deadline has come."""
        if self._client._foreign:
            return self._client._late(None)
        if why := self._known().why:
            return type(why)(f"not in time: {why}")
        bounds = self._read()
        if bounds.good:
            return DeadlineExceededError(f"the cluster clock has not come far enough in time: {bounds}")
        return DeadlineExceededError(f"no valid reading of the cluster clock in time{self._readings.trouble()}")


def _again(error: Error) -> Error:
    return type(error)(str(error), error.reason)
