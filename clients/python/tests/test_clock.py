"""What the conformance kit does not see of cluster clocks: the steady clock, threads, forks, what is left behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake import CLOCK_START, CLUSTER, Node, beside, run
from test_sync import interrupted_at

from isotone import Client, Options, Timestamp, Timestamp64, _readings, errors, sync
from isotone._interval import INDEX_MIN
from isotone._steady import steady


class Machine:
    """The clocks of a machine that sleeps after some of the reads, and whose CLOCK_MONOTONIC is slewed."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.raw, self.mono, self.slept = (random.randrange(1 << 50) for _ in range(3))

    def shows(self) -> int:
        return self.raw + self.slept

    def passes(self) -> None:
        passed = random.choice([50, 1_000_000])
        self.raw, self.mono = self.raw + passed, self.mono + int(passed * self.rate)
        self.slept += random.choice([0, 0, 0, 5000, 1 << 40])

    def read(self, clock: int) -> int:
        self.passes()
        got = {
            time.CLOCK_MONOTONIC_RAW: self.raw,
            time.CLOCK_MONOTONIC: self.mono,
            time.CLOCK_BOOTTIME: self.mono + self.slept,
        }[clock]
        self.passes()
        return got


@pytest.mark.skipif(sys.platform != "linux", reason="the steady clock is that of the system")
def test_the_steady_clock_is_right_within_its_bounds() -> None:
    for _ in range(5000):
        machine = Machine(random.uniform(0.9, 1.1))
        before, got, after = machine.shows(), steady(machine.read), machine.shows()
        assert got.lo <= after
        assert got.hi >= before
        assert 0 <= got.hi - got.lo <= 2_000_000


def test_the_steady_clock_goes_on() -> None:
    reads = [steady() for _ in range(100)]
    for a, b in itertools.pairwise(reads):
        assert a.lo <= b.hi


def truth() -> int:
    return CLOCK_START + steady().lo


@run
async def test_a_clock_needs_no_request() -> None:
    node = await Node().start()
    async with Client(node.addr) as client, await client.clock() as clock:
        asked = len(node.requests("INTERVAL"))
        for _ in range(1000):
            before, now, after = truth(), clock.now(), truth() + 1_000_000
            assert now.earliest <= after
            assert now.latest >= before
            assert now.term == 1
        stamps = [await clock.timestamp() for _ in range(1000)]
        many = await clock.timestamps(1000)
        assert stamps + many == sorted({*stamps, *many})
        assert [t.time - many[0].time for t in many] == list(range(1000))
        assert {t.index for t in stamps + many} == {many[0].index}
        assert many[0].index >= INDEX_MIN
        assert len(node.requests("INTERVAL")) == asked
    await node.stop()


@run
async def test_a_commit_wait() -> None:
    node = await Node().start()
    node.width = 20_000_000
    async with Client(node.addr) as client, await client.clock() as clock:
        timestamp = await clock.timestamp()
        assert not clock.is_past(timestamp)
        await asyncio.gather(*(clock.wait(timestamp) for _ in range(100)))
        assert clock.is_past(timestamp)
        assert truth() > timestamp.time
    await node.stop()


@run
async def test_arguments_are_checked() -> None:
    node = await Node().start()
    async with Client(node.addr) as client, await client.clock() as clock:
        for wrong in (0, -1, 1_000_001, 1.5):
            with pytest.raises(errors.InvalidArgumentError, match="whole number from 1 to 1000000"):
                await clock.timestamps(wrong)  # type: ignore[arg-type]
        for stamp in ("00", Timestamp64(5)):
            with pytest.raises(errors.InvalidArgumentError, match="want a Timestamp"):
                clock.is_past(stamp)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgumentError, match="want a Timestamp"):
                await clock.wait(stamp)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="timeout"):
            await client.clock(timeout="1")  # type: ignore[arg-type]
    await node.stop()


async def says(text: str, call: Callable[[float], Awaitable[object]]) -> None:
    """Waits until a call that is late says why: that it was refused takes some time to know."""
    timeout, message = 0.05, ""
    while text not in message:
        with pytest.raises(errors.DeadlineExceededError) as told:
            await call(timeout)
        timeout, message = 2 * timeout, str(told.value)


@run
async def test_messages_say_why_a_call_was_late() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        node.on["INTERVAL"] = lambda _: None
        await says(f"{node.addr}: it has not answered yet", lambda timeout: client.clock(timeout=timeout))
        node.on["INTERVAL"] = lambda _: b"-CLUSTERDOWN an election\r\n"
        await says(f"{node.addr}: no_leader: an election", lambda timeout: client.clock(timeout=timeout))
        node.limit = 0
        del node.on["INTERVAL"]
        await says(f"{node.addr}: no_leader: its reading", lambda timeout: client.clock(timeout=timeout))
        node.limit = 10_000_000_000
        async with await client.clock() as clock:
            later = Timestamp(truth() + (1 << 40))
            await says("not come far enough", lambda timeout: clock.wait(later, timeout=timeout))
    await node.stop()


@run
async def test_the_pause_of_a_quota_is_kept() -> None:
    node = await Node().start()
    node.on["INTERVAL"] = lambda _: b"-TRYAGAIN quota_exceeded: too much; retry after 5000 ms\r\n"
    async with Client(node.addr) as client:
        making = asyncio.ensure_future(client.clock())
        await node.until(1, "INTERVAL")
        await asyncio.sleep(0.3)  # far more than other pauses
        assert len(node.requests("INTERVAL")) == 1
        making.cancel()
    await node.stop()


@run
async def test_the_node_with_the_narrowest_readings_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_readings, "PROBE_INTERVAL", 0.01)
    far = await Node().start()
    near = await Node(far).start()
    far.width = 50_000_000
    far.on["CLUSTER"] = near.answer  # both are members
    near.on["INTERVAL"] = lambda _: b"-CLUSTERDOWN an election\r\n"
    async with Client(far.addr) as client, await client.clock() as clock:
        assert clock.now().width >= far.width
        del near.on["INTERVAL"]
        while clock.now().width >= far.width:
            await clock._readings.changed
        usual = clock._readings._usual
        assert usual
        assert usual.addr == near.addr
    await far.stop()
    await near.stop()


@run
async def test_a_node_that_is_no_member_any_more_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isotone._search.REFRESH_INTERVAL", 0.01)
    monkeypatch.setattr(_readings, "PROBE_INTERVAL", 0.01)
    leader = await Node().start()
    other = await Node(leader).start()
    leader.on["INTERVAL"] = lambda _: b"-CLUSTERDOWN an election\r\n"
    leader.on["CLUSTER"] = other.answer  # both are members
    async with Client(leader.addr) as client, await client.clock():
        await other.until(1, "INTERVAL")
        del leader.on["CLUSTER"]
        await client.timestamp()
        del leader.on["INTERVAL"]
        served = 0
        while served < len(other.serving):  # an answer of before may have it asked once more
            served = len(other.serving)
            await asyncio.gather(*(task for task in other.serving if task))  # they end with their connections
            await leader.until(len(leader.requests("CLUSTER")) + 5, "CLUSTER")
            await leader.until(len(leader.requests("INTERVAL")) + 1, "INTERVAL")
    await leader.stop()
    await other.stop()


@run
async def test_a_closed_clock_leaves_nothing_behind() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        for silent in (False, True):
            clock = await client.clock()
            if silent:
                node.on["INTERVAL"] = lambda _: None
                clock._readings.hurry()
                await node.until(len(node.requests("INTERVAL")) + 1, "INTERVAL")
            waits = [asyncio.ensure_future(clock.wait(Timestamp(1 << 62), timeout=None)) for _ in range(3)]
            await asyncio.sleep(0)
            await clock.close()
            await clock.close()
            for wait in waits:
                with pytest.raises(errors.ClosedError):
                    await wait
            with pytest.raises(errors.ClosedError):
                clock.now()
            with pytest.raises(errors.ClosedError):
                await clock.timestamp()
            assert not clock.is_past(Timestamp(1))
            assert len(client._router.links) == 1
            assert not client._router._tasks
        assert await client.timestamp()
    with pytest.raises(errors.ClosedError):
        await client.clock()
    await node.stop()


@run
async def test_a_clock_ends_with_its_client() -> None:
    node = await Node().start()
    client = Client(node.addr)
    with pytest.raises(errors.ClosedError):
        await client.clock()
    await client.start()
    clock = await client.clock()
    wait = asyncio.ensure_future(clock.wait(Timestamp(1 << 62)))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(errors.ClosedError):
        await wait
    with pytest.raises(errors.ClosedError):
        clock.now()
    await clock.close()
    await node.stop()


@run
async def test_a_clock_that_is_not_made_leaves_nothing_behind() -> None:
    node = await Node().start()
    node.on["INTERVAL"] = lambda _: None
    async with Client(node.addr, options=Options(cluster=CLUSTER)) as client:
        for moment in (0, 1):
            making = asyncio.ensure_future(client.clock())
            await asyncio.sleep(0)
            if moment:
                await node.until(1, "INTERVAL")
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
            assert len(client._router.links) == 1
            assert not client._router._tasks
    await node.stop()


def test_threads_share_a_clock() -> None:
    with beside(2) as nodes, sync.Client(nodes[0].addr) as client, client.clock() as clock:
        got: list[list[Timestamp]] = [[] for _ in range(4)]

        def caller(mine: list[Timestamp]) -> None:
            for _ in range(500):
                mine.append(clock.timestamp())
                mine.extend(clock.timestamps(3))
            clock.wait(mine[-1])
            assert clock.is_past(mine[-1])

        threads = [threading.Thread(target=caller, args=[mine]) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(mine) for mine in got] == [2000] * 4
        assert all(mine == sorted(mine) for mine in got)
        assert len({stamp for mine in got for stamp in mine}) == 8000
        assert clock.now().earliest > max(mine[-1].time for mine in got)
        with pytest.raises(errors.InvalidArgumentError):
            clock.timestamps(0)
        with pytest.raises(errors.DeadlineExceededError):
            clock.wait(Timestamp(1 << 62), timeout=0.01)


def test_a_clock_of_threads_asks_while_nobody_calls_and_while_all_do() -> None:
    with beside() as [node], sync.Client(node.addr) as client:
        node.limit = 100_000_000

        def asks(begin: int, call: Any) -> None:
            while len(node.requests("INTERVAL")) < begin + 20:
                call()

        with client.clock() as clock:
            asks(len(node.requests("INTERVAL")), lambda: time.sleep(0.001))
            asks(len(node.requests("INTERVAL")), client.timestamp)
            clock.wait(clock.timestamp())
        assert client.timestamp() < client.timestamp()


def test_a_clock_of_threads_ends_with_its_client() -> None:
    with beside() as [node]:
        client = sync.Client(node.addr)
        with pytest.raises(errors.ClosedError):
            client.clock()
        client.start()
        clock = client.clock()
        failed: list[errors.Error] = []

        def wait() -> None:
            try:
                clock.wait(Timestamp(1 << 62))
            except errors.Error as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        client.close()
        thread.join()
        assert [type(error) for error in failed] == [errors.ClosedError]
        for call in (clock.now, clock.timestamp, lambda: clock.wait(Timestamp(1))):
            with pytest.raises(errors.ClosedError):
                call()
        clock.close()
        clock.close()


def test_a_call_of_a_clock_may_be_interrupted_anywhere() -> None:
    with beside() as [node], sync.Client(node.addr) as client, client.clock() as clock:
        missed = point = 0
        while missed < 5:
            point += 1
            missed = 0 if interrupted_at(point, clock.timestamp) else missed + 1
            assert clock.timestamp() < clock.timestamp()
        assert point > 8
        assert client.timestamp()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_leaves_the_clock_to_the_parent() -> None:
    with beside() as [node], sync.Client(node.addr) as client, client.clock() as clock:
        before = clock.timestamp()
        read, write = os.pipe()
        clock._inner._stamper._lock.acquire()  # as another thread may
        if (child := os.fork()) == 0:
            signal.alarm(60)
            told = []
            for call in (clock.now, clock.timestamp, lambda: clock.timestamps(5), lambda: clock.wait(Timestamp(1))):
                try:
                    call()
                except errors.ClosedError as error:
                    told.append(str(error))
            told.append(str(clock.is_past(Timestamp(1))))
            clock.close()
            os.write(write, "\n".join(told).encode())
            os._exit(0)
        clock._inner._stamper._lock.release()
        os.waitpid(child, 0)
        told = os.read(read, 1 << 12).decode().splitlines()
        assert [("forked" in line) for line in told] == [True] * 4 + [False]
        assert told[-1] == "False"
        assert before < clock.timestamp() < clock.timestamp()
        os.close(read)
        os.close(write)
