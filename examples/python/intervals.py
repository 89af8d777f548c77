"""Timestamps of the cluster clock from any node, over HTTP, with only the standard library.

For clusters that run with INTERVAL_MS. A timestamp comes from the nearest node, whichever leads. The
operation that uses it is complete when a node, the same or another, has answered that it is past.
"""

import concurrent.futures
import http.client
import itertools
import json
import random
import sys
import threading
import time

from over_http import Oracle


class Clock:
    """Asks one node, and another one if that has no valid reading or does not answer. Threads may share it."""

    def __init__(self, addrs):
        self._addrs = itertools.cycle(addrs)  # the nearest first
        self._addr = next(self._addrs)
        self._idle = []  # connections to self._addr
        self._lock = threading.Lock()

    def timestamp(self, timeout=2.0):
        """Returns a timestamp as 16 bytes, which compare as timestamps do. Then wait for it."""
        return self._get("/interval?n=1", timeout)

    def wait(self, ts, timeout=2.0):
        """Returns when ts is past for everyone: whatever begins after that gets a larger timestamp."""
        self._get(f"/interval?wait={ts.hex()}", timeout)

    def _get(self, target, timeout):
        deadline, pause, trouble = time.monotonic() + timeout, 0.001, None
        while time.monotonic() < deadline:
            addr, conn = self._take()
            try:
                conn.request("GET", target)
                response = conn.getresponse()
                body = response.read()
                if response.status == 200:
                    self._keep(addr, conn)
                    return body
                error = json.loads(body)["error"]
                if response.status not in (503, 504):
                    raise ValueError(f"{error['code']}: {error['message']}")
                trouble = error["message"]
            except (OSError, http.client.HTTPException) as error:
                trouble = error
            # A retry is always safe: a timestamp that nobody has received orders nothing.
            conn.close()
            self._leave(addr)
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 0.05)
        raise TimeoutError(f"no answer in {timeout} s: {trouble}")

    def _take(self):
        with self._lock:
            # A paused node accepts connections and does not answer, so each attempt has a timeout.
            return self._addr, self._idle.pop() if self._idle else http.client.HTTPConnection(self._addr, timeout=0.5)

    def _keep(self, addr, conn):
        with self._lock:
            if addr == self._addr:
                self._idle.append(conn)
                return
        conn.close()

    def _leave(self, addr):
        """Asks another node from now on, unless another thread has seen to that."""
        with self._lock:
            if addr == self._addr:
                self._addr = next(self._addrs)
                self.close()

    def close(self):
        while self._idle:
            self._idle.pop().close()


class Store:
    """Stands for a database with versions: a write takes as long as a replica does to answer."""

    def __init__(self):
        self.versions = []

    def write(self, ts, value):
        time.sleep(0.001)
        self.versions.append((ts, value))


def transact(clock, store, beside, value):
    """Writes a value with a timestamp, and waits beside the write. Returns when both are done."""
    ts = clock.timestamp()
    waited = beside.submit(clock.wait, ts)
    store.write(ts, value)
    waited.result()
    return ts


def main(addrs):
    clocks = [Clock(addrs[i:] + addrs[:i]) for i in range(len(addrs))]  # one near each node
    oracle, store = Oracle(addrs), Store()
    last = b""
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        for i in range(300):
            try:
                ts = transact(clocks[i % len(clocks)], store, beside, i)
            except ValueError as error:  # a cluster may be set up without intervals
                if "not_found" not in str(error):
                    raise
                print("no intervals:", error)
                break
            assert ts > last, (ts, last)
            parts = oracle.timestamps()  # one order with those of the oracle
            last = parts[0].to_bytes(8, "big") + parts[1].to_bytes(8, "big")
            assert last > ts, (last, ts)
        else:
            assert store.versions == sorted(store.versions)
            print(f"300 writes in order with 300 timestamps of the oracle, the last {ts.hex()}")
    for clock in clocks:
        clock.close()
    oracle.close()


if __name__ == "__main__":
    main(sys.argv[1:] or ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"])
