"""The client for threads. It runs the client for asyncio; any number of threads may call.

>>> with isotone.sync.Client("10.0.0.1:8080", "10.0.0.2:8080") as client:
...     timestamp = client.timestamp()

Who holds the client's lock runs its loop. A call that finds it free runs the loop itself until it is answered, so
a lone call needs no other thread. If others wait then, or nobody has called for a while, a thread of the client
runs the loop: the keeper. While there is a cluster clock, which asks nodes all the time, it always does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from . import client as core
from . import clock, generator
from ._args import DEFAULT, counted
from ._resp import TS, TS64
from .client import _NOT_OPEN, Mode, Options
from .clock import BATCH_MAX, Interval
from .errors import ClosedError, Error
from .generator import GeneratorOptions
from .snowflake import Layout
from .timestamps import COUNT64_MAX, COUNT_MAX, Range, Range64, Timestamp, Timestamp64

T = TypeVar("T")

#: Seconds without a call after which the keeper runs the loop.
_IDLE = 0.02
#: Seconds that a thread which waits for the cluster clock may sleep, so that it is woken to the microsecond.
_NAP_MAX = 0.002


class _Wait:
    """A call of a thread, in the place of a future: the answer wakes the thread without another turn of the loop."""

    __slots__ = ("_callback", "_client", "_ended", "_error", "_lock", "_value")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._lock.acquire()
        self._ended = False
        self._error: BaseException | None = None
        self._value: Any = None
        self._callback: Callable[[Any], None] | None = None

    def done(self) -> bool:
        return self._ended

    def set_result(self, value: Any) -> None:
        self._value = value
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callback = callback

    def follow(self, task: asyncio.Task[Any]) -> None:
        def copy(_: object) -> None:
            error = ClosedError("the client was closed") if task.cancelled() else task.exception()
            if error:
                self.set_exception(error)
            else:
                self.set_result(task.result())

        task.add_done_callback(copy)

    def _end(self) -> None:
        self._ended = True
        if self._callback:
            self._callback(self)
        self._client._left(self)
        self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()

    def abandon(self) -> None:
        if not self._ended:  # the thread was interrupted: nobody waits any more
            self._ended = True
            self._client._left(self)

    def result(self) -> Any:
        if self._error:
            raise self._error
        return self._value


class Client:
    """:class:`isotone.Client` for threads: the same options, calls and errors; calls return when they are answered."""

    def __init__(self, *addrs: str, options: Options | None = None) -> None:
        self._client = core.Client(*addrs, options=options)
        self._loop = asyncio.new_event_loop()
        self._driver = threading.Lock()  # who holds it runs the loop ...
        self._driven: _Wait | None = None  # ... for this call, or for all that wait
        self._keeper = threading.Thread(target=self._keep, name="isotone", daemon=True)
        self._kick = threading.Event()
        self._inbox: deque[tuple[_Wait, Callable[[_Wait], object]]] = deque()
        self._waits: set[_Wait] = set()
        self._clocks: set[Clock] = set()
        self._calls = 0
        self._started = self._closed = False
        self._ending = threading.Lock()

    def start(self, timeout: float | None = None) -> None:
        """Begins, and waits until a leader is connected unless ``options.lazy``. ``with`` calls it."""
        if not self._started:
            self._keeper.start()
            self._started = True
        try:
            self._run(lambda: self._client.start(timeout))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the client: its calls fail with ClosedError, and all connections are closed."""
        with self._ending:
            if self._client.forked:
                return  # it goes on in the parent
            if self._started and not self._closed:
                self._run(self._client.close)
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._kick.set()
                self._keeper.join()
                self._driver.acquire()  # for ever
                while self._waits:  # they have begun, and have yet to hear of it
                    self._drain()
                    self._loop.call_later(0.001, self._loop.stop)
                    self._loop.run_forever()
                self._loop.close()
            elif not self._started:
                self._loop.close()

    def __enter__(self) -> Client:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cluster(self) -> str:
        """The ID of the cluster, ``""`` while it is unknown."""
        return self._client.cluster

    @property
    def floor(self) -> Timestamp:
        """The largest timestamp that this client has received."""
        return self._client.floor

    def timestamp(
        self, *, mode: Mode | None = None, above: Timestamp | None = None, timeout: float | None = DEFAULT
    ) -> Timestamp:
        """Returns a timestamp: see :meth:`isotone.Client.timestamp`."""
        got: Timestamp = self._ask(lambda call: self._client._stamps(TS, 0, mode, above, timeout, call))
        return got

    def timestamps(
        self, count: int, *, mode: Mode | None = None, above: Timestamp | None = None, timeout: float | None = DEFAULT
    ) -> Range:
        """Returns count consecutive timestamps, 1 to 2**32."""
        got: Range = self._ask(
            lambda call: self._client._stamps(TS, counted(count, COUNT_MAX), mode, above, timeout, call)
        )
        return got

    def timestamp64(
        self, *, mode: Mode | None = None, above: Timestamp | None = None, timeout: float | None = DEFAULT
    ) -> Timestamp64:
        """Returns a timestamp of 64 bits."""
        got: Timestamp64 = self._ask(lambda call: self._client._stamps(TS64, 0, mode, above, timeout, call))
        return got

    def timestamps64(
        self, count: int, *, mode: Mode | None = None, above: Timestamp | None = None, timeout: float | None = DEFAULT
    ) -> Range64:
        """Returns count consecutive timestamps of 64 bits, 1 to 2**18."""
        got: Range64 = self._ask(
            lambda call: self._client._stamps(TS64, counted(count, COUNT64_MAX), mode, above, timeout, call)
        )
        return got

    def id(self, *, timeout: float | None = DEFAULT) -> int:
        """Returns an ID from any member."""
        got: int = self._ask(lambda call: self._client._join(self._client._id_queue(), 0, timeout, call))
        return got

    def ids(self, count: int, *, timeout: float | None = DEFAULT) -> list[int]:
        """Returns count IDs, 1 to 65,536, possibly from several members."""
        return self._run(lambda: self._client.ids(count, timeout=timeout))

    def generator(self, options: GeneratorOptions | None = None, *, timeout: float | None = DEFAULT) -> Generator:
        """Leases a worker, and returns a generator of its IDs. Close it before the client."""
        return Generator(self, self._run(lambda: self._client.generator(options, timeout=timeout)))

    def clock(self, *, timeout: float | None = DEFAULT) -> Clock:
        """Returns a cluster clock of this process, once a reading of it is valid. Close it before the client."""
        return Clock(self, timeout)

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine in the thread of the client."""
        got: T = self._ask(lambda call: call.follow(self._loop.create_task(make())))
        return got

    def _ask(self, begin: Callable[[Any], object]) -> Any:
        if not self._started or self._closed or self._client.forked:
            raise ClosedError(_NOT_OPEN)
        loop = asyncio._get_running_loop()
        if loop is self._loop:
            raise RuntimeError("a hook or a function for credentials must not call its client, which waits for it")
        call = _Wait(self)
        self._calls += 1
        self._waits.add(call)
        self._inbox.append((call, begin))
        if self._closed:
            raise ClosedError("the client was closed")  # nobody may look into the inbox any more
        try:
            if loop is None and not self._clocks and self._driver.acquire(blocking=False):
                self._drive(call)
            else:
                with suppress(RuntimeError):  # closed meanwhile, and so is the call
                    self._loop.call_soon_threadsafe(self._drain)
                if not self._driver.locked():
                    self._kick.set()
                call.wait()
        finally:
            call.abandon()
        return call.result()

    def _drive(self, call: _Wait | None) -> None:
        """Runs the loop until a call is answered or, without one, until no call waits. Needs and gives up the lock."""
        try:
            self._drain()
            self._driven = call
            if call is None and not self._closed:  # close has the loop stop after it has set that
                self._loop.run_forever()
            while call and not call.done():
                self._loop.run_forever()
        except BaseException:
            self._client._router.restart()
            raise
        finally:
            self._driven = None
            self._driver.release()
            if self._waits or self._clocks:
                self._kick.set()  # they have seen that the lock was held

    def _left(self, call: _Wait) -> None:
        """Notes that a call does not wait any more, and has the loop stop if it runs for that."""
        self._waits.discard(call)
        if self._driver.locked() and (call is self._driven or not (self._driven or self._waits or self._clocks)):
            self._loop.stop()

    def _keep(self) -> None:
        calls = -1
        while not self._closed:
            kicked = self._kick.wait(_IDLE)
            self._kick.clear()
            idle, calls = calls == self._calls, self._calls
            if (kicked or idle) and self._driver.acquire(blocking=False):
                self._drive(None)

    def _drain(self) -> None:
        while self._inbox:
            call, begin = self._inbox.popleft()
            try:
                if self._closed:
                    raise ClosedError("the client was closed")
                begin(call)
            except Exception as error:
                if not call.done():
                    call.set_exception(error)


class Generator:
    """:class:`isotone.Generator` for threads."""

    def __init__(self, client: Client, inner: generator.Generator) -> None:
        self._client = client
        self._inner = inner

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def worker(self) -> int:
        """The current worker."""
        return self._inner.worker

    @property
    def layout(self) -> Layout:
        """The layout of the IDs, which is the cluster's."""
        return self._inner.layout

    def take(self, count: int = 1) -> list[int]:
        """Returns the next IDs without waiting, or raises; then none is used up."""
        return self._inner.take(count)

    def next(self, *, timeout: float | None = None) -> int:
        """Returns the next ID. It waits while there can be none."""
        return self.next_n(1, timeout=timeout)[0]

    def next_n(self, count: int, *, timeout: float | None = None) -> list[int]:
        """Returns the next IDs, which are consecutive. It waits while there can be none."""
        try:
            return self._inner.take(count)  # in this thread
        except Error as error:
            if error.code not in ("overloaded", "clock"):
                raise
        return self._client._run(lambda: self._inner.next_n(count, timeout=timeout))

    def close(self) -> None:
        """Ends the generator and returns the rest of its lease. It takes at most a second."""
        with suppress(ClosedError):  # of the client: the lease ends by itself
            self._client._run(self._inner.close)


class Clock:
    """:class:`isotone.Clock` for threads."""

    def __init__(self, client: Client, timeout: float | None) -> None:
        self._client = client
        client._clocks.add(self)
        try:
            self._inner: clock.Clock = client._run(lambda: client._client.clock(timeout=timeout))
        except BaseException:
            client._clocks.discard(self)
            raise

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> Interval:
        """Returns what the cluster clock may show: see :meth:`isotone.Clock.now`."""
        return self._inner.now()

    def is_past(self, timestamp: Timestamp) -> bool:
        """Reports whether a timestamp is past for everyone: see :meth:`isotone.Clock.is_past`."""
        return self._inner.is_past(timestamp)

    def timestamp(self, *, timeout: float | None = DEFAULT) -> Timestamp:
        """Makes a timestamp. It waits only while no reading is valid."""
        return self.timestamps(1, timeout=timeout)[0]

    def timestamps(self, count: int, *, timeout: float | None = DEFAULT) -> list[Timestamp]:
        """Makes timestamps, 1 to 1,000,000: see :meth:`isotone.Clock.timestamps`."""
        made = self._inner._take(counted(count, BATCH_MAX))  # in this thread
        return made or self._client._run(lambda: self._inner.timestamps(count, timeout=timeout))

    def wait(self, timestamp: Timestamp, *, timeout: float | None = DEFAULT) -> None:
        """Waits until a timestamp is past for everyone: see :meth:`isotone.Clock.wait`."""
        left = self._inner._left(timestamp)
        if left is not None and left <= _NAP_MAX:
            time.sleep(left)  # in this thread
        if not self._inner.is_past(timestamp):
            self._client._run(lambda: self._inner.wait(timestamp, timeout=timeout))

    def close(self) -> None:
        """Ends the clock: waiting and later calls fail with ClosedError. Its connections are closed."""
        with suppress(ClosedError):  # of the client, and so is the clock
            self._client._run(self._inner.close)
        self._client._clocks.discard(self)
