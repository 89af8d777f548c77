"""What the conformance kit does not see: how calls share requests, options, hooks, and what is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from fake import CLUSTER, Node, bulk, run

from isotone import Client, Credentials, GeneratorOptions, Hooks, Options, Range, Timestamp, errors
from isotone._args import DEFAULT
from isotone._link import within
from isotone._pool import ALONE_MAX
from isotone._search import Use


def counts(node: Node) -> list[int]:
    return [int(command[1]) for command in node.requests("TS")]


@run
async def test_calls_that_arrive_meanwhile_share_the_next_request() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        node.gate.clear()
        first = client.timestamp()
        await node.until(1, "TS")
        calls = [client.timestamp() for _ in range(10)]
        many = client.timestamps(1000)
        node.gate.set()
        stamps = [await first, *[await call for call in calls], *(await many).all()]
        assert stamps == sorted(set(stamps))
        assert counts(node) == [1, 1010]
        assert client.floor == stamps[-1]
    await node.stop()


@run
async def test_callers_who_were_answered_together_ask_together() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:

        async def caller() -> None:
            for _ in range(5):
                await client.timestamp()

        await asyncio.gather(*(caller() for _ in range(20)))
        assert sum(counts(node)) == 100
        assert counts(node)[-1] == 20
        assert len(counts(node)) <= 8
    await node.stop()


@run
async def test_a_lone_call_is_sent_at_once() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        for _ in range(3):
            sent = sum(pool.sent for pool in client._router.pools.values())
            call = client.timestamp()
            assert sum(pool.sent for pool in client._router.pools.values()) == sent + 1
            await call
    await node.stop()


@run
async def test_a_range_waits_for_a_request_that_has_room() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        node.gate.clear()
        calls: list[asyncio.Future[Range]] = [client.timestamps(3 << 30) for _ in range(2)]
        single = client.timestamp()
        node.gate.set()
        first, second = await asyncio.gather(*calls)
        assert first.last < second.first < second.last < await single
        assert counts(node) == [3 << 30, (3 << 30) + 1]
    await node.stop()


@run
async def test_a_canceled_call_ends_alone() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        node.gate.clear()
        calls = [asyncio.ensure_future(client.timestamp()) for _ in range(3)]
        await node.until(1, "TS")
        calls[1].cancel()
        node.gate.set()
        got = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(got[1], asyncio.CancelledError)
        assert isinstance(got[0], Timestamp)
        assert isinstance(got[2], Timestamp)
    await node.stop()


@run
async def test_nothing_is_sent_for_calls_that_have_all_left() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        node.gate.clear()
        first = client.timestamp()
        for call in [client.timestamp() for _ in range(3)]:
            call.cancel()
        node.gate.set()
        await first
        await client.timestamp64()
        assert counts(node) == [1]
    await node.stop()


@run
async def test_deadlines_are_those_of_each_call() -> None:
    node = await Node().start()
    client = Client(node.addr, options=Options(timeout=0.05))
    await client.start(30)
    async with client:
        node.gate.clear()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        ends: dict[str, float] = {}
        calls = {
            "usual": client.timestamp(),
            "for ever": client.timestamp(timeout=None),
            "longer": client.timestamp(timeout=30),
            "shorter": client.timestamp(timeout=0.01),
        }
        for name, call in calls.items():
            call.add_done_callback(lambda _, name=name: ends.setdefault(name, loop.time() - begin))  # type: ignore[misc]
        for name in ("usual", "shorter"):
            with pytest.raises(errors.DeadlineExceededError, match=node.addr):
                await calls[name]
        await asyncio.sleep(0)  # callbacks of futures run
        assert ends["shorter"] >= 0.01
        assert ends["usual"] >= 0.05
        assert ends.keys() == {"shorter", "usual"}
        node.gate.set()
        await calls["for ever"]
        await calls["longer"]
        await asyncio.sleep(0)  # callbacks of futures run
        assert not client._special
    await node.stop()


@run
async def test_the_usual_deadline_is_kept_by_calls_that_wait_behind_others() -> None:
    node = await Node().start()
    client = Client(node.addr, options=Options(timeout=0.3))
    await client.start(30)
    async with client:
        client._router.pools[Use.STAMPS].rtt.timeout = 5.0
        node.gate.clear()
        calls = [client.timestamp(timeout=None), client.timestamp(), client.timestamp()]
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for call in calls[1:]:
            with pytest.raises(errors.DeadlineExceededError):
                await call
        assert 0.3 <= loop.time() - begin < 5
        node.gate.set()
        await calls[0]
    await node.stop()


@run
async def test_a_start_that_is_canceled_leaves_nothing_behind() -> None:
    client = Client("127.0.0.1:1")
    starting = asyncio.ensure_future(client.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert client.closed
    assert not client._router._tasks


@run
async def test_work_that_ends_when_it_is_canceled_is_canceled() -> None:
    # asyncio.wait_for returns the result, up to Python 3.11: then what closes a client waits for what goes on for ever.
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await answer

    for number in range(5):
        task = asyncio.create_task(within(30, work()))
        for _ in range(3):
            await asyncio.sleep(0)  # it waits
        answer.set_result(number)
        for _ in range(number):  # steps of the loop, by which the end of the work gets to whoever waits
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answer = asyncio.get_running_loop().create_future()
    assert number > 1
    with pytest.raises(asyncio.TimeoutError):
        await within(0.001, asyncio.sleep(30))


@run
async def test_deadlines_are_kept_without_a_leader_and_leave_nothing_behind() -> None:
    options = Options(timeout=0.02, lazy=True)
    async with Client("127.0.0.1:1", options=options) as client:
        many = asyncio.ensure_future(client.ids(5000))
        calls: list[asyncio.Future[Any]] = [client.timestamp(), client.id(), many]
        for call in calls:
            with pytest.raises(errors.DeadlineExceededError):
                await call
        with pytest.raises(TimeoutError):
            await client.timestamp(above=Timestamp(1, 1))
        assert not client._lane
        assert not client._heap
    with pytest.raises(errors.DeadlineExceededError, match=r"127\.0\.0\.1:1: "):
        await Client("127.0.0.1:1", options=Options(timeout=0.02)).start()


@run
async def test_answered_calls_leave_no_deadlines_behind() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        for timeout in (DEFAULT, 5.0, DEFAULT):
            await asyncio.gather(*(client.timestamp(timeout=timeout) for _ in range(100)))
        assert len(client._lane) <= 1
        await asyncio.sleep(0)  # callbacks of futures run
        assert not client._heap
        assert not client._special
    await node.stop()


@run
async def test_a_closed_client_fails_its_calls() -> None:
    node = await Node().start()
    client = Client(node.addr)
    with pytest.raises(errors.ClosedError):
        client.timestamp()
    await client.start()
    node.gate.clear()
    calls: list[asyncio.Future[Any]] = [client.timestamp(), client.timestamp64()]
    calls += [client.timestamp(above=Timestamp(1, 1))]
    await client.close()
    await client.close()
    for call in calls:
        with pytest.raises(errors.ClosedError):
            await call
    for late in (client.timestamp, client.id, client.timestamp64):
        with pytest.raises(errors.ClosedError):
            late()
    assert not client._router.links
    assert not client._router._tasks
    await node.stop()


@run
async def test_calls_that_wait_are_bounded() -> None:
    node = await Node().start()
    async with Client(node.addr, options=Options(queue_max=2)) as client:
        node.gate.clear()
        calls = [client.timestamp() for _ in range(3)]  # one is sent, two wait
        with pytest.raises(errors.OverloadedError):
            client.timestamp()
        calls.pop().cancel()
        calls.append(client.timestamp())  # there is room again
        high = [client.timestamp(above=Timestamp(1, 1)) for _ in range(ALONE_MAX)]
        node.gate.set()
        await asyncio.gather(*calls, *high)
    await node.stop()


@run
async def test_counts_are_checked() -> None:
    async with Client("127.0.0.1:1", options=Options(lazy=True)) as client:
        for wrong in (0, -1, (1 << 32) + 1, 1.5):
            with pytest.raises(ValueError, match="want a whole number from 1 to"):
                client.timestamps(wrong)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgumentError):
                client.timestamps64(wrong)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgumentError):
                await client.ids(wrong)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError):
            client.timestamp(mode="fast")  # type: ignore[arg-type]


@run
async def test_a_wrong_timeout_harms_no_later_call() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        for wrong in ("1", float("nan")):
            for call in (client.timestamp, client.timestamp64, client.id):
                with pytest.raises(errors.InvalidArgumentError, match="timeout"):
                    call(timeout=wrong)  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgumentError, match="timeout"):
                client.timestamp(above=Timestamp(1, 1), timeout=wrong)  # type: ignore[arg-type]
        assert await client.timestamp() < await client.timestamp(timeout=float("inf"))
        assert await client.id(timeout=60)
    await node.stop()


@run
async def test_floors() -> None:
    node = await Node().start()
    floor = Timestamp(node.time - 1, 7)
    async with Client(node.addr, options=Options(floor=floor)) as client:
        await client.timestamp()
        await client.timestamp()
        above = client.floor
        assert await client.timestamp(above=above, mode="quorum") > above
        tails = [command[2:] for command in node.requests("TS")]
        assert tails == [["FLOOR", floor.hex()], [], ["QUORUM", "FLOOR", above.hex()]]
        node.on["TS"] = lambda _: bulk(bytes(above))
        with pytest.raises(errors.InternalError):
            await client.timestamp()
    await node.stop()


@run
async def test_hooks() -> None:
    node = await Node().start()
    events: list[tuple[Any, ...]] = []
    hooks = Hooks(
        answered=lambda addr, calls, count, took: events.append(("answered", addr, calls, count, took > 0)),
        retried=lambda addr, error: events.append(("retried", addr, str(error))),
        rejected=lambda addr, error: events.append(("rejected", addr, error.code)),
        leader=lambda addr: events.append(("leader", addr)),
    )
    async with Client(node.addr, options=Options(hooks=hooks)) as client:
        await client.timestamps(5)
        refusals = [b"-TRYAGAIN later\r\n", bulk(bytes(16))]
        node.on["TS"] = lambda command: refusals.pop(0) if refusals else node.answer(command)
        with pytest.raises(errors.InternalError):
            await client.timestamp()
        await client.timestamp()
        assert client.cluster == CLUSTER
    assert events == [
        ("leader", node.addr),
        ("answered", node.addr, 1, 5, True),
        ("retried", node.addr, "later"),
        ("rejected", node.addr, "internal"),
        ("answered", node.addr, 1, 1, True),
    ]
    await node.stop()


@run
async def test_many_ids_take_several_requests() -> None:
    leader = await Node().start()
    other = await Node(leader).start()
    other.id += 1 << 40
    async with Client(other.addr) as client:
        ids = await client.ids(10_000)
        assert len(set(ids)) == 10_000
        assert isinstance(await client.id(), int)
        requests = [*leader.requests("SNOWFLAKE"), *other.requests("SNOWFLAKE")]
        assert {int(command[1]) if len(command) > 1 else 1 for command in requests} == {1, 1808, 4096}
    await leader.stop()
    await other.stop()


@run
async def test_a_leader_that_dies_is_replaced() -> None:
    first = await Node().start()
    second = await Node(first).start()
    async with Client(first.addr, second.addr) as client:
        before = await client.timestamp()
        second.leader, second.time = second, first.time + 1
        await first.stop()
        assert await client.timestamp() > before
        assert second.requests("TS")[0][2:] == ["FLOOR", before.hex()]
    await second.stop()


@run
async def test_generators() -> None:
    node = await Node().start()
    async with Client(node.addr) as client, await client.generator() as generator:
        ids = [await generator.next(), *generator.take(5), *await generator.next_n(5000)]
        assert ids == sorted(set(ids))
        assert {generator.layout.worker(id_) for id_ in ids} == {300} == {generator.worker}
        for wrong in (1 << 30, -5, 1.5):
            with pytest.raises(errors.InvalidArgumentError):
                await generator.next_n(wrong)  # type: ignore[arg-type]
        assert generator.take() > ids[-1:]
        node.on["WORKER"] = lambda _: b"-NOPERM the role workers is missing\r\n"
        with pytest.raises(errors.ForbiddenError):
            await client.generator()
        del node.on["WORKER"]
        await generator.close()
        assert node.requests("WORKER")[-1][1] == "RELEASE"
        with pytest.raises(errors.ClosedError):
            generator.take()
    await node.stop()


@run
async def test_a_client_that_is_closed_ends_its_generators() -> None:
    node = await Node().start()
    client = Client(node.addr)
    await client.start()
    node.on["WORKER"] = lambda command: node.answer([*command[:4], "0"])  # a lease that has ended
    with pytest.raises(errors.DeadlineExceededError):
        await client.generator(timeout=0.05)
    node.on["WORKER"] = lambda command: node.answer([*command[:4], "1"])
    generator = await client.generator(GeneratorOptions(ahead_max=0, now=lambda: 1795317567364))
    assert generator.take(4096)
    waiting = asyncio.ensure_future(generator.next())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(errors.ClosedError):
        await waiting
    await generator.close()
    await node.stop()


@run
async def test_a_hook_that_fails_harms_no_call() -> None:
    node = await Node().start()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    hooks = Hooks(answered=lambda *_: 1 / 0, leader=lambda _: 1 / 0)  # type: ignore[arg-type]
    async with Client(node.addr, options=Options(hooks=hooks)) as client:
        await client.timestamp()
    assert [type(failure) for failure in failures] == [ZeroDivisionError] * 2
    await node.stop()


def test_options_that_are_wrong_are_all_named() -> None:
    for addrs, options, faults in (
        ((), Options(), ["64 addresses"]),
        (("host",), Options(cluster="x", queue_max=0), ["'host'", "cluster", "queue_max"]),
        ((["h:1"],), Options(floor="00", timeout="1"), ["['h:1']", "floor", "timeout"]),  # type: ignore[arg-type]
        (("h:1",), Options(mode="fast", dial_timeout=0, connections=0), ["mode", "dial_timeout", "connections"]),  # type: ignore[arg-type]
    ):
        with pytest.raises(errors.InvalidArgumentError) as told:
            Client(*addrs, options=options)
        assert all(fault in str(told.value) for fault in faults)


def test_a_secret_is_not_printed() -> None:
    credentials = Credentials("billing", "hush")
    assert "hush" not in repr(Options(credentials=credentials)) + str(credentials)
    for name, secret in (("", "x"), ("a b", "x"), ("x" * 65, "x"), ("a", ""), ("a", "x" * 257)):
        with pytest.raises(errors.InvalidArgumentError):
            Credentials(name, secret)
    assert dataclasses.replace(credentials, secret="new").secret == "new"


@run
async def test_a_node_that_requires_tls_for_credentials() -> None:
    node = await Node().start()
    node.on["AUTH"] = lambda _: b"-ERR this port requires TLS\r\n"
    with pytest.raises(errors.UnauthorizedError, match="may require TLS"):
        await Client(node.addr, options=Options(credentials=Credentials("billing", "hush"))).start()
    await node.stop()


@run
async def test_credentials_that_cannot_be_had() -> None:
    node = await Node().start()

    def vault() -> Credentials:
        raise RuntimeError("sealed")

    for source, error, text in (
        (vault, errors.DeadlineExceededError, "credentials failed: RuntimeError"),
        (lambda: None, errors.InvalidArgumentError, "credentials: want Credentials, got NoneType"),
        (("a", "b"), errors.InvalidArgumentError, "credentials: want Credentials, got tuple"),
    ):
        with pytest.raises(error, match=text):
            await Client(node.addr, options=Options(credentials=source, timeout=1)).start()  # type: ignore[arg-type]
    await node.stop()


@run
async def test_a_client_starts_once() -> None:
    node = await Node().start()
    async with Client(node.addr) as client:
        await client.start()
        assert await client.timestamp()
    with pytest.raises(errors.ClosedError):
        await client.start()
    await node.stop()


@run
async def test_credentials_of_each_connection() -> None:
    node = await Node().start()
    secrets = iter(["one", "two"])

    async def credentials() -> Credentials:
        return Credentials("billing", next(secrets, "more"))

    async with Client(node.addr, options=Options(credentials=credentials)) as client:
        await client.timestamp()
        assert node.seen[0] == ["AUTH", "billing", "one"]
        node.on["AUTH"] = lambda _: b"-WRONGPASS two is wrong\r\n"
        for writer in node.writers:
            writer.transport.abort()
        await client._router.pools[Use.STAMPS].links[0].gone
        with pytest.raises(errors.UnauthorizedError) as told:
            await client.timestamp()
        assert "two" not in str(told.value)
    await node.stop()
