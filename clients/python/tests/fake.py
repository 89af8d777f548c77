"""Nodes that play a cluster, for tests: they answer as nodes do, unless a test says otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from isotone import Timestamp, Timestamp64
from isotone._resp import encode
from isotone._steady import steady

CLUSTER = "5e1f0c3a9b2d4e71"
CLOCK_START = 1_795_317_000_000_000_000 - steady().lo  # the cluster clock when the steady clock shows 0
Handler = Callable[[list[str]], "bytes | None"]


def bulk(data: bytes | str) -> bytes:
    return encode(data).partition(b"\r\n")[2]


class Node:
    """A node of a cluster of one, which leads, or of that of ``leader``."""

    def __init__(self, leader: Node | None = None) -> None:
        self.leader = leader or self
        self.seen: list[list[str]] = []
        self.on: dict[str, Handler] = {}  # what a test has it answer; None: nothing
        self.gate = asyncio.Event()  # while it is not set, TS waits
        self.gate.set()
        self.arrived = asyncio.Condition()
        self.time, self.index, self.id = 1_795_317_567_364_593_274, 0, 2124568557537722368
        self.width, self.limit = 0, 10_000_000_000  # of readings, in nanoseconds
        self.writers: list[asyncio.StreamWriter] = []
        self.serving: list[asyncio.Task[Any] | None] = []

    async def start(self) -> Node:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        self.addr = f"{host}:{port}"
        return self

    async def stop(self) -> None:
        reader, last = await asyncio.open_connection(*self.server.sockets[0].getsockname())
        last.write(encode("PING"))
        await reader.readline()  # all connections before this one have been accepted
        last.close()
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        self.gate.set()
        await asyncio.gather(*(task for task in self.serving if task), return_exceptions=True)

    def requests(self, *words: str) -> list[list[str]]:
        """Returns the commands so far that begin with a word."""
        return [command for command in self.seen if command[0] in words]

    async def until(self, count: int, *words: str) -> None:
        """Waits for that many commands."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests(*words)) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.serving.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                command = []
                for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
                    size = int((await reader.readuntil(b"\r\n"))[1:])
                    command.append((await reader.readexactly(size + 2))[:-2].decode())
                async with self.arrived:
                    self.seen.append(command)
                    self.arrived.notify_all()
                if command[0] in ("TS", "TS64"):
                    await self.gate.wait()
                answer = self.on.get(command[0], self.answer)(command)
                if answer is not None:
                    writer.write(answer)
        writer.close()

    def answer(self, command: list[str]) -> bytes:
        """Answers as a node does."""
        name, count = command[0], int(command[1]) if len(command) > 1 and command[1].isdigit() else 1
        if name == "AUTH":
            return b"+OK\r\n"
        if name == "PING":
            return b"+PONG\r\n"
        if name == "INFO":
            return bulk(f"# Cluster\r\nisotone_cluster_id:{CLUSTER}\r\n")
        if name == "CLUSTER":
            nodes = [self.leader, self] if self.leader is not self else [self]
            entries = [b"*2\r\n" + bulk("127.0.0.1") + b":%b\r\n" % n.addr.split(":")[1].encode() for n in nodes]
            return b"*1\r\n*%d\r\n:0\r\n:16383\r\n" % (2 + len(nodes)) + b"".join(entries)
        if name == "SNOWFLAKE":
            self.id += count
            lines = b"".join(b":%d\r\n" % (self.id - count + i) for i in range(count))
            return lines if len(command) == 1 else b"*%d\r\n" % count + lines
        if name == "WORKER" and command[1] == "LEASE":
            start = int(command[3])
            return b"*5\r\n:300\r\n:%d\r\n:%d\r\n" % (start, start + int(command[4])) + bulk("41/5/5/12") + b":0\r\n"
        if name == "WORKER":
            return b"+OK\r\n"
        if name == "INTERVAL":
            now = CLOCK_START + steady().lo
            numbers = now, now + self.width, now + self.limit, 1, int(CLUSTER, 16), int(command[1])
            return bulk(struct.pack(">6Q", *numbers))
        if self.leader is not self:
            return f"-MOVED 0 {self.leader.addr}\r\n".encode()
        return self.stamps(name, count)

    def stamps(self, name: str, count: int) -> bytes:
        if name == "TS64":
            self.time += 1_000_000
            first = Timestamp64.at_or_after(Timestamp(self.time, 0))
            self.time = Timestamp64(first + count).timestamp().time
            return bulk(str(first))
        first16 = Timestamp(self.time, self.index)
        self.index += count
        return bulk(bytes(first16))


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Has a test be a coroutine."""

    @functools.wraps(test)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return wrapped


@contextlib.contextmanager
def beside(nodes: int = 1) -> Iterator[list[Node]]:
    """Runs nodes in a thread, the first of which leads, for tests that do not run in a loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> list[Node]:
        leader = await Node().start()
        others = [await Node(leader).start() for _ in range(nodes - 1)]
        for i, node in enumerate(others, 1):
            node.id += i << 40
        return [leader, *others]

    async def stop() -> None:
        for node in started:
            await node.stop()

    started = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield started
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
