"""Timestamps of 16 bytes and of 64 bits, and ranges of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .errors import InvalidArgumentError

_U64_MAX = (1 << 64) - 1
_COUNTER_BITS = 18
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_NANOS_PER_MILLI = 1_000_000
_BYTES = struct.Struct(">QQ")
_HEX = frozenset("0123456789abcdefABCDEF")

#: The most timestamps that one call may ask for.
COUNT_MAX = 1 << 32
#: The most timestamps of 64 bits that one call may ask for.
COUNT64_MAX = 1 << _COUNTER_BITS


class Timestamp(NamedTuple):
    """A point in the order that the cluster keeps. Only the order of timestamps is meaningful.

    ``Timestamp()`` is before all that were ever issued.
    """

    #: Nanoseconds since 1970, close to the wall clock.
    time: int = 0
    #: Counts the timestamps of one time, from 0.
    index: int = 0  # type: ignore[assignment] # hides tuple.index

    def __str__(self) -> str:
        return self.hex()

    def __bytes__(self) -> bytes:
        """Returns 16 bytes, big-endian. They compare as timestamps do."""
        return _BYTES.pack(self.time, self.index)

    def hex(self) -> str:
        """Returns 32 hexadecimal digits in lower case. They compare as timestamps do."""
        return f"{self.time:016x}{self.index:016x}"

    @classmethod
    def from_bytes(cls, data: bytes) -> Timestamp:
        """Returns the timestamp of exactly 16 bytes."""
        if len(data) != _BYTES.size:
            raise InvalidArgumentError(f"a timestamp has {_BYTES.size} bytes, got {len(data)}")
        return cls(*_BYTES.unpack(data))

    @classmethod
    def from_hex(cls, text: str) -> Timestamp:
        """Returns the timestamp of exactly 32 hexadecimal digits."""
        if len(text) != 2 * _BYTES.size or not _HEX.issuperset(text):
            raise InvalidArgumentError(f"timestamp {text[:40]!r}: want {2 * _BYTES.size} hexadecimal digits")
        return cls(int(text[:16], 16), int(text[16:], 16))


class Timestamp64(int):
    """A timestamp of 64 bits: unix milliseconds << 18 | counter, the layout of TiKV's PD.

    It has its place in the order of all timestamps: see :meth:`timestamp`.
    """

    __slots__ = ()

    @property
    def milli(self) -> int:
        """The unix millisecond."""
        return int(self) >> _COUNTER_BITS

    @property
    def counter(self) -> int:
        """The counter within the millisecond."""
        return int(self) & _COUNTER_MASK

    def timestamp(self) -> Timestamp:
        """Returns the place in the order of all: the earliest nanosecond that is not before it, with index 0."""
        if self.milli >= _U64_MAX // _NANOS_PER_MILLI:
            return Timestamp(_U64_MAX, 0)  # after the year 2553
        fraction = self.counter * _NANOS_PER_MILLI + _COUNTER_MASK
        return Timestamp(self.milli * _NANOS_PER_MILLI + (fraction >> _COUNTER_BITS), 0)

    @classmethod
    def at_or_after(cls, timestamp: Timestamp) -> Timestamp64:
        """Returns the smallest one that is not before a timestamp."""
        if timestamp == Timestamp():
            return cls(0)
        before = timestamp.time - (timestamp.index == 0)
        milli, rest = divmod(before, _NANOS_PER_MILLI)
        return cls((milli << _COUNTER_BITS) + (rest << _COUNTER_BITS) // _NANOS_PER_MILLI + 1)

    @classmethod
    def parse(cls, text: str) -> Timestamp64:
        """Returns the timestamp of a decimal number of 64 bits."""
        if not (text.isascii() and text.isdigit()) or len(text) > 20 or int(text) > _U64_MAX:
            raise InvalidArgumentError(f"timestamp {text[:40]!r}: want a decimal number of 64 bits")
        return cls(text)


class Range(NamedTuple):
    """Consecutive timestamps: all have the time of the first, and its index + 0, + 1, ..."""

    first: Timestamp
    size: int

    @property
    def last(self) -> Timestamp:
        """The largest timestamp."""
        return Timestamp(self.first.time, self.first.index + self.size - 1)

    def at(self, i: int) -> Timestamp:
        """Returns the i-th timestamp, from 0."""
        if not 0 <= i < self.size:
            raise IndexError(f"timestamp {i} of a range of {self.size}")
        return Timestamp(self.first.time, self.first.index + i)

    def all(self) -> Iterator[Timestamp]:
        """Yields the timestamps in ascending order."""
        return map(self.at, range(self.size))


class Range64(NamedTuple):
    """Consecutive timestamps of 64 bits."""

    first: Timestamp64
    size: int

    @property
    def last(self) -> Timestamp64:
        """The largest timestamp."""
        return Timestamp64(self.first + self.size - 1)

    def at(self, i: int) -> Timestamp64:
        """Returns the i-th timestamp, from 0."""
        if not 0 <= i < self.size:
            raise IndexError(f"timestamp {i} of a range of {self.size}")
        return Timestamp64(self.first + i)

    def all(self) -> Iterator[Timestamp64]:
        """Yields the timestamps in ascending order."""
        return map(self.at, range(self.size))
