"""Snowflake IDs: their text forms, what their bits mean, and how one worker makes them.

IDs are plain ints of 63 bits.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from .errors import ClockError, InvalidArgumentError, OverloadedError

_ID_BITS = 63
_ID_MAX = (1 << _ID_BITS) - 1
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_WORKER_BITS_MAX = 30


def to_base62(id_: int) -> str:
    """Returns an ID with the digits 0-9, A-Z, a-z, without leading zeros."""
    text = ""
    while True:
        id_, digit = divmod(id_, 62)
        text = _DIGITS[digit] + text
        if not id_:
            return text


def to_hex(id_: int) -> str:
    """Returns an ID as 16 hexadecimal digits, in lower case. They compare as IDs do."""
    return f"{id_:016x}"


def parse_decimal(text: str) -> int:
    """Returns the ID of its decimal form: no sign, space or leading zeros."""
    return _parse(text, 10, 19)


def parse_base62(text: str) -> int:
    """Returns the ID of the form that :func:`to_base62` returns."""
    return _parse(text, 62, 11)


def parse_hex(text: str) -> int:
    """Returns the ID of the form that :func:`to_hex` returns."""
    if len(text) != 16 or any(c not in "0123456789abcdef" for c in text) or int(text, 16) > _ID_MAX:
        raise InvalidArgumentError(f"ID {text[:40]!r}: want 16 hexadecimal digits of 63 bits")
    return int(text, 16)


def _parse(text: str, base: int, size_max: int) -> int:
    value = 0
    valid = 0 < len(text) <= size_max and not (text[0] == "0" and len(text) > 1)
    for c in text[:size_max]:
        digit = _VALUES.get(c, base)
        valid = valid and digit < base
        value = value * base + digit
    if not valid or value > _ID_MAX:
        raise InvalidArgumentError(f"ID {text[:40]!r}: want its form in base {base}, of 63 bits")
    return value


class Layout(NamedTuple):
    """How the bits of IDs are split: time, datacenter, worker, sequence. The time counts from the epoch."""

    time_bits: int = 41
    datacenter_bits: int = 5
    worker_bits: int = 5
    sequence_bits: int = 12
    #: The unix millisecond of IDs with time 0.
    epoch: int = 1288834974657

    @classmethod
    def parse(cls, text: str, epoch: int) -> Layout:
        """Returns the layout of a text such as 41/5/5/12, or 41/10/12 without a datacenter."""
        parts = text.split("/")
        ok = len(parts) in (3, 4)
        ok = ok and all(p.isascii() and p.isdigit() and len(p) < 3 and (p == "0" or p[0] != "0") for p in parts)
        if not ok:
            raise InvalidArgumentError(f"layout {text[:40]!r}: want time/datacenter/worker/sequence, in bits")
        bits = [int(part) for part in parts]
        if len(bits) == 3:
            bits.insert(1, 0)
        layout = cls(bits[0], bits[1], bits[2], bits[3], epoch)
        layout._check()
        return layout

    def _check(self) -> None:
        faults = []
        if sum(self[:4]) != _ID_BITS or self.time_bits == 0:
            faults.append("the parts have 63 bits together, the time at least one")
        if self.datacenter_bits + self.worker_bits > _WORKER_BITS_MAX:
            faults.append(f"datacenter and worker have at most {_WORKER_BITS_MAX} bits")
        if self.epoch < 0 or self.last_milli > _ID_MAX:
            faults.append("the epoch and the last millisecond have at most 63 bits")
        if faults:
            raise InvalidArgumentError(f"layout {self}: " + "; ".join(faults))

    def __str__(self) -> str:
        datacenter = f"{self.datacenter_bits}/" if self.datacenter_bits else ""
        return f"{self.time_bits}/{datacenter}{self.worker_bits}/{self.sequence_bits}"

    @property
    def workers(self) -> int:
        """How many workers there are, of all datacenters together."""
        return 1 << (self.datacenter_bits + self.worker_bits)

    @property
    def last_milli(self) -> int:
        """The last unix millisecond that the time bits can hold."""
        return self.epoch + (1 << self.time_bits) - 1

    def milli(self, id_: int) -> int:
        """Returns the unix millisecond of an ID."""
        return self.epoch + (id_ >> (_ID_BITS - self.time_bits))

    def worker(self, id_: int) -> int:
        """Returns the worker of an ID, datacenter and worker together."""
        return id_ >> self.sequence_bits & (self.workers - 1)

    def datacenter(self, id_: int) -> int:
        """Returns the datacenter of an ID."""
        return self.worker(id_) >> self.worker_bits

    def in_datacenter(self, id_: int) -> int:
        """Returns the worker of an ID without the datacenter."""
        return self.worker(id_) & ((1 << self.worker_bits) - 1)

    def sequence(self, id_: int) -> int:
        """Returns the sequence of an ID."""
        return id_ & ((1 << self.sequence_bits) - 1)


class Worker:
    """Makes the IDs of one worker. Its only state is the next number: a millisecond, then the sequence.

    The clock is an argument. IDs strictly increase whatever it shows. All methods are safe for threads.
    """

    def __init__(
        self, worker: int, layout: Layout, lease: tuple[int, int] | None = None, ahead_max_ms: int = 1000
    ) -> None:
        if not 0 <= worker < layout.workers or (lease is not None and lease[0] > layout.last_milli):
            raise InvalidArgumentError(f"worker {worker} with the lease {lease}: layout {layout} has none such")
        self.worker = worker
        self.layout = layout
        self.start, self.end = lease or (layout.epoch, layout.last_milli + 1)
        self._leased = lease is not None
        self._ahead = ahead_max_ms
        self._time_max = (1 << layout.time_bits) - 1
        self._first = max(self.start - layout.epoch, 0) << layout.sequence_bits
        self._next = self._first
        self._limit = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._set_limit()

    def _set_limit(self) -> None:
        milli = min(self.end - self.layout.epoch, self._time_max + 1)
        self._limit = max(self._limit, max(milli, 0) << self.layout.sequence_bits)

    def take(self, count: int, now: int) -> list[int]:
        """Returns the next IDs at a reading of the clock. A refusal says why in its ``reason``, and uses none up."""
        with self._lock:
            at = self._admit(count, now)
            self._next = at + count
        bits, gap = self.layout.sequence_bits, self.layout.datacenter_bits + self.layout.worker_bits
        worker, mask = self.worker << bits, (1 << bits) - 1
        return [n >> bits << (bits + gap) | worker | n & mask for n in range(at, at + count)]

    def _admit(self, count: int, now: int) -> int:
        """Returns the first of the numbers to take. The order of the checks decides which reason is given."""
        bits = self.layout.sequence_bits
        if not isinstance(count, int) or count < 0:
            raise InvalidArgumentError(f"{count!r:.40} IDs: want a whole number")
        if count > min(self._ahead, self._time_max) + 1 << bits:
            raise InvalidArgumentError(f"{count} IDs at once are more than ever fit", "batch")
        if self._stopped:
            raise OverloadedError("the generator was stopped", "lease_ended")
        if now < self.layout.epoch:
            raise ClockError(f"the clock is at {now} ms, before the first ID of the layout", "clock_before_layout")
        if now > self.layout.last_milli:
            raise ClockError(f"the clock is at {now} ms, after the last ID of the layout", "clock_after_layout")
        milli = now - self.layout.epoch
        ahead = min(milli + self._ahead, self._time_max) + 1 << bits
        if self._next == self._first and self._next >= ahead:
            raise OverloadedError("the lease of this worker has not begun", "lease_not_begun")
        if self._next > ahead:
            behind = (self._next - 1 >> bits) - milli
            raise ClockError(f"the clock went back: it is {behind} ms behind the last ID", "clock_behind")
        at = max(self._next, milli << bits)
        if at + count > self._limit:
            if self._limit > self._time_max << bits:
                raise ClockError("IDs would go beyond the last of the layout", "clock_after_layout")
            raise OverloadedError("the lease of this worker has ended", "lease_ended")
        if at + count > ahead:
            raise OverloadedError("the IDs of this worker are used up for now", "exhausted")
        return at

    def extend(self, end: int) -> None:
        """Sets the end of the lease, if that is later."""
        with self._lock:
            if self._leased:
                self.end = max(self.end, end)
                self._set_limit()

    def stop(self) -> int:
        """Ends it, and returns the first millisecond in which no ID was made."""
        with self._lock:
            self._stopped = True
            if self._next == self._first:
                return self.start
            return self.layout.epoch + (self._next - 1 >> self.layout.sequence_bits) + 1
