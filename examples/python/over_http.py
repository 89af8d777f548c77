"""Timestamps and IDs from an Isotone cluster over HTTP, with only the standard library."""

import http.client
import itertools
import json
import random
import sys
import time


class Oracle:
    """Keeps one connection to the leader, which it learns from any member."""

    def __init__(self, addrs):
        self._turns = itertools.cycle(random.sample(addrs, len(addrs)))
        self._leader, self._conn = None, None

    def timestamps(self, count=1, timeout=2.0):
        """Returns (time, index) of the first of count timestamps; that of the i-th, from 0, is (time, index + i)."""
        body = self._get(f"/timestamp?n={count}&format=range", timeout)
        return int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big")

    def ids(self, count=1, timeout=2.0):
        """Returns count snowflake IDs. Any member issues them, not only the leader."""
        return [int(line) for line in self._get(f"/api/snowflake?n={count}", timeout).split()]

    def _get(self, target, timeout):
        deadline, pause, trouble = time.monotonic() + timeout, 0.001, None
        while time.monotonic() < deadline:
            try:
                status, headers, body = self._ask(target)
                if status == 200:
                    return body
                error = json.loads(body)["error"]
                if status == 409:  # not the leader
                    self._follow(headers["Isotone-Leader"])
                    continue
                if status not in (503, 504):
                    raise ValueError(f"{error['code']}: {error['message']}")
                trouble = error["message"]
            except (OSError, http.client.HTTPException) as error:
                trouble = error
            self._follow(None)
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 0.05)
        raise TimeoutError(f"no answer in {timeout} s: {trouble}")

    def _ask(self, target):
        if self._conn is None:
            addr = self._leader or next(self._turns)
            self._conn = http.client.HTTPConnection(addr, timeout=0.5)
        self._conn.request("GET", target)
        response = self._conn.getresponse()
        return response.status, response.headers, response.read()

    def _follow(self, leader):
        if self._conn is not None:
            self._conn.close()
        self._leader, self._conn = leader, None

    def close(self):
        self._follow(None)


def main(addrs):
    oracle = Oracle(addrs)
    last = (0, 0)
    for _ in range(1000):
        ts = oracle.timestamps()
        assert ts > last, (ts, last)
        last = ts
    print(f"1,000 timestamps in order, the last {last[0]:016x}{last[1]:016x}")
    try:
        ids = oracle.ids(10)
        assert len(set(ids)) == 10
        print("ids:", *ids)
    except ValueError as error:  # a cluster may be set up without ids
        print("no IDs:", error)
    oracle.close()


if __name__ == "__main__":
    main(sys.argv[1:] or ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"])
