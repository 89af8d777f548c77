"""Requests and answers of RESP2, the Redis protocol, as bytes. Every read is bounded by what was asked for.

Readers take bytes and where to begin. They return what they read and where it ends, None while more is
needed, and raise MalformedError. An error line is read as a Refusal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ._address import join_addr, split_addr, valid_addr
from .errors import MalformedError, Refusal, decode
from .timestamps import _BYTES, _U64_MAX, Timestamp, Timestamp64

T = TypeVar("T")
Read = tuple[T, int] | None
Reader = Callable[[bytes, int], Read[Any]]

MEMBERS_MAX = 64
LINE_MAX = 8 << 10
_TEXT_MAX = 4 << 10
_ITEMS_MAX = 4 << 10
_DEPTH_MAX = 5
_IDS = re.compile(rb"(?::[0-9]{1,19}\r\n)+")

TS, TS64, IDS = b"TS", b"TS64", b"SNOWFLAKE"


def encode(*args: str | bytes) -> bytes:
    """Returns a command as an array of bulk strings."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        data = arg if isinstance(arg, bytes) else arg.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def request(form: bytes, count: int, mode: str = "", floor: Timestamp | None = None) -> bytes:
    """Returns the request for count timestamps or IDs."""
    if form == IDS:
        return encode(form) if count == 1 else encode(form, str(count))
    args = [form, str(count).encode()]
    if mode:
        args.append(mode.upper().encode())
    if floor:
        args += [b"FLOOR", floor.hex().encode()]
    return encode(*args)


def read_answer(form: bytes, count: int, data: bytes, at: int) -> Read[Any]:
    """Reads the answer to a request: a Timestamp or Timestamp64, the first of count, or a list of IDs."""
    if data[at : at + 1] == b"-":
        return read_reply(data, at)
    if form == TS:
        return _read_timestamp(count, data, at)
    return _read_timestamp64(count, data, at) if form == TS64 else _read_ids(count, data, at)


def _read_timestamp(count: int, data: bytes, at: int) -> Read[Timestamp]:
    if len(data) < at + 23:
        if not b"$16\r\n".startswith(data[at : at + 5]):
            raise MalformedError("not a timestamp")
        return None
    if data[at : at + 5] != b"$16\r\n" or data[at + 21 : at + 23] != b"\r\n":
        raise MalformedError("not a timestamp")
    time, index = _BYTES.unpack_from(data, at + 5)
    if index + count - 1 > _U64_MAX:
        raise MalformedError("a range of timestamps without an end")
    return Timestamp(time, index), at + 23


def _read_timestamp64(count: int, data: bytes, at: int) -> Read[Timestamp64]:
    found = re.compile(rb"\$([0-9][0-9]?)\r\n([0-9]{1,20})\r\n").match(data, at)
    if not found:
        return _beginning(data, at, rb"(\$[0-9]{0,2}(\r(\n[0-9]{0,20}\r?)?)?)?")
    last = int(found[2]) + count - 1
    if int(found[1]) != len(found[2]) or last > _U64_MAX:
        raise MalformedError("not a timestamp of 64 bits")
    if Timestamp64.at_or_after(Timestamp64(last).timestamp()) != last:
        raise MalformedError("a timestamp after the year 2553")
    return Timestamp64(found[2]), found.end()


def _read_ids(count: int, data: bytes, at: int) -> Read[list[int]]:
    head = b"*%d\r\n" % count
    if count == 1 and data[at : at + 1] == b":":
        head = b""
    if not data.startswith(head[: len(data) - at], at):
        raise MalformedError("not as many IDs as were asked for")
    at += len(head)
    found = _IDS.match(data, at)
    lines = data[at : found.end()].split(b"\r\n", count) if found else []
    if len(lines) <= count:
        return _beginning(data, found.end() if found else at, rb"(:([0-9]{1,19}\r?)?)?")
    ids = [int(line[1:]) for line in lines[:count]]
    if max(ids) >> 63:
        raise MalformedError("an ID of more than 63 bits")
    return ids, at + sum(map(len, lines[:count])) + 2 * count


def _beginning(data: bytes, at: int, pattern: bytes) -> Read[Any]:
    """Returns None if the data may become what the pattern is the beginning of."""
    if len(data) - at > LINE_MAX or not re.compile(pattern).fullmatch(data, at):
        raise MalformedError("not the answer to the request")
    return None


def _line(data: bytes, at: int) -> Read[bytes]:
    end = data.find(b"\n", at, at + LINE_MAX)
    if end < 0:
        if len(data) - at >= LINE_MAX:
            raise MalformedError("a line that is too long")
        return None
    if end < at + 2 or data[end - 1] != 0x0D:
        raise MalformedError("not a line")
    return data[at : end - 1], end + 1


def read_reply(data: bytes, at: int) -> Read[Any]:
    """Reads any answer: bytes, None, an int, a list of them, or a Refusal."""
    if data[at : at + 1] == b"-":
        line = _line(data, at)
        return line and (decode(line[0][1:].decode("utf-8", "replace")), line[1])
    return _read_value(data, at, _DEPTH_MAX)


def _read_value(data: bytes, at: int, depth: int) -> Read[Any]:
    if data[at : at + 1] not in (b"", b"+", b":", b"$", b"*"):
        raise MalformedError("not an answer of the Redis protocol")
    line = _line(data, at)
    if line is None:
        return None
    kind, text, at = line[0][:1], line[0][1:], line[1]
    if kind == b"+":
        return text, at
    if kind == b":":
        if not re.fullmatch(rb"[+-]?[0-9]{1,19}", text):
            raise MalformedError("not a number")
        return int(text), at
    if kind == b"$" and text == b"-1":
        return None, at
    size = int(text) if re.fullmatch(rb"[0-9]{1,5}", text) else _TEXT_MAX + 1
    if kind == b"*":
        return _read_items(data, at, size, depth)
    if size > _TEXT_MAX or data[at + size : at + size + 2] not in (b"", b"\r", b"\r\n"):
        raise MalformedError("not a string")
    return (data[at : at + size], at + size + 2) if len(data) >= at + size + 2 else None


def _read_items(data: bytes, at: int, size: int, depth: int) -> Read[list[Any]]:
    if size > _ITEMS_MAX or depth == 0:
        raise MalformedError("not an array")
    items = []
    for _ in range(size):
        got = _read_value(data, at, depth - 1)
        if got is None:
            return None
        items.append(got[0])
        at = got[1]
    return items, at


class View(NamedTuple):
    """What a node reports about the cluster."""

    leader: str
    members: list[str]


def view_of(slots: Any, asked: str) -> View:
    """Decodes the answer to CLUSTER SLOTS of the node at asked, which a node without a host stands for."""
    members = []
    for entry in slots if isinstance(slots, list) else ():
        if not isinstance(entry, list) or len(entry) < 3:
            raise MalformedError("slots without a node")
        for node in entry[2:]:
            if not isinstance(node, list) or len(node) < 2 or not isinstance(node[1], int):
                raise MalformedError("a node without a port")
            host = node[0].decode("latin-1") if isinstance(node[0], bytes) else ""
            if host in ("", "?"):
                host = (split_addr(asked) or ("", 0))[0]
            members.append(join_addr(host, node[1]))
    if not 0 < len(members) <= MEMBERS_MAX or not all(map(valid_addr, members)):
        raise MalformedError("no nodes, too many, or one without an address")
    return View(members[0], members)


def cluster_of(info: Any) -> str | None:
    """Decodes the answer to INFO cluster: the ID, empty while the node does not know it, or None without one."""
    for line in info.split(b"\r\n") if isinstance(info, bytes) else ():
        if line.startswith(b"isotone_cluster_id:"):
            text = line.partition(b":")[2].decode("latin-1")
            if text and not valid_cluster(text):
                raise MalformedError("not the ID of a cluster")
            return text
    return None


def valid_cluster(text: str) -> bool:
    """Reports whether a text is the ID of a cluster: 16 hexadecimal digits, not all 0."""
    return re.fullmatch("[0-9a-f]{16}", text) is not None and int(text, 16) != 0


class Grant(NamedTuple):
    """The answer to WORKER LEASE."""

    worker: int
    start: int
    end: int
    layout: str
    epoch: int


def grant_of(reply: Any) -> Grant:
    """Decodes [worker, start, end, layout, epoch]."""
    kinds = [type(item) for item in reply] if isinstance(reply, list) else []
    if kinds != [int, int, int, bytes, int]:
        raise MalformedError("not a lease")
    worker, start, end, layout, epoch = reply
    if not 0 <= worker <= 1 << 31 or not 0 <= start < end:
        raise MalformedError("a lease that is empty or negative")
    return Grant(worker, start, end, layout.decode("latin-1"), epoch)


Answer = Timestamp | Timestamp64 | list[int] | Refusal
