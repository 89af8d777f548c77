"""Calls share requests. Those that arrive while a request is under way share the next one.

A pool has the connections of one use, and queues: one for each form and read mode. A queue has at most one
request under way on each connection, so a call never joins one that was sent before it began (C25).
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count as count_from
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ._link import Link
from ._pace import PAUSE_MAX, Estimate, pause, quota_pause
from ._resp import IDS, TS, TS64, Read, read_answer, request
from ._search import Use
from .errors import Error, InternalError, OverloadedError, Refusal, RegressedError
from .timestamps import COUNT64_MAX, COUNT_MAX, Range, Range64, Timestamp, Timestamp64

if TYPE_CHECKING:
    from .client import Client

Call = asyncio.Future[Any]

#: The most IDs of one request.
ID_BATCH_MAX = 4096
#: How often waiting calls are looked at: so much later, in seconds, one with the usual timeout may fail.
MARK_INTERVAL = 0.01
#: The most calls with floors of their own that wait: each is a request.
ALONE_MAX = 1024

_COUNT_MAX = {TS: COUNT_MAX, TS64: COUNT64_MAX, IDS: ID_BATCH_MAX}
_new = tuple.__new__


class Queue:
    """The calls of one form and read mode that wait to be sent."""

    def __init__(self, pool: Pool, form: bytes, mode: str = "") -> None:
        self.pool = pool
        self.form = form
        self.mode = mode
        self.calls: list[Call] = []
        self.sizes: dict[Call, int] = {}  # of calls for ranges
        self.marked = 0  # how many of the calls have a deadline in the client's lane
        self.request_of_one = request(form, 1, mode)

    def take(self) -> Batch | None:
        """Returns the next request, None if nobody waits any more."""
        calls, self.calls, marked, self.marked = self.calls, [], self.marked, 0
        if all(call.done() for call in calls):  # stops at the first that waits
            self.sizes.clear()
            return None
        if not self.sizes and len(calls) <= _COUNT_MAX[self.form]:
            return Batch(self, calls, None, len(calls))
        calls = [call for call in calls if not call.done()]
        sizes = [self.sizes.get(call, 0) for call in calls]
        count = end = 0
        while end < len(calls) and count + (sizes[end] or 1) <= _COUNT_MAX[self.form]:
            count += sizes[end] or 1
            end += 1
        self.calls, self.marked = calls[end:], max(marked - end, 0)
        self.sizes = {call: size for call, size in zip(self.calls, sizes[end:], strict=True) if size}
        return Batch(self, calls[:end], sizes[:end], count)

    def put_back(self, batch: Batch) -> None:
        """Has the calls of a request wait again, before all others."""
        self.calls[:0] = batch.calls
        self.marked += len(batch.calls)
        if batch.sizes:
            self.sizes.update((c, n) for c, n in zip(batch.calls, batch.sizes, strict=True) if n)

    def make_room(self, most: int) -> None:
        """Removes the calls that have left, and raises OverloadedError if too many are left."""
        self.calls = [call for call in self.calls if not call.done()]
        self.marked = 0
        if len(self.calls) >= most:
            raise OverloadedError(f"{len(self.calls)} calls are waiting{self.pool.client._trouble()}")


class Batch:
    """One request, and the calls that it answers."""

    __slots__ = ("above", "calls", "count", "floor", "queue", "sent_at", "settled", "sizes")

    def __init__(
        self,
        queue: Queue,
        calls: list[Call],
        sizes: list[int] | None,
        count: int,
        above: Timestamp | None = None,
    ) -> None:
        self.queue = queue
        self.calls = calls
        self.sizes = sizes  # 0 for a call that is not for a range
        self.count = count
        self.above = above  # the floor of the only call
        self.floor = Timestamp()  # that of the client when the request was sent
        self.sent_at = 0.0
        self.settled = False

    def line(self, carries: bool) -> bytes:
        """Returns the request. It carries the floor until the connection has answered (C19)."""
        queue, floor = self.queue, self.above
        if queue.form != IDS and (carries or floor):
            floor = max(floor or self.floor, self.floor)
        if self.count == 1 and not floor:
            return queue.request_of_one
        return request(queue.form, self.count, queue.mode, floor)

    def read(self, data: bytes, at: int) -> Read[Any]:
        """Reads the answer."""
        return read_answer(self.queue.form, self.count, data, at)

    def answered(self, link: Link, value: Any) -> None:
        """Passes the answer on."""
        self.queue.pool.answered(link, self, value)

    def lost(self, link: Link, error: Exception) -> None:
        """Has the calls wait again: nobody has seen what an answer would have had."""
        self.queue.pool.retry(link, self, error)

    def place(self, value: Any, at: int) -> Timestamp:
        """Returns the place of the at-th timestamp of an answer in the order of all."""
        if self.queue.form == TS64:
            return Timestamp64(value + at).timestamp()
        return Timestamp(value.time, value.index + at)

    def deliver(self, value: Any) -> None:
        """Gives each call its numbers."""
        self.settled = True
        if self.sizes is None and self.queue.form == TS:
            pairs = zip(repeat(value[0]), count_from(value[1]), strict=False)
            for call, timestamp in zip(self.calls, map(_new, repeat(Timestamp), pairs), strict=False):
                if not call.done():
                    call.set_result(timestamp)
            return
        at = 0
        for call, size in zip(self.calls, self.sizes or repeat(0), strict=False):
            if not call.done():
                call.set_result(self._part(value, at, size))
            at += size or 1

    def _part(self, value: Any, at: int, size: int) -> Any:
        if self.queue.form == IDS:
            return value[at : at + size] if size else value[at]
        if self.queue.form == TS64:
            first64 = Timestamp64(value + at)
            return Range64(first64, size) if size else first64
        first = Timestamp(value.time, value.index + at)
        return Range(first, size) if size else first

    def fail(self, error: Error) -> None:
        """Fails all calls."""
        self.settled = True
        for call in self.calls:
            if not call.done():
                call.set_exception(type(error)(str(error), error.reason))


class Pool:
    """The connections of one use, and the calls that wait for them."""

    def __init__(self, client: Client, use: Use) -> None:
        self.client = client
        self.use = use
        self.links: list[Link] = []
        self.queues: list[Queue] = []
        self.alone: deque[Batch] = deque()
        self.rtt = Estimate()
        self.recent = 0  # calls of the latest request: more than one suggests that others are about to call
        self.sent = 0
        self.refused: Error | None = None  # there can be no connection: nodes refuse this client
        self.quota: Error | None = None  # the latest refusal, if that was because of a quota

    def begin(self, queue: Queue) -> None:
        """Has the first call of a queue sent: at once, or together with those that are about to be made."""
        link = self._free(queue)
        if link is None:
            if self.refused:
                self.fail(self.refused)
            self.client._router.wake_at(self.client._time() + MARK_INTERVAL)
        elif self.recent > 1:
            self.client._loop.call_soon(self.dispatch)
        else:
            self._send_from(queue, link)

    def _free(self, queue: Queue) -> Link | None:
        for link in self.links:
            if not link.paused and queue not in link.busy:
                return link
        return None

    def dispatch(self) -> None:
        """Sends what waits, as far as connections are free."""
        for queue in self.queues:
            while queue.calls and (link := self._free(queue)):
                self._send_from(queue, link)
        while self.alone and self.links and not self.links[0].paused:
            batch = self.alone.popleft()
            if not batch.calls[0].done():
                self._send(self.links[0], batch)

    def _send_from(self, queue: Queue, link: Link) -> None:
        batch = queue.take()
        if batch:
            link.busy.add(queue)
            self.recent = len(batch.calls)
            self._send(link, batch)
            self.client._mark(batch.calls, self, batch)

    def _send(self, link: Link, batch: Batch) -> None:
        assert link.transport
        client = self.client
        batch.floor = client._floor
        batch.sent_at = now = client._time()
        if not link.expected:
            link.since = now
        if len(self.links) > 1:  # in turn
            self.links.remove(link)
            self.links.append(link)
        link.expected.append(batch)
        link.transport.write(batch.line(not link.answered))
        self.sent += 1
        client._router.wake_at(now + self.rtt.timeout)

    def answered(self, link: Link, batch: Batch, value: Any) -> None:
        """Takes the answer to a request."""
        if not batch.above:
            link.busy.discard(batch.queue)
        client = self.client
        link.since = now = client._time()
        if isinstance(value, Refusal):
            self._refused(link, batch, value)
            return
        if batch.queue.form != IDS:
            first, last = batch.place(value, 0), batch.place(value, batch.count - 1)
            if first <= batch.floor:
                error = InternalError(f"{link.addr} issued {first} for a request that was sent after {batch.floor}")
                batch.fail(error)
                client._router.reject(link.addr, error)
                link.end(error)
                return
            client._floor = max(client._floor, last)
            if batch.above and first <= batch.above:
                batch.fail(RegressedError(f"{link.addr} issued {first}, not above the floor {batch.above}"))
        link.answered, link.pauses, self.quota = True, 0, None
        self.rtt.add(now - batch.sent_at)
        client._tell(client.options.hooks.answered, link.addr, len(batch.calls), batch.count, now - batch.sent_at)
        batch.deliver(value)
        client._prune()
        if client._router.suspicious:
            client._router.recovered(link)
        self._go_on(len(batch.calls) > 1)

    def _go_on(self, several: bool) -> None:
        if several and not self.alone:
            if any(queue.calls for queue in self.queues):
                self.client._loop.call_soon(self.dispatch)  # with those who have just been answered
        else:
            self.dispatch()

    def _refused(self, link: Link, batch: Batch, refusal: Refusal) -> None:
        error = refusal.error()
        known = link.answered or self.client.options.credentials
        if refusal.code == "unauthorized" and known:
            self.retry(link, batch, error)  # the node has forgotten who this is: see C10
            link.end(error)
            return
        if refusal.kind in ("final", "unauthorized"):
            link.pauses = 0
            batch.fail(error)
            self.dispatch()
            return
        self.retry(link, batch, error)
        self.quota = error if refusal.kind == "quota" else None
        if self.quota:
            self._pause(link, quota_pause(refusal.retry_after, link.pauses))
        elif refusal.leader not in ("", link.addr) and self.use is not Use.IDS:
            link.paused = link.retired = True
            self.client._router.moved(link, refusal.leader)
        else:
            if self.use is not Use.IDS:
                self.client._router.suspect(link.addr)
            self._pause(link, pause(link.pauses, PAUSE_MAX))
            self.dispatch()  # on another connection

    def _pause(self, link: Link, seconds: float) -> None:
        if link.paused:
            return
        link.paused = True
        link.pauses += 1
        self.client._loop.call_later(seconds, self._resume, link)

    def _resume(self, link: Link) -> None:
        link.paused = link.retired
        self.dispatch()

    def retry(self, link: Link, batch: Batch, error: Exception) -> None:
        """Has a request sent again."""
        if batch.above:
            self.alone.appendleft(batch)
        else:
            batch.queue.put_back(batch)
        self.client._router.retried(link.addr, error)

    def fail(self, error: Error) -> None:
        """Fails the calls that wait."""
        batches = list(self.alone)
        self.alone.clear()
        for queue in self.queues:
            while batch := queue.take():
                batches.append(batch)
        for batch in batches:
            batch.fail(error)
