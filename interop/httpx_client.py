"""httpx with h2, over TLS and with prior knowledge.

Arguments: HOST:PORT of each node, the leader first. Prints what was seen, or fails.
"""

import asyncio
import sys

import httpx

ids, last = set(), bytes(16)


def ascending(ts):
    """Demands a timestamp that is larger than all before."""
    global last
    assert isinstance(ts, bytes) and len(ts) == 16 and ts > last, (ts.hex(), last.hex())
    last = ts


def distinct(text):
    """Demands IDs that nobody had before."""
    for one in text.split():
        assert int(one) > 1 << 53 and one not in ids, one
        ids.add(one)


async def use(base):
    async with httpx.AsyncClient(http1=False, http2=True, verify=False, base_url=base) as client:
        for _ in range(100):
            answer = await client.get("/timestamp")
            assert answer.http_version == "HTTP/2" and answer.status_code == 200, answer
            ascending(answer.content)
        for answer in await asyncio.gather(*(client.get("/api/snowflake?n=100") for _ in range(100))):
            distinct(answer.text)
        distinct((await client.get("/api/snowflake?n=65536")).text)  # needs the windows to move
        answer = await client.get("/timestamp?n=0")
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_argument", answer.text
        answer = await client.head("/members")
        assert answer.status_code == 200 and not answer.content, answer
        answer = await client.post("/timestamp", content=bytes(10_000))
        assert answer.status_code == 405, answer
        async with client.stream("GET", "/live/state/stream") as events:
            async for line in events.aiter_lines():
                if line.startswith("data:"):
                    break
        ascending((await client.get("/timestamp")).content)


for scheme in "http", "https":
    asyncio.run(use(f"{scheme}://{sys.argv[1]}"))
print(f"HTTP/2 with and without TLS: {len(ids)} IDs")
