"""Measures the client: python bench/bench.py [--callers N] [--seconds S] [--lone] [--sync] HOST:PORT ...

Prints how many calls were answered, how many in a second, and their median and 99th percentile in microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import threading
import time

import isotone
from isotone._resp import encode

REQUEST = encode("TS", "1")


def line(took: list[float], seconds: float) -> str:
    took.sort()
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    return f"{len(took)} {len(took) / seconds:.0f} {p50 * 1e6:.0f} {p99 * 1e6:.0f}"


async def load(addrs: list[str], callers: int, seconds: float) -> None:
    async with isotone.Client(*addrs) as client:
        took: list[float] = []
        begin = time.perf_counter()
        end = begin + seconds

        async def caller() -> None:
            clock, timestamp, add = time.perf_counter, client.timestamp, took.append
            now = clock()
            while now < end:
                await timestamp()
                then, now = now, clock()
                add(now - then)

        await asyncio.gather(*(caller() for _ in range(callers)))
        print(line(took, time.perf_counter() - begin))


def bare_socket(leader: str) -> socket.socket:
    host, _, port = leader.rpartition(":")
    bare = socket.create_connection((host, int(port)))
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bare


def show(mine: list[float], other: list[float]) -> None:
    ratio = statistics.median(mine) / statistics.median(other)
    print(f"client {line(mine, sum(mine))}\nbare   {line(other, sum(other))}\nratio of the medians {ratio:.2f}")


async def lone(addrs: list[str], seconds: float) -> None:
    """Measures the client and a bare socket in turn, call by call, so that both have the same machine."""
    leaders: list[str] = []
    options = isotone.Options(hooks=isotone.Hooks(leader=leaders.append))
    async with isotone.Client(*addrs, options=options) as client:
        loop, clock, bare = asyncio.get_running_loop(), time.perf_counter, bare_socket(leaders[-1])
        bare.setblocking(False)
        mine, other = [], []
        end = clock() + seconds
        while (begin := clock()) < end:
            await client.timestamp()
            middle = clock()
            await loop.sock_sendall(bare, REQUEST)
            assert len(await loop.sock_recv(bare, 4096)) == 23
            mine.append(middle - begin)
            other.append(clock() - middle)
        show(mine, other)
        bare.close()


def lone_thread(addrs: list[str], seconds: float) -> None:
    """The same for the client for threads, beside a blocking socket."""
    leaders: list[str] = []
    options = isotone.Options(hooks=isotone.Hooks(leader=leaders.append))
    with isotone.sync.Client(*addrs, options=options) as client:
        clock, bare = time.perf_counter, bare_socket(leaders[-1])
        mine, other = [], []
        end = clock() + seconds
        while (begin := clock()) < end:
            client.timestamp()
            middle = clock()
            bare.sendall(REQUEST)
            assert len(bare.recv(4096)) == 23
            mine.append(middle - begin)
            other.append(clock() - middle)
        show(mine, other)
        bare.close()


def threads(addrs: list[str], callers: int, seconds: float) -> None:
    with isotone.sync.Client(*addrs) as client:
        took: list[float] = []
        begin = time.perf_counter()

        def caller() -> None:
            while (now := time.perf_counter()) < begin + seconds:
                client.timestamp()
                took.append(time.perf_counter() - now)

        work = [threading.Thread(target=caller) for _ in range(callers)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        print(line(took, time.perf_counter() - begin))


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints: count rate p50_us p99_us")
    parser.add_argument("--callers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--lone", action="store_true", help="one call at a time, beside a bare socket")
    parser.add_argument("--sync", action="store_true", help="threads and the synchronous client")
    parser.add_argument("addrs", nargs="+", metavar="HOST:PORT")
    args = parser.parse_args()
    if args.lone and args.sync:
        lone_thread(args.addrs, args.seconds)
    elif args.lone:
        asyncio.run(lone(args.addrs, args.seconds))
    elif args.sync:
        threads(args.addrs, args.callers, args.seconds)
    else:
        asyncio.run(load(args.addrs, args.callers, args.seconds))


if __name__ == "__main__":
    main()
