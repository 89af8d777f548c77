"""Keeps a client connected: asks who leads, opens and closes connections, and watches for late answers.

What to do, :class:`Search` decides. ``step`` compares what is with what should be, after each event and when
something is due. It never waits for a node: each dial and question is a task.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import ssl
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ._address import split_addr
from ._link import Link, closed, refused, within
from ._pace import PAUSE_MAX, SPARE_PAUSE_MAX
from ._pool import Pool
from ._resp import View, cluster_of, view_of
from ._search import Outcome, Search, Use, Verdict
from .errors import (
    Error,
    ForbiddenError,
    InvalidArgumentError,
    MalformedError,
    NoLeaderError,
    Refusal,
    UnauthorizedError,
    WrongClusterError,
)

if TYPE_CHECKING:
    from .client import Client

# A connection may be silent for GIVE_UP_FACTOR times the answer timeout, at least GIVE_UP_MIN, while its
# node answers on another one.
GIVE_UP_FACTOR = 10
GIVE_UP_MIN = 1.0
#: How long a leader may hold a request whose floor is ahead of its clock.
HELD_MAX = 10.0

_CERTIFICATE_ALERTS = ("HANDSHAKE_FAILURE", "CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


class Refuses(Exception):  # noqa: N818 - it wraps the error
    """A node refuses this client, whatever it asks."""

    def __init__(self, why: Error) -> None:
        super().__init__(str(why))
        self.why = why


def readable(error: BaseException) -> Exception:
    """Returns the error to tell people about, without what a library wraps it in."""
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)) and not isinstance(error, Error):
        return TimeoutError("no answer in time")
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    if reason and "ALERT" in reason and any(text in reason for text in _CERTIFICATE_ALERTS):
        return Refuses(UnauthorizedError(f"the node wants another client certificate: {reason}"))
    return error if isinstance(error, Exception) else ConnectionError("the attempt was given up")


class Router:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.search = Search(client.options.addrs)
        self.pools = {use: Pool(client, use) for use in (Use.STAMPS, Use.AHEAD, Use.IDS)}
        self.wanted = {Use.STAMPS}
        self.suspicious = False  # the next success is news
        self.links: set[Link] = set()
        self._inquiries: dict[str, Link] = {}  # kept for the next question of the same search
        self._dialing: Counter[tuple[str, Use]] = Counter()
        self._why: dict[str, Error] = {}
        self._tasks: dict[asyncio.Task[None], tuple[str, Use] | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._sent = 0
        self._poked = False

    # What is due.

    def wake_at(self, at: float) -> None:
        """Has a step run then, if none is due earlier."""
        if at < self._timer_at:
            if self._timer:
                self._timer.cancel()
            self._timer, self._timer_at = self.client._loop.call_at(at, self.step), at

    def poke(self) -> None:
        """Has a step run soon."""
        if not self._poked and not self.client.closed:
            self._poked = True
            self.client._loop.call_soon(self.step)

    def restart(self) -> None:
        """Goes on after an interrupt, which has left half done whatever it has met."""
        for link in list(self.links):
            link.end(ConnectionError("a call was interrupted"))
        under_way = [attempt for task, attempt in self._tasks.items() if attempt and not task.done()]
        self._dialing = Counter(attempt for attempt in under_way if attempt[1] is not Use.QUESTIONS)
        self.search.asking_only([addr for addr, use in under_way if use is Use.QUESTIONS])
        self._poked = False
        self.poke()

    def step(self) -> None:
        """Does what is due."""
        self._poked = False
        if self._timer:
            self._timer.cancel()
        self._timer, self._timer_at = None, math.inf
        if self.client.closed:
            return
        now = self.client._time()
        due = [self.client._expire(now)]
        sent = sum(pool.sent for pool in self.pools.values())
        used, self._sent = sent != self._sent, sent
        for pool in self.pools.values():
            due.append(self._watch(pool, used, now))
            used = used or any(link.expected for link in pool.links)
        addrs, again = self.search.ask(now)
        if addrs:
            self._forget()
        for addr in addrs:
            self._ask(addr)
        if used:
            self.refresh(now)
        if not self.search.suspected:
            for link in list(self._inquiries.values()):
                link.end(ConnectionError("the search is over"))
        for use in self.wanted:
            leader = [self.search.leader] if self.search.leader else []
            addrs = self.search.members() if use is Use.IDS else leader
            due += [self._connect(self.pools[use], addr, now) for addr in addrs]
        self.wake_at(min([*due, again or math.inf]))

    def _watch(self, pool: Pool, used: bool, now: float) -> float:
        """Looks for late answers (C44)."""
        timeout = pool.rtt.timeout + (HELD_MAX if pool.use is Use.AHEAD else 0)
        due = now + timeout if used else math.inf
        for link in [link for link in pool.links if link.expected]:
            if link.since + timeout > now:
                due = min(due, link.since + timeout)
            elif pool.use is Use.STAMPS:
                self.client._note(link.addr, TimeoutError(f"silent for {timeout * 1000:.0f} ms"))
                self.suspect(link.addr)
                due = min(due, now + timeout)
            else:
                self._give_up(pool, link)
        return due

    def _give_up(self, pool: Pool, link: Link) -> None:
        pool.rtt.double()
        link.end(TimeoutError("silent for too long"))

    def refresh(self, now: float) -> None:
        """Asks the leader for the members now and then (C46)."""
        if self.search.refresh(now):
            self._forget()
            self._question(self.search.leader)

    def _forget(self) -> None:
        self._dialing = +self._dialing
        used = {link.addr for link in self.links} | {addr for addr, _ in self._dialing}
        self.search.forget(used.__contains__)
        outcomes = self.search.outcomes()
        self._why = {addr: why for addr, why in self._why.items() if addr in outcomes}

    # Connections.

    def spawn(self, work: Coroutine[Any, Any, None], attempt: tuple[str, Use] | None = None) -> asyncio.Task[None]:
        """Runs a task that ends with the client. It may be an attempt to reach a node."""
        task = self.client._loop.create_task(work)
        self._tasks[task] = attempt
        task.add_done_callback(self._tasks.pop)
        return task

    async def open(self, addr: str, use: Use, *command: str) -> tuple[Link, Any]:
        """Opens a connection, authenticates and checks the cluster. Returns the answer to a harmless command."""
        link = Link(addr, use, self._ended)
        try:
            return link, await within(self.client.options.dial_timeout, self._greet(link, command))
        except BaseException as error:
            link.end(ConnectionError("it was not used"))
            if isinstance(error, asyncio.CancelledError):
                raise
            raise readable(error) from None

    async def _greet(self, link: Link, command: Sequence[str]) -> Any:
        options = self.client.options
        host, port = split_addr(link.addr) or ("", 0)
        name = (options.server_name or host) if options.tls else None
        self.links.add(link)
        link.gone.add_done_callback(lambda _: self.links.discard(link))
        try:
            await self.client._loop.create_connection(lambda: link, host, port, ssl=options.tls, server_hostname=name)
        finally:
            if not link.transport:
                self.links.discard(link)
        try:
            login = await self._credentials(link)
            *auth, info, answer = link.ask(*login, ["INFO", "cluster"], command)
            for reply in auth:
                _check_login(link.addr, login[0][1], await reply)
            self._check_cluster(link.addr, refused(await info))
            return refused(await answer)
        except (UnauthorizedError, ForbiddenError, InvalidArgumentError) as error:
            raise Refuses(error) from None

    async def _credentials(self, link: Link) -> list[list[str]]:
        options = self.client.options
        if options.credentials is None:
            return []
        assert link.transport
        peer = str(link.transport.get_extra_info("peername")[0]).partition("%")[0]
        if not options.tls and not ipaddress.ip_address(peer).is_loopback:
            raise UnauthorizedError(f"the secret would cross the network to {peer} in plaintext: set options.tls")
        login = await options.login()
        return [["AUTH", login.name, login.secret]]

    def _check_cluster(self, addr: str, info: Any) -> None:
        client, told = self.client, cluster_of(info)
        if told == "":
            raise NoLeaderError("the node does not know its cluster yet")
        if (told is None and not client.options.cluster) or (told and not client.cluster):
            client.cluster = told or client.cluster
        elif told != client.cluster:
            mine = f"belongs to cluster {told}" if told else "does not report its cluster"
            error = WrongClusterError(f"{addr} {mine}, want {client.cluster}")
            self.reject(addr, error)
            raise error

    def reject(self, addr: str, error: Error) -> None:
        """Reports an answer that is not used."""
        self.client._tell(self.client.options.hooks.rejected, addr, error)

    def _connect(self, pool: Pool, addr: str, now: float) -> float:
        missing = self._missing(pool, addr)
        due = self.search.dial_at(addr, pool.use)
        if missing > 0 and due > now:
            return due
        for _ in range(missing):
            self._dialing[addr, pool.use] += 1
            self.spawn(self._dial(pool, addr), (addr, pool.use))
        return math.inf

    def _missing(self, pool: Pool, addr: str) -> int:
        want = self.client.options.connections if pool.use is Use.STAMPS else 1
        return want - self._dialing[addr, pool.use] - sum(link.addr == addr for link in pool.links)

    async def _dial(self, pool: Pool, addr: str) -> None:
        error: Exception | None = None
        began = self.client._time()
        try:
            link, pong = await self.open(addr, pool.use, "PING")
            if pong != b"PONG":
                error = MalformedError("not an answer to PING")
                link.end(error)
        except Exception as failure:
            error = failure
        finally:
            self._dialing[addr, pool.use] -= 1
        now = self.client._time()
        wanted = self.search.members() if pool.use is Use.IDS else [self.search.leader]
        self._reported(addr, error)
        if error:
            self.client._note(addr, error)
            self._failed(addr, pool.use, self.search.dial_pause_max(now))
        elif addr not in wanted:
            link.end(ConnectionError("it is not needed any more"))
        else:
            pool.rtt.add(now - began)
            self.search.dialed(addr, pool.use)
            news = pool.use is Use.STAMPS and self.search.connecting
            self._attach(pool, link)
            if news:
                self._question(addr)  # it may have other members than the leader before it
        self.poke()

    def _attach(self, pool: Pool, link: Link) -> None:
        if link.error:
            return
        link.use = pool.use
        pool.links.append(link)
        if pool.use is Use.STAMPS and self.search.connected():
            self.client._tell(self.client.options.hooks.leader, link.addr)
            self.client._led(None)
        self._refuse()
        pool.dispatch()

    def _failed(self, addr: str, use: Use, most: float) -> None:
        if use is Use.IDS and self.search.outcomes().get(addr) is not Outcome.REFUSES:
            if self.pools[use].links:
                most = SPARE_PAUSE_MAX
            elif self.search.leader:
                self._question(self.search.leader)  # there may be new members
        if self.search.failed(addr, use, most, self.client._time()):
            self.suspicious = True

    def _ended(self, link: Link, error: Exception) -> None:
        if self._inquiries.get(link.addr) is link:
            del self._inquiries[link.addr]
        pool = self.pools.get(link.use)
        if pool is None or link not in pool.links or self.client.closed:
            return
        pool.links.remove(link)
        aborted = link.use is not Use.STAMPS and isinstance(error, TimeoutError)
        if aborted or not link.answered:
            # As a failed dial: a node that hangs up at once would be dialed without pause.
            why = readable(error)
            if isinstance(why, Refuses):
                self._reported(link.addr, why)
            self._failed(link.addr, link.use, PAUSE_MAX)
        elif link.use is not Use.IDS:
            self.suspect(link.addr)
        if link.use is Use.IDS and not pool.links:
            self.search.hurry(Use.IDS, self.client._time())
        pool.dispatch()
        self.poke()

    # Who leads.

    def _question(self, addr: str) -> None:
        if self.search.question(addr, self.client._time()):
            self._ask(addr)

    def _ask(self, addr: str) -> None:
        self.spawn(self._inquire(addr, self._inquiries.pop(addr, None)), (addr, Use.QUESTIONS))

    async def _inquire(self, addr: str, link: Link | None) -> None:
        view, error, began = None, None, self.client._time()
        try:
            if link and not link.error:
                reply = await within(self.client.options.dial_timeout, link.ask(["CLUSTER", "SLOTS"])[0])
                view = view_of(refused(reply), addr)
            else:
                link = None
                link, reply = await self.open(addr, Use.QUESTIONS, "CLUSTER", "SLOTS")
                view = view_of(reply, addr)
        except Exception as failure:
            error = readable(failure)
            self.client._note(addr, error)
            if link and not isinstance(error, Error):
                link.end(error)
        self.search.answered(addr)
        self._reported(addr, error)
        if view and link:
            self._heard(addr, view, link, began)
        if link and link.use is Use.QUESTIONS and not link.error:
            if self.search.suspected:
                self._inquiries[addr] = link
            else:
                link.end(ConnectionError("the search is over"))
        self.poke()

    def _heard(self, addr: str, view: View, link: Link, began: float) -> None:
        now = self.client._time()
        verdict = self.search.heard(addr, view, now)
        for other in list(self.pools[Use.IDS].links):
            if other.addr not in self.search.members():
                other.end(TimeoutError("it is no member any more"))
        if verdict is Verdict.CONFIRMED:
            self._confirmed(addr)
        elif verdict is Verdict.FOLLOWED:
            self._followed()
        if addr == view.leader == self.search.leader and self.search.suspected:
            stamps = self.pools[Use.STAMPS]
            if self._missing(stamps, addr) > 0 and self.search.dial_at(addr, Use.STAMPS) <= now:
                stamps.rtt.add(now - began)
                self._attach(stamps, link)  # the first request does not wait for another connection

    def _confirmed(self, leader: str) -> None:
        stamps = self.pools[Use.STAMPS]
        now, limit = self.client._time(), max(GIVE_UP_FACTOR * stamps.rtt.timeout, GIVE_UP_MIN)
        links = [link for link in stamps.links if link.addr == leader]
        if links:
            self.search.suspected = False
        for link in links:
            if link.expected and now - link.since > limit:
                self._give_up(stamps, link)

    def _followed(self) -> None:
        for use in (Use.STAMPS, Use.AHEAD):
            for link in list(self.pools[use].links):
                if link.addr != self.search.leader:
                    link.end(ConnectionError("another node leads"))
        self.poke()

    def moved(self, link: Link, leader: str) -> None:
        """Follows the redirect of the node at the end of a connection."""
        if self.search.moved(link.addr, leader, self.client._time()):
            self.suspicious = True
            self._followed()
        link.end(ConnectionError("another node leads"))

    def suspect(self, addr: str) -> None:
        """Searches for the leader if that is the node that has failed, refused, or been silent."""
        if self.search.suspect(addr):
            self.suspicious = True
            self.poke()

    def recovered(self, link: Link) -> None:
        """Ends a suspicion: a request was answered."""
        if link.use is Use.STAMPS:
            self.suspicious = False
            self.client._troubles.clear()
            self.search.recovered(link.addr)

    def retried(self, addr: str, error: Exception) -> None:
        """Reports that a request has to be sent again."""
        if self.client.closed:
            return
        self.client._note(addr, error)
        self.client._tell(self.client.options.hooks.retried, addr, error)

    # What nodes refuse.

    def _reported(self, addr: str, error: BaseException | None) -> None:
        outcome = Outcome.OURS
        if isinstance(error, Refuses):
            outcome, self._why[addr] = Outcome.REFUSES, error.why
        elif isinstance(error, WrongClusterError):
            outcome, self._why[addr] = Outcome.FOREIGN, error
        elif error and not isinstance(error, Error):
            outcome = Outcome.UNREACHABLE
        self.search.reported(addr, outcome, self.client._time())
        outcomes = self.search.outcomes()
        foreign = [addr for addr, outcome in outcomes.items() if outcome is Outcome.FOREIGN]
        mine = Outcome.OURS in outcomes.values() or Outcome.REFUSES in outcomes.values()
        self.client._foreign = self._why[foreign[-1]] if foreign and not mine else None
        self._refuse()

    def _refuse(self) -> None:
        """Fails the calls that wait for connections which nodes refuse (C9), and later ones until that changes."""
        for pool in self.pools.values():
            known, why = self._refusal(pool)
            if known:
                pool.refused = why
            if known and why:
                pool.fail(why)
                if pool.use is Use.STAMPS:
                    self.client._led(why)

    def _refusal(self, pool: Pool) -> tuple[bool, Error | None]:
        if pool.links:
            return True, None
        if pool.use is Use.IDS:
            addrs = self.search.members()
        else:
            addrs = [self.search.leader] if self.search.leader else self.search.known()
        known, why, outcomes = True, None, self.search.outcomes()
        for addr in addrs:
            outcome = outcomes.get(addr)
            if outcome in (Outcome.OURS, Outcome.FOREIGN):
                return True, None
            if outcome is Outcome.REFUSES:
                why = self._why[addr]
            elif outcome is None or self.search.asking(addr) or self._dialing[addr, pool.use]:
                known = False
        return known, why

    async def close(self) -> None:
        """Closes all connections."""
        if self._timer:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links = list(self.links)
        for link in links:
            link.end(ConnectionError("the client was closed"))
        await closed(links)


def _check_login(addr: str, name: str, reply: Any) -> None:
    # Nothing of the answer is told: who sends what was sent to it has the secret in it (C7).
    if isinstance(reply, Refusal) and reply.kind in ("retry", "quota"):
        raise NoLeaderError(f"{addr} cannot check credentials now")
    if isinstance(reply, Refusal):
        if reply.code == "invalid_argument":
            raise UnauthorizedError(f"{addr} takes no credentials on this connection; it may require TLS")
        raise UnauthorizedError(f"{addr} does not accept the credentials of {name!r}")
    if reply != b"OK":
        raise UnauthorizedError(f"{addr} does not answer AUTH with OK")
