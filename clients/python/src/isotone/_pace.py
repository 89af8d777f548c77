"""How long a client waits: pauses after failures, and for answers. Times are in seconds."""

from __future__ import annotations

import random
from collections.abc import Callable

#: Draws a number from 0 up to, and without, 1.
Random = Callable[[], float]

PAUSE_MIN = 0.001
#: Bounds the pause after a node that refused or a dial that failed, before jitter.
PAUSE_MAX = 0.1
#: Bounds the pause between two questions for the leader in the first EAGER seconds of a search.
EAGER_PAUSE_MAX = 0.008
EAGER = 1.0
#: Bounds the pause for a node that refuses the client.
REFUSED_PAUSE_MAX = 1.0
#: Bounds the pause for a member that is not needed, because others make IDs.
SPARE_PAUSE_MAX = 2.0
#: Bounds the pause that a node asks for because of a quota.
QUOTA_PAUSE_MAX = 10.0


def pause(failures: int, most: float, draw: Random = random.random) -> float:
    """Returns the pause after that many failures in a row: exponential, with a jitter of half."""
    base = min(PAUSE_MIN * (1 << min(failures, 16)), most)
    return base / 2 + draw() * base


def quota_pause(retry_after: float, failures: int, draw: Random = random.random) -> float:
    """Returns the pause after a refusal because of a quota: what the node asks for, and up to an eighth."""
    asked = min(retry_after, QUOTA_PAUSE_MAX)
    if asked <= 0:
        return pause(failures, REFUSED_PAUSE_MAX, draw)
    return asked + draw() * asked / 8


TIMEOUT_MIN = 0.025
TIMEOUT_MAX = 5.0
TIMEOUT_INITIAL = 0.25


class Estimate:
    """The time after which an answer is late, as TCP derives its retransmission timeout (RFC 6298)."""

    def __init__(self, least: float = TIMEOUT_MIN) -> None:
        self._least = least
        self._mean = 0.0
        self._deviation = 0.0
        self.timeout = TIMEOUT_INITIAL

    def add(self, took: float) -> None:
        """Takes in how long an answer took."""
        if self._mean:
            difference = took - self._mean
            self._deviation += (abs(difference) - self._deviation) / 4
            self._mean += difference / 8
        else:
            self._mean, self._deviation = took, took / 2
        self.timeout = min(max(self._mean + 4 * self._deviation, self._least), TIMEOUT_MAX)

    def double(self) -> None:
        """Doubles the timeout, which shrinks again with every answer."""
        self.timeout = min(2 * self.timeout, TIMEOUT_MAX)
        self._mean = self._mean or PAUSE_MIN
        self._deviation = (self.timeout - self._mean) / 4
