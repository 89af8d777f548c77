"""Makes IDs in the process, under a lease of a worker from the cluster."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ._link import refused, within
from ._pace import PAUSE_MAX, REFUSED_PAUSE_MAX, pause, quota_pause
from ._resp import Grant, grant_of
from ._router import Refuses, readable
from ._search import MOVES_MAX, Use
from .errors import REPEATABLE, ClosedError, Error, InvalidArgumentError, MalformedError, Refusal
from .snowflake import Layout, Worker

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")

#: How long close tries to return the lease, in seconds.
RELEASE_TIMEOUT = 1.0
# How soon to try again, in seconds; until the lease changes for those that have none.
_WAITS = {"exhausted": 0.001, "lease_not_begun": 0.01, "clock_behind": 0.01, "lease_ended": math.inf}


@dataclass(frozen=True)
class GeneratorOptions:
    """What a generator may be told. The defaults are good ones."""

    #: Seconds. A killed process blocks its worker for that long. Without nodes there are IDs for two thirds of it.
    lease: float = 30.0
    #: The only worker to accept.
    worker: int | None = None
    #: The clock of the IDs, in unix milliseconds; None: the system's.
    now: Callable[[], int] | None = None
    #: Seconds that IDs may be ahead of the clock.
    ahead_max: float = 1.0

    def __post_init__(self) -> None:
        if not 0.1 <= self.lease <= 3600 or not 0 <= self.ahead_max <= 3600 or (self.worker or 0) < 0:
            raise InvalidArgumentError("generator: want a lease of 0.1 to 3600 s, a worker and ahead_max of 0 or more")


class Generator:
    """Makes the IDs of one worker, and renews its lease. See :meth:`Client.generator`.

    IDs never repeat, whatever clocks do, as two leases of a worker share no millisecond of IDs.
    """

    def __init__(self, client: Client, options: GeneratorOptions) -> None:
        self.options = options
        self._client = client
        self._now = options.now or (lambda: time.time_ns() // 1_000_000)
        self._session = self._granted = _new_session()  # _granted is that of the grant in use
        self._worker: Worker | None = None
        self._why: Exception | None = None  # of the latest attempt to renew
        self._behind = asyncio.Event()
        self._changed: asyncio.Future[None] = client._loop.create_future()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    async def _start(self, timeout: float | None) -> None:
        await self._lease(math.inf if timeout is None else timeout)
        self._keeper = self._client._router.spawn(self._keep())
        self._keeper.add_done_callback(lambda _: self._news())

    async def __aenter__(self) -> Generator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def worker(self) -> int:
        """The current worker. It changes if the lease is lost or revoked, or the clock goes back."""
        return self._current().worker

    @property
    def layout(self) -> Layout:
        """The layout of the IDs, which is the cluster's."""
        return self._current().layout

    @property
    def lease(self) -> tuple[int, int]:
        """The unix milliseconds that IDs may have, without the last."""
        return self._current().start, self._current().end

    def _current(self) -> Worker:
        assert self._worker
        return self._worker

    def take(self, count: int = 1) -> list[int]:
        """Returns the next IDs without waiting, or raises; then none is used up. It is safe for threads."""
        if self._closed or self._client.forked:  # the parent makes the same IDs
            raise ClosedError("the generator was closed, or was made before this process was forked")
        try:
            return self._current().take(count, self._now())
        except Error as error:
            if error.reason in ("clock_behind", "lease_not_begun") and self.options.worker is None:
                self._client._loop.call_soon_threadsafe(self._behind.set)
            raise

    async def next(self, *, timeout: float | None = None) -> int:
        """Returns the next ID. It waits while there can be none: without a lease, for instance."""
        return (await self.next_n(1, timeout=timeout))[0]

    async def next_n(self, count: int, *, timeout: float | None = None) -> list[int]:
        """Returns the next IDs, which are consecutive. It waits as :meth:`next` does."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            changed, worker = self._changed, self._worker
            try:
                return self.take(count)
            except Error as error:
                fixed = self.options.worker is not None and error.reason == "clock_behind"
                if error.reason not in _WAITS or fixed or error.reason == "":
                    raise
                wait, why = _WAITS[error.reason], error
            if worker is not self._worker:
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                late = self._client._late(None)
                raise type(late)(f"{late}; {why}; the latest renewal of the lease: {self._why or 'granted'}")
            wait = min(wait, left)
            await asyncio.wait([changed], timeout=None if wait == math.inf else wait)
            if self._client.closed:
                raise ClosedError("the client was closed")

    async def close(self) -> None:
        """Ends the generator and returns the rest of its lease. It takes at most a second."""
        if self._closed:
            return
        self._closed = True
        if self._keeper:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._worker and not self._client.closed:
            with suppress(Error):  # it ends by itself
                await self._release(self._granted, self._worker)

    async def _release(self, session: str, worker: Worker) -> None:
        numbers = [str(n) for n in (worker.worker, worker.start, worker.stop())]
        await self._to_leader(["WORKER", "RELEASE", session, *numbers], lambda reply: reply, "", RELEASE_TIMEOUT)

    async def _keep(self) -> None:
        """Renews the lease at each third of its length, or soon after a failure.

        If the clock went back it requests another one, in another session: in its own it would get the same.
        """
        third = self.options.lease / 3
        due, gave_up = time.monotonic() + third, -math.inf
        while True:
            with suppress(asyncio.TimeoutError):
                await within(max(due - time.monotonic(), 0), self._behind.wait())
            now = time.monotonic()
            if self._behind.is_set():
                self._behind.clear()
                # A clock that keeps jumping must not use up many workers. And a request that failed may have been
                # granted: it is repeated in its session.
                if self._session != self._granted or now - gave_up < min(third, REFUSED_PAUSE_MAX):
                    continue
                self._session, gave_up = _new_session(), now
            wait = third
            try:
                await self._lease(third)
            except Error as error:
                wait = min(
                    third,
                    PAUSE_MAX if error.code in (*REPEATABLE, "deadline_exceeded") else REFUSED_PAUSE_MAX,
                )
            due = time.monotonic() + wait

    async def _lease(self, timeout: float) -> None:
        """Requests a lease or its renewal, which is the same command, and uses it."""
        last = "no_worker" if self._worker and self.options.worker is None else ""
        command = ["WORKER", "LEASE", self._session, str(self._now()), str(round(self.options.lease * 1000))]
        if self.options.worker is not None:
            command += ["FIXED", str(self.options.worker)]
        try:
            await self._follow(await self._to_leader(command, self._new_worker, last, timeout))
            self._why = None
        except Error as error:
            self._why = error
            if last and error.code == last:  # a cluster grants a session nothing else while its revoked lease lasts
                self._session = _new_session()
            raise

    def _new_worker(self, reply: Any) -> Worker:
        grant: Grant = grant_of(reply)
        try:
            layout = Layout.parse(grant.layout, grant.epoch)
            return Worker(grant.worker, layout, (grant.start, grant.end), int(self.options.ahead_max * 1000))
        except InvalidArgumentError as error:
            raise MalformedError(f"a lease that cannot be: {error}") from None

    async def _follow(self, got: Worker) -> None:
        old, session = self._worker, self._granted
        self._granted = self._session
        if old and (old.worker, old.layout) == (got.worker, got.layout) and got.start <= old.end:
            old.extend(got.end)  # had there been another holder in between, it would begin later
            self._news()
            return
        self._worker = got
        self._news()
        if old:
            old.stop()
            if session != self._session:
                with suppress(Error):
                    await self._release(session, old)

    def _news(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)
        self._changed = self._client._loop.create_future()

    async def _to_leader(self, command: list[str], read: Callable[[Any], T], last: str, timeout: float) -> T:
        """Has the leader execute a command that may be repeated. A refusal with the code last ends it."""
        client, addr, moves, failures = self._client, "", 0, 0
        search, deadline = client._router.search, time.monotonic() + timeout
        while not client.closed:
            known = search.known()
            if not addr:
                turn = search.leader and failures % (len(known) + 1) == 0
                addr = search.leader if turn else known[failures % len(known)]
            left = max(deadline - time.monotonic(), 0.001)
            try:
                reply = await within(min(left, client.options.dial_timeout), self._attempt(addr, command))
                if not isinstance(reply, Refusal):
                    return read(reply)
                error: Exception = reply.error()
                forgotten = reply.code == "unauthorized" and client.options.credentials is not None
                if (reply.code not in REPEATABLE and not forgotten) or reply.code == last:
                    raise error
                wait = quota_pause(reply.retry_after, failures) if reply.kind == "quota" else 0
                leader = reply.leader
            except Refuses as refuses:
                raise refuses.why from None
            except (MalformedError, OSError, asyncio.TimeoutError, Error) as failure:
                if isinstance(failure, Error) and (failure.code not in REPEATABLE or failure.code == last):
                    raise
                error, wait, leader = readable(failure), 0, ""
            client._note(addr, error)
            if leader and moves < MOVES_MAX:
                addr, moves = leader, moves + 1
                continue
            addr, moves = "", 0
            wait = wait or pause(failures, PAUSE_MAX)
            failures += 1
            await asyncio.sleep(min(wait, max(deadline - time.monotonic(), 0)))
            if time.monotonic() >= deadline:
                quota = error if isinstance(error, Error) and error.code == "quota_exceeded" else None
                raise client._late(None, quota)
        raise ClosedError("the client was closed")

    async def _attempt(self, addr: str, command: list[str]) -> Any:
        router = self._client._router
        error: Exception | None = ConnectionError("it was given up")
        try:
            link, pong = await router.open(addr, Use.QUESTIONS, "PING")
            error = None
        except Exception as failure:
            error = failure
            raise
        finally:
            router._reported(addr, error)
        try:
            refused(pong)
            return await link.ask(command)[0]
        finally:
            link.end(ConnectionError("it is not needed any more"))


def _new_session() -> str:
    return f"{secrets.randbits(64) | 1:016x}"  # 0 means no session
