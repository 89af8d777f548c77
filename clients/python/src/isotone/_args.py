"""Arguments that many calls have."""

from __future__ import annotations

import math

from .errors import InvalidArgumentError
from .timestamps import Timestamp

DEFAULT = float("-inf")  # this object stands for the timeout of the options


def counted(count: int, most: int) -> int:
    """Checks a number of timestamps or IDs."""
    if not isinstance(count, int) or not 1 <= count <= most:
        raise InvalidArgumentError(f"{count!r:.40} at once: want a whole number from 1 to {most}")
    return count


def is_timeout(value: object) -> bool:
    """Reports whether a value is one of seconds, or None."""
    return value is None or (isinstance(value, (int, float)) and not math.isnan(value))


def checked(timestamp: Timestamp) -> Timestamp:
    """Checks the type of a timestamp."""
    if not isinstance(timestamp, Timestamp):
        kind = type(timestamp).__name__
        raise InvalidArgumentError(f"want a Timestamp, got {kind}; see Timestamp.from_hex and Timestamp64.timestamp")
    return timestamp
