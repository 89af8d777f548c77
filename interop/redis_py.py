"""redis-py, plain, asyncio and as a cluster client, in both protocols.

Arguments: HOST:PORT of each node, the leader first. Prints what was seen, or fails.
"""

import asyncio
import json
import sys
import urllib.request

import redis
import redis.asyncio
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ExecAbortError, MovedError, ResponseError

ids, last = set(), bytes(16)


def ascending(*timestamps):
    """Demands timestamps that are larger than all before."""
    global last
    for ts in timestamps:
        assert isinstance(ts, bytes) and len(ts) == 16, ts
        assert ts > last, (ts.hex(), last.hex())
        last = ts


def distinct(*answers, kind=int):
    """Demands IDs that nobody had before."""
    for one in answers:
        assert type(one) is kind, one
        assert int(one) not in ids and int(one) > 1 << 53, one
        ids.add(int(one))


def refused(call, error, text):
    try:
        call()
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"no {error.__name__} with {text}")


def pipelines(r):
    for transaction in False, True:
        pipe = r.pipeline(transaction=transaction)
        for _ in range(200):
            pipe.execute_command("TS", 10)
            pipe.execute_command("SNOWFLAKE")
            pipe.execute_command("SNOWFLAKE", 2, "AS", "STRING")
        answers = pipe.execute()
        ascending(*answers[0::3])
        distinct(*answers[1::3])
        for two in answers[2::3]:
            distinct(*two, kind=bytes)


def plain(nodes, protocol):
    r = redis.Redis(*nodes[0], protocol=protocol)
    distinct(r.execute_command("SNOWFLAKE"), *r.execute_command("SNOWFLAKE", 1000))
    distinct(r.execute_command("SNOWFLAKE", "AS", "STRING"), kind=bytes)
    for _ in range(100):
        ascending(r.execute_command("TS"), r.execute_command("TS", 5, "LEASE"))
    pipelines(r)
    pipe = r.pipeline()
    pipe.watch("a")
    pipe.multi()
    pipe.execute_command("TS")
    ascending(*pipe.execute())
    refused(lambda: r.execute_command("TS", 0), ResponseError, "count")
    refused(lambda: r.execute_command("NOSUCH"), ResponseError, "unknown command")
    refused(lambda: r.execute_command("CLIENT", "TRACKING", "ON"), ResponseError, "nothing to cache")
    bad = r.pipeline()
    bad.execute_command("TS")
    bad.execute_command("NOSUCH")
    refused(bad.execute, (ResponseError, ExecAbortError), "unknown command")
    r.close()

    follower = redis.Redis(*nodes[1], protocol=protocol)
    distinct(*follower.execute_command("SNOWFLAKE", 5))
    refused(lambda: follower.execute_command("TS"), MovedError, "%s:%d" % nodes[0])
    pipe = follower.pipeline()
    pipe.execute_command("TS")
    refused(pipe.execute, MovedError, "%s:%d" % nodes[0])
    follower.close()


async def in_asyncio(nodes, protocol):
    r = redis.asyncio.Redis(host=nodes[0][0], port=nodes[0][1], protocol=protocol)
    for _ in range(50):
        ascending(await r.execute_command("TS"))
    distinct(*await asyncio.gather(*(r.execute_command("SNOWFLAKE") for _ in range(50))))
    async with r.pipeline() as pipe:
        pipe.execute_command("TS").execute_command("TS", 2)
        ascending(*await pipe.execute())
    await r.aclose()


def cluster(nodes, protocol):
    r = RedisCluster(startup_nodes=[ClusterNode(*nodes[2])], protocol=protocol)
    for i in range(100):
        ascending(r.execute_command("TS", i + 1))
    distinct(*r.execute_command("SNOWFLAKE", 3))
    for _ in range(20):
        distinct(*r.execute_command("SNOWFLAKE", 3, target_nodes=RedisCluster.RANDOM))
    distinct(r.execute_command("SNOWFLAKE", target_nodes=r.get_random_node()))
    pipe = r.pipeline()
    for i in range(100):
        pipe.execute_command("TS", i + 1)
        pipe.execute_command("SNOWFLAKE", i + 1)
    answers = pipe.execute()
    ascending(*answers[0::2])
    for some in answers[1::2]:
        distinct(*some)
    pipe = r.pipeline(transaction=True)
    for _ in range(10):
        pipe.execute_command("TS", 3)
    ascending(*pipe.execute())
    session = "5f0c3a9b2d4e7181"
    worker, start, *_ = r.execute_command("WORKER", "LEASE", session, 1, 1000)
    assert r.execute_command("WORKER", "RELEASE", session, worker, start, start) in (b"OK", True, "OK")
    r.close()


NAMES = ["orders", "tenant-7/log", "b"]


def operate(addr, path, change):
    """Has an operator change timelines."""
    body = json.dumps(change).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://{addr}/admin/{path}", body, {"Content-Type": "application/json"})).close()


def timelines(nodes, protocol):
    """The client finds the owners of timelines: those in groups of hash slots by MOVED, and one in a group of its own by ASK."""
    r = RedisCluster(startup_nodes=[ClusterNode(*nodes[1])], protocol=protocol)
    before = {}

    def check(name, ts):
        assert isinstance(ts, bytes) and len(ts) == 16 and ts > before.get(name, bytes(16)), (name, ts)
        before[name] = ts

    for name in NAMES + ["apart"]:
        for n in range(20):
            check(name, r.execute_command("TSIN", name, n + 1))
        assert int(r.execute_command("TS64IN", name)) > 1 << 53
    pipe = r.pipeline()
    for name in NAMES + ["apart"]:
        pipe.execute_command("TSIN", name)
    for name, ts in zip(NAMES + ["apart"], pipe.execute(), strict=True):
        check(name, ts)
    r.close()


def main(addrs):
    operate(addrs[0], "timelines", {"action": "create", "names": NAMES})
    operate(addrs[0], "timelines", {"action": "make", "group": "redis-py"})
    operate(addrs[0], "timelines", {"action": "create", "names": ["apart"], "group": "redis-py"})
    nodes = [(host, int(port)) for host, port in (a.rsplit(":", 1) for a in addrs)]
    for protocol in 2, 3:
        plain(nodes, protocol)
        asyncio.run(in_asyncio(nodes, protocol))
        cluster(nodes, protocol)
        timelines(nodes, protocol)
    print(f"redis-py: {len(ids)} IDs")


if __name__ == "__main__":
    main(sys.argv[1:])
