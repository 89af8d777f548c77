"""Timestamps from an Isotone cluster, over the Redis protocol.

The cluster client of redis-py finds the leader from any member and follows it. It raises
while there is no leader, so `timestamps` tries again until its deadline.
"""

import random
import sys
import time

from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError


class Oracle:
    def __init__(self, addrs):
        self._nodes = [ClusterNode(host, int(port)) for host, port in (a.rsplit(":", 1) for a in addrs)]
        self._cluster = None

    def _connect(self):
        if self._cluster is None:
            self._cluster = RedisCluster(startup_nodes=self._nodes, socket_timeout=0.5, socket_connect_timeout=0.5)
        return self._cluster

    def timestamps(self, count=1, timeout=2.0):
        """Returns (time, index) of the first of count timestamps; that of the i-th, from 0, is (time, index + i)."""
        deadline, pause = time.monotonic() + timeout, 0.001
        while True:
            try:
                # The count is never omitted: redis-py uses it to route the command.
                first = self._connect().execute_command("TS", count)
                return int.from_bytes(first[:8], "big"), int.from_bytes(first[8:], "big")
            except (RedisError, RedisClusterException) as error:
                # A retry is always safe: a timestamp that nobody has received orders nothing.
                if time.monotonic() + pause > deadline:
                    raise TimeoutError(f"no timestamp in {timeout} s") from error
                self.close()
                time.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, 0.05)

    def close(self):
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def main(addrs):
    oracle = Oracle(addrs)
    last = (0, 0)
    for _ in range(1000):
        ts = oracle.timestamps()
        assert ts > last, (ts, last)  # tuples compare as timestamps do
        last = ts
    first = oracle.timestamps(100)
    assert first > last
    print(f"1,000 timestamps in order, the last {last[0]:016x}{last[1]:016x}")
    print(f"and a range of 100 from {first[0]:016x}{first[1]:016x}")
    oracle.close()


if __name__ == "__main__":
    main(sys.argv[1:] or ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"])
