"""Measures the client: python bench/bench.py [--callers N] [--seconds S] [--lone] [--sync] HOST:PORT ..."""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Awaitable, Callable

import isotone
from isotone._resp import encode


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


async def repeat(seconds: float, ask: Callable[[], Awaitable[object]]) -> list[float]:
    took = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        await ask()
        took.append(time.perf_counter() - begin)
    return took


async def lone(addrs: list[str], seconds: float, rounds: int) -> None:
    """Measures the client and a bare socket in turn, so that both have the same machine."""
    leaders: list[str] = []
    options = isotone.Options(hooks=isotone.Hooks(leader=leaders.append))
    async with isotone.Client(*addrs, options=options) as client:
        loop = asyncio.get_running_loop()
        host, _, port = leaders[-1].rpartition(":")
        bare = socket.create_connection((host, int(port)))
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bare.setblocking(False)
        request = encode("TS", "1")

        async def exchange() -> None:
            await loop.sock_sendall(bare, request)
            assert len(await loop.sock_recv(bare, 4096)) == 23

        ratios = []
        for _ in range(rounds):
            mine = await repeat(seconds / rounds / 2, client.timestamp)
            other = await repeat(seconds / rounds / 2, exchange)
            ratios.append(statistics.median(mine) / statistics.median(other))
            print("client", line(mine, sum(mine)), "bare", line(other, sum(other)), f"ratio {ratios[-1]:.2f}")
        print(f"median ratio {statistics.median(ratios):.2f}")
        bare.close()


def threads(addrs: list[str], callers: int, seconds: float) -> None:
    from isotone import sync

    with sync.Client(*addrs) as client:
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
    parser.add_argument("--lone", action="store_true", help="one call at a time, beside a bare asyncio socket")
    parser.add_argument("--sync", action="store_true", help="threads and the synchronous client")
    parser.add_argument("addrs", nargs="+", metavar="HOST:PORT")
    args = parser.parse_args()
    if args.lone:
        asyncio.run(lone(args.addrs, args.seconds, 5))
    elif args.sync:
        threads(args.addrs, args.callers, args.seconds)
    else:
        asyncio.run(load(args.addrs, args.callers, args.seconds))


if __name__ == "__main__":
    main()
