"""The client for asyncio."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import math
import os
import ssl
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, cast

from ._address import valid_addr
from ._args import DEFAULT, checked, counted, is_timeout
from ._pool import ALONE_MAX, ID_BATCH_MAX, MARK_INTERVAL, Batch, Call, Pool, Queue
from ._resp import IDS, MEMBERS_MAX, TS, TS64, valid_cluster
from ._router import Router, readable
from ._search import Use
from .clock import Clock
from .errors import (
    ClosedError,
    DeadlineExceededError,
    Error,
    InvalidArgumentError,
    OverloadedError,
    QuotaExceededError,
    WrongClusterError,
    failure,
)
from .generator import Generator, GeneratorOptions
from .timestamps import COUNT64_MAX, COUNT_MAX, Range, Range64, Timestamp, Timestamp64

Mode = Literal["default", "quorum", "lease"]
C = TypeVar("C", bound="Client")

#: The most IDs that one call may ask for.
IDS_MAX = 1 << 16
#: How far ahead a floor is, in nanoseconds, for which a leader may hold its request on a connection of its own.
_AHEAD_MIN = 100_000_000
_TROUBLES_MAX = 8
_NOT_OPEN = "the client was closed, was made before this process was forked, or has not been started"


@dataclass(frozen=True)
class Credentials:
    """A name, and the secret that nodes know it by, which is not printed."""

    name: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        letters = self.name.replace(".", "").replace("_", "").replace("-", "")
        if not 0 < len(self.name) <= 64 or (letters and not (letters.isascii() and letters.isalnum())):
            raise InvalidArgumentError("credentials: want a name of 1 to 64 letters, digits, '.', '_' and '-'")
        if not 0 < len(self.secret.encode()) <= 256:
            raise InvalidArgumentError(f"credentials of {self.name!r}: want a secret of 1 to 256 bytes")


@dataclass(frozen=True)
class Hooks:
    """Functions that are called on events, for metrics and traces. They must return at once."""

    #: A request was answered: address, calls that share it, timestamps or IDs, seconds.
    answered: Callable[[str, int, int, float], None] | None = None
    #: A request has to be sent again: address and why.
    retried: Callable[[str, Exception], None] | None = None
    #: An answer is not used, as it comes from another cluster or breaks the order. Alert on InternalError.
    rejected: Callable[[str, Error], None] | None = None
    #: There is a connection to a new leader.
    leader: Callable[[str], None] | None = None


@dataclass(frozen=True)
class Options:
    """What a client may be told. The defaults are good ones."""

    #: The ID of the cluster; without it, that of the first node that reports one.
    cluster: str = ""
    #: The largest timestamp that is known from before: all are above it.
    floor: Timestamp = Timestamp()  # noqa: RUF009 - it is immutable
    #: The read mode of calls that name none. ``default`` leaves it to the nodes.
    mode: Mode = "default"
    #: Seconds after which a call fails that names no timeout; None: never.
    timeout: float | None = 10.0
    #: The most calls that wait, for each form and read mode.
    queue_max: int = 1 << 16
    #: Connections to the leader, each with a request of each form and read mode under way.
    connections: int = 1
    #: Seconds that opening a connection may take.
    dial_timeout: float = 1.0
    #: Has every connection use TLS; see :func:`ssl.create_default_context`.
    tls: ssl.SSLContext | None = None
    #: The name in the certificates of nodes, if it is not the host of their address.
    server_name: str = ""
    #: Or a function that is called for each connection, so that they can change, and that may be a coroutine.
    credentials: Credentials | Callable[[], Credentials | Awaitable[Credentials]] | None = None
    #: Has the client begin without waiting for a leader.
    lazy: bool = False
    hooks: Hooks = Hooks()
    #: Set from the arguments of the client.
    addrs: tuple[str, ...] = field(default=(), repr=False)

    def check(self) -> None:
        """Raises InvalidArgumentError with everything that is wrong."""
        faults = []
        if not 0 < len(self.addrs) <= MEMBERS_MAX:
            faults.append(f"want 1 to {MEMBERS_MAX} addresses")
        faults += [f"address {addr!r:.100}: want host:port" for addr in self.addrs if not valid_addr(addr)]
        if self.cluster and not valid_cluster(self.cluster):
            faults.append("cluster: want 16 hexadecimal digits in lower case")
        if not isinstance(self.floor, Timestamp):
            faults.append("floor: want a Timestamp; see Timestamp.from_hex, from_bytes, and Timestamp64.timestamp")
        if not is_timeout(self.timeout):
            faults.append("timeout: want seconds, or None")
        if self.mode not in ("default", "quorum", "lease"):
            faults.append("mode: want default, quorum or lease")
        if not 0 < self.queue_max <= 1 << 22:
            faults.append("queue_max: want 1 to 4194304")
        if not 1 <= self.connections <= 64:
            faults.append("connections: want 1 to 64")
        if self.dial_timeout <= 0:
            faults.append("dial_timeout: want more than 0")
        if faults:
            raise InvalidArgumentError("client options: " + "; ".join(faults))

    async def login(self) -> Credentials:
        """Returns the credentials of a connection."""
        try:
            got = self.credentials() if callable(self.credentials) else self.credentials
            if inspect.isawaitable(got):
                got = await got
        except Exception as error:
            raise ConnectionError(f"the function for credentials failed: {error!r}") from error
        if not isinstance(got, Credentials):
            raise InvalidArgumentError(f"credentials: want Credentials, got {type(got).__name__}")
        return got


class Client:
    """Requests timestamps and IDs from a cluster. Make one for a process and use it in one event loop.

    >>> async with Client("10.0.0.1:8080", "10.0.0.2:8080") as client:
    ...     timestamp = await client.timestamp()

    One address that is reached is enough: the client learns the others. Calls wait until they are answered,
    across all failures of the cluster, or their timeout is over. Calls return futures: a request is under way
    as soon as they are made.
    """

    def __init__(self, *addrs: str, options: Options | None = None) -> None:
        self.options = replace(options or Options(), addrs=addrs)
        self.options.check()
        #: The ID of the cluster, ``""`` while it is unknown. It never changes after that.
        self.cluster = self.options.cluster
        self.closed = False
        self.forked = False  # and therefore closed
        self._floor = self.options.floor
        self._mode = self.options.mode
        self._queue_max = 0  # until it is started, and after it is closed
        self._troubles: dict[str, tuple[Exception, int]] = {}
        self._foreign: Error | None = None
        # Deadlines: of calls with the usual timeout, many at a time, and of others.
        self._lane: deque[tuple[float, list[Call], Batch | None, Pool]] = deque()
        self._heap: list[tuple[float, int, Call, Pool]] = []
        self._special: set[Call] = set()  # the others, and those that may wait for ever
        self._calls = 0
        self._ready: asyncio.Future[Error | None] | None = None
        self._router = Router(self)
        self._queues: dict[tuple[Use, bytes, str], Queue] = {}
        uses = ((Use.STAMPS, TS), (Use.STAMPS, TS64), (Use.AHEAD, TS), (Use.AHEAD, TS64), (Use.IDS, IDS))
        for use, form in uses:
            for mode in ("default", "quorum", "lease") if form != IDS else ("default",):
                queue = Queue(self._router.pools[use], form, "" if mode == "default" else mode)
                self._queues[use, form, mode] = queue
                queue.pool.queues.append(queue)
        self._usual = self._queues[Use.STAMPS, TS, self._mode]
        _clients.add(self)

    async def start(self, timeout: float | None = None) -> None:
        """Begins, and waits until a leader is connected unless ``options.lazy``. ``async with`` calls it."""
        if self.closed:
            raise ClosedError("the client was closed")
        if not self._ready:
            self._loop = asyncio.get_running_loop()
            self._time = self._loop.time
            self._queue_max = self.options.queue_max
            self._ready = self._loop.create_future()
            self._router.poke()
        if self.options.lazy:
            return
        try:
            timeout = self.options.timeout if timeout is None else timeout
            await asyncio.wait([self._ready], timeout=timeout)
            if why := self._ready.result() if self._ready.done() else self._late(self._usual.pool):
                raise why
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the client: its calls fail with ClosedError, and all connections are closed."""
        if not self.closed:
            self.closed = True
            self._queue_max = 0
            if self._ready:
                for pool in self._router.pools.values():
                    for link in list(pool.links):
                        link.end(ConnectionError("the client was closed"))
                    pool.fail(ClosedError("the client was closed"))
                self._led(ClosedError("the client was closed"))
                await self._router.close()

    async def __aenter__(self: C) -> C:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def floor(self) -> Timestamp:
        """The largest timestamp that this client has received, of both forms. Store it for ``options.floor``."""
        return self._floor

    def timestamp(
        self, *, mode: Mode | None = None, above: Timestamp | None = None, timeout: float | None = DEFAULT
    ) -> asyncio.Future[Timestamp]:
        """Requests a timestamp larger than all that any client had received when the call began.

        ``above`` is a floor that this client has not received itself; such a call is a request of its own.
        """
        if timeout is DEFAULT and mode is None and above is None:
            calls = self._usual.calls
            if len(calls) < self._queue_max:
                call: asyncio.Future[Timestamp] = asyncio.Future(loop=self._loop)
                calls.append(call)
                if len(calls) == 1:
                    self._usual.pool.begin(self._usual)
                return call
        return self._stamps(TS, 0, mode, above, timeout)

    def timestamps(
        self,
        count: int,
        *,
        mode: Mode | None = None,
        above: Timestamp | None = None,
        timeout: float | None = DEFAULT,
    ) -> asyncio.Future[Range]:
        """Requests count consecutive timestamps, 1 to 2**32."""
        return self._stamps(TS, counted(count, COUNT_MAX), mode, above, timeout)

    def timestamp64(
        self, *, mode: Mode | None = None, above: Timestamp | None = None, timeout: float | None = DEFAULT
    ) -> asyncio.Future[Timestamp64]:
        """Requests a timestamp of 64 bits. Both forms have one order."""
        return self._stamps(TS64, 0, mode, above, timeout)

    def timestamps64(
        self,
        count: int,
        *,
        mode: Mode | None = None,
        above: Timestamp | None = None,
        timeout: float | None = DEFAULT,
    ) -> asyncio.Future[Range64]:
        """Requests count consecutive timestamps of 64 bits, 1 to 2**18."""
        return self._stamps(TS64, counted(count, COUNT64_MAX), mode, above, timeout)

    def id(self, *, timeout: float | None = DEFAULT) -> asyncio.Future[int]:
        """Requests an ID from any member."""
        return self._join(self._id_queue(), 0, timeout)

    async def ids(self, count: int, *, timeout: float | None = DEFAULT) -> list[int]:
        """Requests count IDs, 1 to 65,536, possibly from several members."""
        counted(count, IDS_MAX)
        timeout = self.options.timeout if timeout is DEFAULT else timeout
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ids: list[int] = []
        while len(ids) < count:
            left = None if timeout is None else deadline - time.monotonic()
            part = min(count - len(ids), ID_BATCH_MAX)
            ids += cast("list[int]", await self._join(self._id_queue(), part, left))
        return ids

    async def generator(self, options: GeneratorOptions | None = None, *, timeout: float | None = DEFAULT) -> Generator:
        """Leases a worker, and returns a generator of its IDs. Close it before the client."""
        generator = Generator(self, options or GeneratorOptions())
        await generator._start(self.options.timeout if timeout is DEFAULT else timeout)
        return generator

    async def clock(self, *, timeout: float | None = DEFAULT) -> Clock:
        """Returns a cluster clock of this process, once a reading of it is valid. Close it before the client."""
        self._check_open()
        clock = Clock(self)
        await clock._start(timeout)
        return clock

    # Calls.

    def _join(self, queue: Queue, size: int, timeout: float | None, call: Call | None = None) -> Call:
        if len(queue.calls) >= self._queue_max:
            self._check_open()
            queue.make_room(self._queue_max)
        call = call or asyncio.Future(loop=self._loop)
        self._limit(call, queue.pool, timeout)
        if size:
            queue.sizes[call] = size
        queue.calls.append(call)
        if len(queue.calls) == 1:
            queue.pool.begin(queue)
        return call

    def _stamps(
        self,
        form: bytes,
        size: int,
        mode: Mode | None,
        above: Timestamp | None,
        timeout: float | None,
        call: Call | None = None,
    ) -> Call:
        self._check_open()
        mode = mode or self._mode
        if mode not in ("default", "quorum", "lease"):
            raise InvalidArgumentError(f"unknown read mode {mode!r}")
        if above is None:
            return self._join(self._queues[Use.STAMPS, form, mode], size, timeout, call)
        ahead = checked(above).time > max(self._floor.time, time.time_ns()) + _AHEAD_MIN
        queue = self._queues[Use.AHEAD if ahead else Use.STAMPS, form, mode]
        return self._alone(Batch(queue, [call or asyncio.Future(loop=self._loop)], [size], size or 1, above), timeout)

    def _alone(self, batch: Batch, timeout: float | None) -> Call:
        """Has a call with a floor of its own sent."""
        pool, call = batch.queue.pool, batch.calls[0]
        if len(pool.alone) >= ALONE_MAX:
            pool.alone = deque(other for other in pool.alone if not other.calls[0].done())
            if len(pool.alone) >= ALONE_MAX:
                raise OverloadedError(f"{ALONE_MAX} calls with floors are waiting{self._trouble()}")
        self._limit(call, pool, self.options.timeout if timeout is DEFAULT else timeout)
        pool.alone.append(batch)
        self._want(pool.use)
        if pool.refused and not pool.links:
            pool.fail(pool.refused)
        else:
            pool.dispatch()
        return call

    def _id_queue(self) -> Queue:
        self._check_open()
        self._want(Use.IDS)
        return self._queues[Use.IDS, IDS, "default"]

    def _want(self, use: Use) -> None:
        if use not in self._router.wanted:
            self._router.wanted.add(use)
            self._router.poke()

    def _check_open(self) -> None:
        if self.closed or not self._ready:
            raise ClosedError(_NOT_OPEN)

    # Deadlines: one timer for the nearest.

    def _limit(self, call: Call, pool: Pool, timeout: float | None) -> None:
        """Takes the deadline of a call, unless it has the usual one: see _mark."""
        if timeout is DEFAULT:
            return
        if not is_timeout(timeout):
            raise InvalidArgumentError(f"timeout {timeout!r:.40}: want seconds, or None")
        self._special.add(call)
        call.add_done_callback(self._special.discard)
        if timeout is not None:
            at = self._time() + timeout
            self._calls += 1
            heapq.heappush(self._heap, (at, self._calls, call, pool))
            self._router.wake_at(at)

    def _mark(self, calls: list[Call], pool: Pool, batch: Batch | None = None) -> None:
        """Takes the deadline of calls with the usual timeout: that of a call that would begin now.

        So deadlines cost nothing for each call. A call is marked when it is sent, or, while it waits, by a step.
        """
        if self.options.timeout is not None:
            at = self._time() + self.options.timeout
            self._lane.append((at, calls, batch, pool))
            self._router.wake_at(at)

    def _prune(self) -> None:
        lane, heap = self._lane, self._heap
        while lane and ((lane[0][2] and lane[0][2].settled) or all(call.done() for call in lane[0][1])):
            lane.popleft()
        while heap and heap[0][2].done():
            heapq.heappop(heap)

    def _expire(self, now: float) -> float:
        """Fails the calls whose deadline has come, and returns when to look again."""
        due = math.inf
        for queue in self._queues.values():
            if queue.calls:
                due = now + MARK_INTERVAL
            if len(queue.calls) > queue.marked:
                self._mark(queue.calls[queue.marked :], queue.pool)
                queue.marked = len(queue.calls)
        self._prune()
        while self._lane and self._lane[0][0] <= now:
            _, calls, _, pool = self._lane.popleft()
            self._overdue([call for call in calls if call not in self._special], pool)
        while self._heap and self._heap[0][0] <= now:
            _, _, call, pool = heapq.heappop(self._heap)
            self._overdue([call], pool)
        return min([due, *(deadlines[0][0] for deadlines in (self._lane, self._heap) if deadlines)])

    def _overdue(self, calls: list[Call], pool: Pool) -> None:
        error: Error | None = None
        for call in calls:
            if not call.done():
                error = error or self._late(pool)
                call.set_exception(type(error)(str(error)))

    def _late(self, pool: Pool | None, quota: Error | None = None) -> Error:
        """Returns the error of a call whose deadline has come (C48)."""
        if quota := quota or (pool.quota if pool else None):
            return QuotaExceededError(f"no answer in time: {quota}")
        if self._foreign:
            return WrongClusterError(f"no other node answers in time: {self._foreign}")
        return DeadlineExceededError(f"no answer in time{self._trouble()}")

    def _note(self, addr: str, error: Exception) -> None:
        """Records the latest failure of a node, for the errors of calls."""
        if self.closed:
            return
        _, times = self._troubles.pop(addr, (error, 0))
        self._troubles[addr] = readable(error), times + 1
        if len(self._troubles) > _TROUBLES_MAX:
            del self._troubles[next(iter(self._troubles))]

    def _trouble(self) -> str:
        parts = []
        for addr, (error, times) in self._troubles.items():
            parts.append(failure(addr, error, times))
        unanswered = {link.addr for link in self._router.links if link.expected or not link.transport}
        silent = unanswered - set(self._troubles)
        parts += [f"; {addr}: it has not answered yet" for addr in sorted(silent)]
        return "".join(parts)

    def _tell(self, hook: Callable[..., None] | None, *args: object) -> None:
        """Calls a hook. If it fails, only the handler of the loop hears of it."""
        if hook:
            try:
                hook(*args)
            except Exception as error:
                self._loop.call_exception_handler({"message": "a hook of the client failed", "exception": error})

    def _led(self, why: Error | None) -> None:
        if self._ready and not self._ready.done():
            self._ready.set_result(why)


# A forked process shares the connections of its parent, so the answers to the one would reach the other.
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forked() -> None:
    for client in _clients:
        client.closed = client.forked = True
        client._queue_max = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
