"""The errors of calls, and what a node's refusal means."""

from __future__ import annotations

from typing import NamedTuple

from ._address import join_addr, valid_addr

_CLASSES: dict[str, type[Error]] = {}


class Error(Exception):
    """The base of all errors of this package. ``code`` is the same in all languages and protocols."""

    code = "internal"

    def __init_subclass__(cls, *, code: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        if code:
            cls.code = code
            _CLASSES[code] = cls

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        #: What distinguishes errors of one code: why a generator makes no IDs, for instance.
        self.reason = reason


class InvalidArgumentError(Error, ValueError, code="invalid_argument"):
    """The arguments cannot be right, whatever the state of the cluster."""


class NotLeaderError(Error, code="not_leader"):
    """The node does not lead. Only messages have it: calls go on to the leader."""


class NoLeaderError(Error, code="no_leader"):
    """No leader is known."""


class OverloadedError(Error, code="overloaded"):
    """More calls wait than may, or a generator can make no more IDs now."""


class DeadlineExceededError(Error, TimeoutError, code="deadline_exceeded"):
    """No answer came in time. The message names the nodes that were tried, with the latest failure of each."""


class UnauthorizedError(Error, code="unauthorized"):
    """The nodes do not accept the credentials or the certificate of the client."""


class ForbiddenError(Error, code="forbidden"):
    """The client has no right to this."""


class QuotaExceededError(Error, TimeoutError, code="quota_exceeded"):
    """The quota was used up until the deadline."""


class NoWorkerError(Error, code="no_worker"):
    """No worker is free for a lease, or the lease was revoked."""


class NoQuorumError(Error, code="no_quorum"):
    """Too few voters are reachable."""


class ClockError(Error, code="clock"):
    """The clock's reading allows no ID, or the steady clock of this process or the leader has a wrong rate."""


class WrongClusterError(Error, TimeoutError, code="wrong_cluster"):
    """No answer came in time, and the nodes that answered belong to another cluster."""


class RegressedError(Error, code="regressed"):
    """The cluster is behind the floor, and may not raise itself to it."""


class InternalError(Error):
    """A defect, or an answer that breaks the order: stop, and have an operator look."""


class ClosedError(Error, code="closed"):
    """The client, the generator or the clock was closed."""


class MalformedError(Exception):
    """Bytes that are no answer: the connection is unusable. It has none of them, as they may be secret."""


_CODES = {
    "MOVED": "not_leader",
    "CLUSTERDOWN": "no_leader",
    "TRYAGAIN": "overloaded",
    "LOADING": "overloaded",
    "BUSY": "overloaded",
    "MASTERDOWN": "overloaded",
    "NOAUTH": "unauthorized",
    "WRONGPASS": "unauthorized",
    "NOPERM": "forbidden",
    "REGRESSED": "regressed",
    "WRONGCLUSTER": "wrong_cluster",
    "ERR": "invalid_argument",
    "WRONGTYPE": "invalid_argument",
}
# The codes that may follow a word, as "code: text".
_REFINED = {"ERR": ("internal",), "TRYAGAIN": ("no_worker", "no_quorum", "quota_exceeded")}
_KINDS = {
    "not_leader": "redirect",
    "no_leader": "retry",
    "overloaded": "retry",
    "no_worker": "retry",
    "no_quorum": "retry",
    "quota_exceeded": "quota",
    "unauthorized": "unauthorized",
}
#: The codes of refusals after which a command may be sent again, to the same node or another one.
REPEATABLE = ("not_leader", "no_leader", "overloaded", "no_worker", "no_quorum", "quota_exceeded", "wrong_cluster")
_RETRY_AFTER_MAX_MS = 3_600_000


class Refusal(NamedTuple):
    """An error line of a node, decoded."""

    code: str
    message: str
    leader: str = ""
    retry_after: float = 0.0  # seconds; 0 if the node asked for none

    @property
    def kind(self) -> str:
        """What a client does: redirect, retry, quota, unauthorized or final."""
        return _KINDS.get(self.code, "final")

    def error(self) -> Error:
        """Returns the error of a call that the refusal fails."""
        return make_error(self.code, self.message)


def make_error(code: str, message: str) -> Error:
    """Returns an error of the class that has the code."""
    return _CLASSES.get(code, InternalError)(message)


def failure(addr: str, error: Exception, times: int) -> str:
    """Describes the latest failure of a node, as a part of a message."""
    code = f"{error.code}: " if isinstance(error, Error) else ""
    return f"; {addr}: {code}{error}" + (f" ({times} times)" if times > 1 else "")


def decode(line: str) -> Refusal:
    """Decodes an error line without its leading ``-``. Raises MalformedError for a redirect to nowhere."""
    word, _, text = line.partition(" ")
    code = _CODES.get(word)
    if code is None:
        return Refusal("internal", line)
    for refined in _REFINED.get(word, ()):
        if text.startswith(refined + ": "):
            code, text = refined, text[len(refined) + 2 :]
    if code == "not_leader":
        host, colon, port = text.partition(" ")[2].rpartition(":")
        leader = join_addr(host, port)
        if not colon or not valid_addr(leader):
            raise MalformedError("a redirect without an address")
        return Refusal(code, f"the leader is {leader}", leader)
    return Refusal(code, text, "", _retry_after(text) if code == "quota_exceeded" else 0.0)


def _retry_after(text: str) -> float:
    _, found, rest = text.rpartition("retry after ")
    number, _, unit = rest.partition(" ")
    if not found or unit != "ms" or not (number.isascii() and number.isdigit()) or int(number) >= 1 << 32:
        return 0.0
    return min(int(number), _RETRY_AFTER_MAX_MS) / 1000
