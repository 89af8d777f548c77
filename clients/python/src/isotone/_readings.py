"""Keeps what is known of the cluster clock up to date: asks nodes for readings.

It asks the usual node, several times within the length of a limit. When that fails, has no valid reading or is
silent for longer than usual, it asks all nodes at once, and the first that has one is the usual node from then on.
Now and then it asks another one, and prefers that if its readings are narrower.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from . import _pace
from ._interval import Estimate, Instant, Rate, Reading
from ._link import Link, Question, closed, within
from ._pace import EAGER, EAGER_PAUSE_MAX, PAUSE_MAX, REFUSED_PAUSE_MAX, pause, quota_pause
from ._resp import Read, encode, read_reply
from ._router import Refuses, readable
from ._search import Use
from ._steady import steady
from .errors import (
    REPEATABLE,
    ClockError,
    ClosedError,
    Error,
    MalformedError,
    NoLeaderError,
    Refusal,
    WrongClusterError,
    failure,
)

if TYPE_CHECKING:
    from .client import Client

#: Seconds between two questions: while the length of limits is unknown, and at least and at most when it is known.
PERIOD_INITIAL = 0.025
PERIOD_MIN = 0.005
PERIOD_MAX = 0.25
#: How many questions are asked within the length of a limit.
QUESTIONS_PER_LIMIT = 4
#: How often another node than the usual one is asked, and the leader for the members.
PROBE_INTERVAL = 10.0
#: Bounds the answers to one question, of which all but the last are meant for others.
ANSWERS_MAX = 16

_BAD_RATE = ClockError("the steady clock of this process, or that of the leader, has a wrong rate")


class Known(NamedTuple):
    """What is known. It is replaced as a whole, so any thread may load it."""

    estimate: Estimate = Estimate()
    why: Error | None = None  # another reading does not help for now


class Inquiry(Question):
    """A question that was sent for a reading. Its answer is the first with the same nonce."""

    def __init__(self, link: Link) -> None:
        assert link.transport
        super().__init__(asyncio.get_running_loop().create_future())
        self.nonce = secrets.randbits(64)
        self.received = Instant(0, 0)
        link.expected.append(self)
        self.sent = steady()
        link.transport.write(encode("INTERVAL", str(self.nonce)))

    def read(self, data: bytes, at: int) -> Read[Reading | Refusal]:
        """Reads the answer, and skips others."""
        for _ in range(ANSWERS_MAX):
            got = read_reply(data, at)
            if got is None or isinstance(got[0], Refusal):
                return got
            reading, at = Reading.decode(got[0]), got[1]
            if reading.nonce == self.nonce:
                return reading, at
        raise MalformedError(f"{ANSWERS_MAX} answers to other questions")

    def answered(self, link: Link, value: Reading | Refusal) -> None:
        """Passes the answer on."""
        self.received = steady()
        super().answered(link, value)


class Source:
    """A node that is asked for readings."""

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.link: Link | None = None  # kept for the next question, unless it has ended
        self.task: asyncio.Task[None] | None = None  # the question under way
        self.asked = 0.0
        self.rtt = _pace.Estimate(PERIOD_MIN)
        self.width = 0.0  # of the bounds that readings give, smoothed
        self.error: Exception | None = None  # the latest, since the latest reading
        self.refuses = False  # and the error is why
        self.failures = 0  # in a row
        self.retry_at = 0.0

    def drop(self) -> None:
        """Closes the connection."""
        if self.link:
            self.link.end(ConnectionError("it is not needed any more"))


class Readings:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self.known = Known()
        self.changed: asyncio.Future[None] = client._loop.create_future()  # done when known is replaced
        self._client = client
        self._time = client._loop.time
        self._estimate = Estimate()
        self._rate = Rate()
        self._refused: Error | None = None  # all nodes refuse this client
        self._sources: dict[str, Source] = {}
        self._usual: Source | None = None  # None: all are asked
        self._period = PERIOD_INITIAL
        self._due = 0.0  # the next question to the usual node
        self._asked = 0.0  # the latest question
        self._begun = self._time()  # asking all
        self._rounds = 0  # of asking all
        self._all_at = 0.0  # the next one
        self._probe_at = self._begun + PROBE_INTERVAL
        self._woken: asyncio.Future[None] = client._loop.create_future()  # done when there may be something to do

    async def run(self) -> None:
        """Asks until it is canceled. Then all connections are closed."""
        try:
            while True:
                self._woken = self._client._loop.create_future()
                wait = self._step(self._time()) - self._time()
                await asyncio.wait([self._woken], timeout=max(wait, 0.0))
        finally:
            sources = self._sources.values()
            tasks = [source.task for source in sources if source.task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for source in sources:
                source.drop()
            await closed(source.link for source in sources if source.link)

    def end(self) -> None:
        """Tells all who wait that there will be no more readings."""
        self._publish(Known(Estimate(), ClosedError("the clock was closed")))

    def hurry(self) -> None:
        """Has the next question asked soon, because a call waits for it."""
        self._due = min(self._due, self._asked + PERIOD_MIN)
        self._wake()

    def trouble(self) -> str:
        """Returns a part of a message: the latest failure of each node."""
        parts = []
        for source in self._sources.values():
            if source.error:
                parts.append(failure(source.addr, source.error, source.failures))
            elif source.task:
                parts.append(f"; {source.addr}: it has not answered yet")
        return "".join(parts)

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    # What is due.

    def _step(self, now: float) -> float:
        """Does what is due, and returns when to look again."""
        self._follow()
        if now >= self._probe_at:
            self._probe(now)
        usual = self._usual
        if usual and not usual.task and now >= self._due:
            self._due = now + self._period
            self._ask(usual, now)
        late = usual.asked + max(usual.rtt.timeout, self._period) if usual and usual.task else None
        if usual and late and now >= late:
            usual.error = TimeoutError("silent for longer than usual, when asked for the cluster clock")
            self._ask_others(now)
        if self._usual is None:
            return min(self._ask_all(now), self._probe_at)
        return min(late or self._due, self._probe_at)

    def _follow(self) -> None:
        """Has the sources be the members."""
        members = self._client._router.search.members()
        for addr in members:
            if addr not in self._sources:
                self._sources[addr] = Source(addr)
        for addr in [addr for addr in self._sources if addr not in members]:
            source = self._sources.pop(addr)
            if source.task:
                source.task.cancel()
            source.drop()
            if source is self._usual:
                self._ask_others(self._time())

    def _probe(self, now: float) -> None:
        self._probe_at = now + PROBE_INTERVAL
        self._client._router.refresh(now)
        others = [s for s in self._sources.values() if s is not self._usual and not s.task and now >= s.retry_at]
        if self._usual and others:
            self._ask(random.choice(others), now)

    def _ask_others(self, now: float) -> None:
        """Has all nodes be asked, and the leader be searched for: members may have changed."""
        self._usual = None
        self._begun, self._rounds, self._all_at = now, 0, 0.0
        router = self._client._router
        router.suspect(router.search.leader)

    def _ask_all(self, now: float) -> float:
        """Asks all nodes, unless the pause since the last time is not over, and returns when it is."""
        if now >= self._all_at:
            for source in self._sources.values():
                if not source.task and now >= source.retry_at:
                    self._ask(source, now)
            self._all_at = now + pause(self._rounds, self._pause_max(now))
            self._rounds += 1
        return self._all_at

    def _pause_max(self, now: float) -> float:
        return EAGER_PAUSE_MAX if self._usual is None and now - self._begun < EAGER else PAUSE_MAX

    def _ask(self, source: Source, now: float) -> None:
        source.asked = self._asked = now
        source.task = self._client._router.spawn(self._question(source))

    # One question.

    async def _question(self, source: Source) -> None:
        outcome: tuple[Inquiry, Reading | Refusal] | Exception
        try:
            outcome = await within(self._client.options.dial_timeout, self._sound(source))
        except Exception as error:
            outcome = readable(error)
        source.task = None
        if isinstance(outcome, Exception):
            self._failed(source, outcome)
        elif isinstance(outcome[1], Refusal):
            self._failed(source, outcome[1].error(), outcome[1].retry_after)
        else:
            self._took(source, outcome[0], outcome[1])
        self._wake()

    async def _sound(self, source: Source) -> tuple[Inquiry, Reading | Refusal]:
        """Asks on the kept connection or, if there is none or it has ended, on a new one."""
        if source.link and not source.link.error:
            with suppress(Exception):
                return await self._exchange(source.link)
        router = self._client._router
        try:
            source.link, pong = await router.open(source.addr, Use.QUESTIONS, "PING")
            if pong != b"PONG":
                source.drop()
                raise MalformedError("not an answer to PING")
            got = await self._exchange(source.link)
        except Exception as error:
            router._reported(source.addr, error)
            raise
        router._reported(source.addr, None)
        return got

    async def _exchange(self, link: Link) -> tuple[Inquiry, Reading | Refusal]:
        """Asks for a reading. After anything that is not a refusal of this question, the connection is closed."""
        if link.error:
            raise link.error
        try:
            inquiry = Inquiry(link)
            value: Reading | Refusal = await inquiry.answer
            if isinstance(value, Refusal):
                if value.code == "unauthorized":
                    raise Refuses(value.error())
                if value.code == "wrong_cluster":
                    raise value.error()
            else:
                self._check(link.addr, value.cluster)
        except BaseException:
            link.end(ConnectionError("it is unusable"))
            raise
        return inquiry, value

    def _check(self, addr: str, cluster: int) -> None:
        client, told = self._client, f"{cluster:016x}" if cluster else ""
        if told and not client.cluster:
            client.cluster = told
        elif told != client.cluster:
            error = WrongClusterError(f"{addr} reads the clock of cluster {told}, want {client.cluster}")
            client._router.reject(addr, error)
            raise error

    # What came of it.

    def _took(self, source: Source, inquiry: Inquiry, reading: Reading) -> None:
        now, took = self._time(), inquiry.received.hi - inquiry.sent.lo
        source.error, source.refuses, source.failures, source.retry_at = None, False, 0, 0.0
        source.rtt.add(took / 1e9)
        self._estimate, agrees = self._estimate.take(inquiry.sent, inquiry.received, reading)
        self._rate.take(inquiry.received, reading.term, agrees)
        self._refused = None
        self._update()
        width = took + reading.latest - reading.earliest
        source.width += (width - source.width) / 8 if source.width else width
        if reading.term == self._estimate.term and self._estimate.bounds(inquiry.received).good:
            length = (reading.limit - reading.latest) / 1e9
            self._period = min(max(length / QUESTIONS_PER_LIMIT, PERIOD_MIN), PERIOD_MAX)
            self._prefer(source, now)
            return
        source.retry_at = now + PERIOD_MIN  # its reading is of no use: it is too old, or the node too far away
        source.error = NoLeaderError("its reading of the cluster clock is not valid")
        if source is self._usual:
            self._ask_others(now)

    def _prefer(self, source: Source, now: float) -> None:
        """Makes a source with a valid reading the usual one, unless the other is about as good."""
        if self._usual is None:
            self._due = max(source.asked + self._period, now + PERIOD_MIN)
        if self._usual is None or source.width < self._usual.width * 3 / 4:
            self._usual = source
        for other in self._sources.values():
            if other is not self._usual and not other.task:
                other.drop()

    def _failed(self, source: Source, error: Exception, retry_after: float = 0.0) -> None:
        now = self._time()
        if source is self._usual:
            self._ask_others(now)
        if isinstance(error, Refuses):
            error = error.why
        code = error.code if isinstance(error, Error) else "no_leader"
        source.error, source.refuses = error, code not in REPEATABLE
        if code == "quota_exceeded":
            wait = quota_pause(retry_after, source.failures)
        else:
            wait = pause(source.failures, REFUSED_PAUSE_MAX if source.refuses else self._pause_max(now))
        source.retry_at = now + wait
        source.failures += 1
        refused = error if all(other.refuses for other in self._sources.values()) else None
        if self._usual is None and (refused is None) != (self._refused is None):
            self._refused = refused if isinstance(refused, Error) else None
            self._update()

    def _update(self) -> None:
        self._publish(Known(self._estimate, self._refused) if self._rate.believed else Known(Estimate(), _BAD_RATE))

    def _publish(self, known: Known) -> None:
        self.known = known
        changed, self.changed = self.changed, self._client._loop.create_future()
        if not changed.done():
            changed.set_result(None)
