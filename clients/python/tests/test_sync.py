"""The client for threads."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from fake import beside

from isotone import Hooks, Options, Timestamp, errors, sync


def test_threads_share_requests() -> None:
    with beside() as [node], sync.Client(node.addr) as client:
        got: list[list[Timestamp]] = [[] for _ in range(8)]

        def caller(mine: list[Timestamp]) -> None:
            mine.extend(client.timestamp() for _ in range(50))

        threads = [threading.Thread(target=caller, args=[mine]) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(mine == sorted(mine) for mine in got)
        assert len({stamp for mine in got for stamp in mine}) == 400
        assert client.floor == max(mine[-1] for mine in got)


def test_all_calls() -> None:
    with beside(2) as nodes, sync.Client(nodes[1].addr) as client:
        stamps = client.timestamps(10)
        assert client.timestamp(above=stamps.last) > stamps.last
        assert client.timestamps64(5).last < client.timestamp64(mode="lease")
        assert len(set(client.ids(5000))) == 5000
        assert client.id() > 0
        assert client.cluster
        with client.generator() as generator:
            ids = [generator.next(), *generator.take(3), *generator.next_n(10)]
            assert ids == sorted(set(ids))
            assert generator.layout.worker(ids[0]) == generator.worker
        with pytest.raises(errors.ClosedError):
            generator.take()
        with pytest.raises(errors.InvalidArgumentError):
            client.timestamps(0)


def test_a_lone_call_needs_no_other_thread() -> None:
    threads: set[threading.Thread] = set()
    hooks = Hooks(answered=lambda *_: threads.add(threading.current_thread()))
    with beside() as [node], sync.Client(node.addr, options=Options(hooks=hooks)) as client:
        while threading.current_thread() not in threads:  # the keeper steps back after the first call
            client.timestamp()


def test_a_call_within_a_running_loop() -> None:
    async def call() -> Timestamp:
        return client.timestamp()

    with beside() as [node], sync.Client(node.addr) as client:
        assert client.timestamp() < asyncio.run(call()) < client.timestamp()


def test_an_interrupted_call_leaves_the_client_usable() -> None:
    interrupts = [True]

    def answered(*_: object) -> None:
        if threading.current_thread() is threading.main_thread() and interrupts:
            interrupts.pop()
            raise KeyboardInterrupt

    with beside() as [node], sync.Client(node.addr, options=Options(hooks=Hooks(answered=answered))) as client:
        interrupted = 0
        while not interrupted:
            try:
                client.timestamp()
            except KeyboardInterrupt:
                interrupted += 1
        assert not client._waits
        assert client.timestamp() < client.timestamp()


def interrupted_at(point: int, call: Callable[[], object]) -> bool:
    """Interrupts a call as it enters the point-th function of the client, but for those that only wait."""
    entered = 0

    def enter(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        ours = f"{os.sep}isotone{os.sep}" in path and not path.endswith("sync.py")
        if event == "call" and ours and name != "<genexpr>":
            entered += 1
            if entered == point:
                raise KeyboardInterrupt

    sys.setprofile(enter)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_call_may_be_interrupted_anywhere() -> None:
    with beside() as [node], sync.Client(node.addr, options=Options(timeout=5)) as client:
        missed = point = 0
        while missed < 5:  # what a call enters is not always the same
            point += 1
            missed = 0 if interrupted_at(point, client.timestamp) else missed + 1
            assert client.timestamp() < client.timestamp()
        assert point > 15
    gc.collect()  # what was interrupted complains here, and not in another test


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_first_call_may_be_interrupted_anywhere() -> None:
    point = interrupts = 0
    with beside() as [node]:
        while 7 * interrupts == point:
            point += 7
            with sync.Client(node.addr, options=Options(timeout=5, lazy=True)) as client:
                interrupts += interrupted_at(point, client.timestamp)
                assert client.timestamp() < client.timestamp()
    gc.collect()  # as above


def test_a_hook_that_calls_its_client_does_not_block_it() -> None:
    told: list[Any] = []

    def leader(_: str) -> None:
        try:
            client.timestamp()
        except RuntimeError as error:
            told.append(error)

    with beside() as [node]:
        client = sync.Client(node.addr, options=Options(hooks=Hooks(leader=leader)))
        with client:
            assert client.timestamp()
    assert "must not call its client" in str(told[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_leaves_the_client_to_the_parent() -> None:
    with beside() as [node], sync.Client(node.addr) as client, client.generator() as generator:
        before = client.timestamp()
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            told = []
            for call in (client.timestamp, client.id, generator.next, generator.take):
                try:
                    call()
                except errors.ClosedError as error:
                    told.append(str(error))
            client.close()
            os.write(write, "\n".join(told).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1 << 12).decode().count("forked") == 4
        assert before < client.timestamp() < client.timestamp()
        os.close(read)
        os.close(write)


def test_a_client_starts_once() -> None:
    with beside() as [node], sync.Client(node.addr) as client:
        client.start()
        assert client.timestamp()
    with pytest.raises(errors.ClosedError):
        client.start()


def test_deadlines_and_errors() -> None:
    with sync.Client("127.0.0.1:1", options=Options(lazy=True, timeout=0.02)) as client:
        for call in (client.timestamp, client.timestamp64, client.id, lambda: client.ids(5)):
            with pytest.raises(errors.DeadlineExceededError):
                call()
        with pytest.raises(TimeoutError):
            client.timestamp(above=Timestamp(1, 1), timeout=0.01)
    with pytest.raises(errors.DeadlineExceededError):
        sync.Client("127.0.0.1:1", options=Options(timeout=0.02)).start()


def test_a_closed_client_fails_its_calls() -> None:
    with beside() as [node]:
        client = sync.Client(node.addr)
        with pytest.raises(errors.ClosedError):
            client.timestamp()
        client.start()
        node.gate.clear()
        failed: list[BaseException] = []

        def caller() -> None:
            try:
                client.timestamp()
            except errors.Error as error:
                failed.append(error)

        threads = [threading.Thread(target=caller) for _ in range(4)]
        for thread in threads:
            thread.start()
        asyncio.run_coroutine_threadsafe(node.until(1, "TS"), node.server.get_loop()).result()
        client.close()
        client.close()
        for thread in threads:
            thread.join()
        assert [type(error) for error in failed] == [errors.ClosedError] * 4
        with pytest.raises(errors.ClosedError):
            client.id()


def test_what_was_never_started_can_be_closed() -> None:
    sync.Client("127.0.0.1:1").close()


def close_amid_calls(addr: str) -> None:
    client = sync.Client(addr)
    client.start()
    begun = threading.Barrier(5)
    failed: list[BaseException] = []

    def caller(many: bool) -> None:
        begun.wait()
        try:
            while True:
                client.ids(5) if many else client.timestamp()
        except errors.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=caller, args=[i % 2 == 0]) for i in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    client.close()
    for thread in threads:
        thread.join(60)
    assert [type(error) for error in failed] == [errors.ClosedError] * 4


def test_closing_amid_calls_ends_them_all() -> None:
    with beside(2) as nodes:
        for _ in range(20):
            close_amid_calls(nodes[0].addr)
