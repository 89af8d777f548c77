"""A connection to a node: requests go out, and answers come back in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

from ._resp import Read, encode, read_reply
from ._search import Use
from .errors import MalformedError, Refusal

T = TypeVar("T")

#: Seconds that closing connections may take.
CLOSE_MAX = 1.0


class Request(Protocol):
    """What waits for an answer."""

    def read(self, data: bytes, at: int) -> Read[Any]:
        """Reads the answer: see _resp."""

    def answered(self, link: Link, value: Any) -> None:
        """Takes the answer, or a Refusal."""

    def lost(self, link: Link, error: Exception) -> None:
        """Notes that there will be none."""


class Question:
    """A request that one coroutine awaits."""

    def __init__(self, answer: asyncio.Future[Any]) -> None:
        self.answer = answer

    read = staticmethod(read_reply)

    def answered(self, _link: Link, value: Any) -> None:
        """Passes the answer on."""
        if not self.answer.done():
            self.answer.set_result(value)

    def lost(self, _link: Link, error: Exception) -> None:
        """Fails the question."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # nobody may be waiting any more


class Link(asyncio.Protocol):
    """A connection. When it ends, for whatever reason, ``ended`` is called once, after all requests are lost."""

    def __init__(self, addr: str, use: Use, ended: Callable[[Link, Exception], None]) -> None:
        self.addr = addr
        self.use = use
        self.transport: asyncio.Transport | None = None
        self.expected: deque[Request] = deque()
        self.busy: set[Hashable] = set()  # the queues that have a request under way
        self.since = 0.0  # the oldest request under way was sent, or is the next to be answered, since then
        self.answered = False  # a request of a pool, at least once
        self.paused = False  # nothing is sent
        self.retired = False  # it is about to be closed
        self.pauses = 0  # in a row
        self.error: Exception | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = ended
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self.transport = cast(asyncio.Transport, transport)
        if self.error:  # it was given up meanwhile
            self.transport.abort()

    def ask(self, *commands: Sequence[str]) -> list[asyncio.Future[Any]]:
        """Sends commands together, and returns their answers."""
        assert self.transport
        loop = asyncio.get_running_loop()
        questions = [Question(loop.create_future()) for _ in commands]
        self.expected.extend(questions)
        self.transport.write(b"".join(encode(*command) for command in commands))
        if self.error:
            for question in questions:
                question.lost(self, self.error)
        return [question.answer for question in questions]

    def data_received(self, data: bytes) -> None:
        """Reads answers."""
        if self._rest:
            data = self._rest + data
        at = 0
        try:
            while at < len(data) and not self.error:
                if not self.expected:
                    raise MalformedError("an answer without a request")
                got = self.expected[0].read(data, at)
                if got is None:
                    break
                if got[1] < len(data) and len(self.expected) == 1:
                    raise MalformedError("more than one answer")  # it would answer the next request
                at = got[1]
                self.expected.popleft().answered(self, got[0])
        except MalformedError as error:
            self.end(error)
        self._rest = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        """Ends."""
        self.end(error or ConnectionError("the connection was closed"))
        if not self.gone.done():
            self.gone.set_result(None)

    def end(self, error: Exception) -> None:
        """Closes the connection. Its requests are lost."""
        if self.error:
            return
        self.error = error
        self.paused = self.retired = True
        if self.transport:
            self.transport.abort()
        lost, self.expected = self.expected, deque()
        for request in lost:
            request.lost(self, error)
        self._ended(self, error)


async def closed(links: Iterable[Link]) -> None:
    """Waits until connections that have ended are closed: a second at most, as an interrupt may have hit the notice."""
    if gone := [link.gone for link in links]:
        await asyncio.wait(gone, timeout=CLOSE_MAX)


async def within(seconds: float, work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Does what asyncio.wait_for does. That forgets, up to Python 3.11, that it was canceled when the work has just
    ended, so what is to end would go on."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody else looks at it if this was canceled
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


def refused(value: Any) -> Any:
    """Raises the error of a refusal, and returns anything else."""
    if isinstance(value, Refusal):
        raise value.error()
    return value
