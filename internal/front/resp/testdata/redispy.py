"""Asks for timestamps with redis-py, and prints them in hexadecimal, in the order in
which they came. Arguments: what to do, then the addresses of the nodes. The first leads."""

import asyncio
import sys
import time

import redis
import redis.asyncio
import redis.cluster
import redis.exceptions


def show(timestamps):
    for ts in timestamps:
        print(ts.hex())


def plain(nodes):
    host, port = nodes[0]
    for protocol in 2, 3:
        r = redis.Redis(host=host, port=port, protocol=protocol, client_name="test")
        assert r.ping()
        assert r.echo("x") == b"x"
        assert r.client_getname() in ("test", b"test")
        assert r.info("isotone")["node_id"] == 1
        assert r.info("cluster")["isotone_cluster_id"] == "0000000000000abc"
        assert r.info()["role"] == "master"
        assert r.config_get("save") == {"save": ""}
        assert r.command_count() == len(r.command())
        assert r.client_id() > 0
        show(r.execute_command("TS") for _ in range(100))
        pipe = r.pipeline(transaction=False)
        for _ in range(1000):
            pipe.execute_command("TS", 1000, "LEASE")
        show(pipe.execute())
        try:
            r.execute_command("TS", 0)
            raise AssertionError("TS 0 was answered")
        except redis.exceptions.ResponseError as e:
            assert "count" in str(e), e
        r.close()
    r = redis.Redis(host=nodes[1][0], port=nodes[1][1])
    try:
        r.execute_command("TS")
        raise AssertionError("a follower answers")
    except redis.exceptions.ResponseError as e:
        assert "%s:%d" % nodes[0] in str(e), e


async def in_asyncio(nodes):
    host, port = nodes[0]
    r = redis.asyncio.Redis(host=host, port=port)
    show([await r.execute_command("TS") for _ in range(100)])
    await r.aclose()


def cluster_client(nodes):
    start = [redis.cluster.ClusterNode(host, port) for host, port in nodes]
    return redis.cluster.RedisCluster(startup_nodes=start)


def cluster(nodes):
    r = cluster_client(nodes)
    assert r.cluster_info(target_nodes=r.get_random_node())["cluster_state"] == "ok"
    primary = r.get_primaries()
    assert [(n.host, n.port) for n in primary] == nodes[:1], primary
    assert len(r.get_replicas()) == 2
    show(r.execute_command("TS", 1) for _ in range(100))
    show([r.execute_command("TS", target_nodes=r.get_default_node())])
    pipe = r.pipeline()
    for i in range(1000):
        pipe.execute_command("TS", i + 1)
    show(pipe.execute())
    r.close()


def follow(nodes):
    r = cluster_client(nodes)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        try:
            show([r.execute_command("TS", 1)])
        except (redis.exceptions.RedisClusterException, redis.exceptions.RedisError):
            time.sleep(0.02)
    r.close()


if __name__ == "__main__":
    todo = sys.argv[1]
    addrs = [(a.rsplit(":", 1)[0], int(a.rsplit(":", 1)[1])) for a in sys.argv[2:]]
    if todo == "asyncio":
        asyncio.run(in_asyncio(addrs))
    else:
        {"plain": plain, "cluster": cluster, "follow": follow}[todo](addrs)
