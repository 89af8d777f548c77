"""The driver of this client for the conformance kit; conformance/README.md describes drivers."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "src"))

import isotone

FEATURES = [
    "connections", "queue_max",
    "credentials", "tls", "client_certificate", "above", "lazy", "events", "generator", "generator_clock",
    "clock",
]  # fmt: skip
LONG = ("new", "call", "generator", "next", "clock", "interval", "stamp", "wait")


def write(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def tls(given: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=given["ca"])
    if given.get("cert"):
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(given["cert"] + "\n" + given["key"])
            file.flush()
            context.load_cert_chain(file.name)
    return context


class Driver:
    def __init__(self) -> None:
        self.clients: dict[str, isotone.Client] = {}
        self.credentials: dict[str, isotone.Credentials] = {}
        self.generators: dict[str, isotone.Generator] = {}
        self.clocks: dict[str, int] = {}
        self.cluster_clocks: dict[str, isotone.Clock] = {}
        self.running: dict[int, asyncio.Task[None]] = {}

    async def begin(self, c: dict[str, Any]) -> None:
        task = asyncio.create_task(self.answer(c))
        if c["do"] not in LONG:
            await task
            return
        self.running[c["id"]] = task
        task.add_done_callback(lambda _: self.running.pop(c["id"]))
        await asyncio.sleep(0)  # it has begun

    async def answer(self, c: dict[str, Any]) -> None:
        try:
            write(id=c["id"], ok=await self.do(c) or {})
        except isotone.Error as error:
            write(id=c["id"], error=error.code, message=str(error))
        except asyncio.CancelledError:
            write(id=c["id"], error="canceled", message="canceled")
        except LookupError as error:
            write(id=c["id"], error="unsupported", message=repr(error))
        except Exception as error:
            write(id=c["id"], error="internal", message=repr(error))

    async def do(self, c: dict[str, Any]) -> dict[str, Any] | None:
        action = getattr(self, "do_" + c["do"], None)
        if action is None:
            raise LookupError(c["do"])
        result: dict[str, Any] | None = await action(c)
        return result

    async def do_hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocol": 1,
            "client": "isotone-python",
            "version": isotone.__version__,
            "features": FEATURES,
        }

    async def do_sync(self, _: dict[str, Any]) -> None:
        pass

    async def do_new(self, c: dict[str, Any]) -> None:
        name, given = c["client"], dict(c["options"])
        if given.get("user"):
            self.credentials[name] = isotone.Credentials(given["user"], given["secret"])
        hooks = isotone.Hooks(
            leader=lambda addr: write(event="leader", client=name, addr=addr),
            rejected=lambda addr, error: write(event="rejected", client=name, addr=addr, error=error.code),
            retried=lambda addr, _: write(event="retried", client=name, addr=addr),
        )
        options = isotone.Options(
            cluster=given.get("cluster", ""),
            floor=isotone.Timestamp.from_hex(given["floor"]) if given.get("floor") else isotone.Timestamp(),
            mode=given.get("mode") or "default",
            queue_max=given.get("queue_max") or 1 << 16,
            connections=given.get("connections") or 1,
            dial_timeout=(given.get("dial_timeout_ms") or 1000) / 1000,
            tls=tls(given["tls"]) if given.get("tls") else None,
            server_name=(given.get("tls") or {}).get("server_name", ""),
            credentials=(lambda: self.credentials[name]) if given.get("user") else None,
            lazy=bool(given.get("lazy")),
            hooks=hooks,
        )
        client = isotone.Client(*given["addrs"], options=options)
        await client.start(c["deadline_ms"] / 1000)
        self.clients[name] = client

    async def do_call(self, c: dict[str, Any]) -> dict[str, Any]:
        method, keywords = c["method"], {"timeout": c["deadline_ms"] / 1000}
        if c.get("mode"):
            keywords["mode"] = c["mode"]
        if c.get("above"):
            keywords["above"] = isotone.Timestamp.from_hex(c["above"])
        single = method in ("timestamp", "timestamp64", "id")
        got = await getattr(self.clients[c["client"]], method)(*([] if single else [c["count"]]), **keywords)
        if method in ("id", "ids"):
            return {"ids": [str(id_) for id_ in ([got] if single else got)]}
        return {"first": str(got if single else got.first), "count": 1 if single else got.size}

    async def do_cancel(self, c: dict[str, Any]) -> None:
        if c["call"] in self.running:
            self.running[c["call"]].cancel()

    async def do_cluster(self, c: dict[str, Any]) -> dict[str, Any]:
        return {"cluster": self.clients[c["client"]].cluster}

    async def do_credentials(self, c: dict[str, Any]) -> None:
        self.credentials[c["client"]] = isotone.Credentials(c["user"], c["secret"])

    async def do_close(self, c: dict[str, Any]) -> None:
        if c["client"] in self.clients:
            await self.clients[c["client"]].close()

    async def do_generator(self, c: dict[str, Any]) -> dict[str, Any]:
        name = c["generator"]
        if "now_ms" in c:
            self.clocks[name] = c["now_ms"]
        options = isotone.GeneratorOptions(
            lease=c.get("lease_ms", 30_000) / 1000,
            worker=c.get("worker"),
            now=(lambda: self.clocks[name]) if "now_ms" in c else None,
            ahead_max=c.get("ahead_max_ms", 1000) / 1000,
        )
        client = self.clients[c["client"]]
        self.generators[name] = await client.generator(options, timeout=c["deadline_ms"] / 1000)
        return await self.do_lease(c)

    async def do_lease(self, c: dict[str, Any]) -> dict[str, Any]:
        generator = self.generators[c["generator"]]
        return {"worker": generator.worker, "start": generator.lease[0], "end": generator.lease[1]}

    async def do_now(self, c: dict[str, Any]) -> None:
        self.clocks[c["generator"]] = c["now_ms"]

    async def do_next(self, c: dict[str, Any]) -> dict[str, Any]:
        generator = self.generators[c["generator"]]
        return {"ids": [str(i) for i in await generator.next_n(c["count"], timeout=c["deadline_ms"] / 1000)]}

    async def do_try(self, c: dict[str, Any]) -> dict[str, Any]:
        return {"ids": [str(i) for i in self.generators[c["generator"]].take(c["count"])]}

    async def do_clock(self, c: dict[str, Any]) -> None:
        self.cluster_clocks[c["clock"]] = await self.clients[c["client"]].clock(timeout=c["deadline_ms"] / 1000)

    async def do_interval(self, c: dict[str, Any]) -> dict[str, Any]:
        return {name: str(number) for name, number in self.cluster_clocks[c["clock"]].now()._asdict().items()}

    async def do_stamp(self, c: dict[str, Any]) -> dict[str, Any]:
        clock = self.cluster_clocks[c["clock"]]
        return {"timestamps": [str(t) for t in await clock.timestamps(c["count"], timeout=c["deadline_ms"] / 1000)]}

    async def do_past(self, c: dict[str, Any]) -> dict[str, Any]:
        timestamp = isotone.Timestamp.from_hex(c["timestamp"])
        return {"past": self.cluster_clocks[c["clock"]].is_past(timestamp)}

    async def do_wait(self, c: dict[str, Any]) -> None:
        timestamp = isotone.Timestamp.from_hex(c["timestamp"])
        await self.cluster_clocks[c["clock"]].wait(timestamp, timeout=c["deadline_ms"] / 1000)

    async def do_stop(self, c: dict[str, Any]) -> None:
        if c["clock"] in self.cluster_clocks:
            await self.cluster_clocks[c["clock"]].close()

    async def do_end(self, c: dict[str, Any]) -> None:
        await self.generators[c["generator"]].close()


async def main() -> None:
    driver, lines = Driver(), asyncio.StreamReader(limit=4 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        await driver.begin(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main())
