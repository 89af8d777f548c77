"""Decides what a client does to find the leader of its cluster, and whose word it believes.

It opens no connection and reads no clock: who does tells it what happened and when, and is told what to do.
A search begins when the leader has failed, refused or been silent. It asks all members at once, and again
after pauses. One that says that it leads is followed; others may not have noticed yet that a leader is down.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum, auto

from ._pace import EAGER, EAGER_PAUSE_MAX, PAUSE_MAX, PAUSE_MIN, REFUSED_PAUSE_MAX, Random, pause
from ._resp import MEMBERS_MAX, View

#: Redirects in a row that are followed without a pause.
MOVES_MAX = 3
#: How often a client that is used asks the leader for the members.
REFRESH_INTERVAL = 10.0


class Use(Enum):
    """What a connection is for. STAMPS are those that the leader is found by; AHEAD may be held by it."""

    STAMPS = auto()
    AHEAD = auto()
    IDS = auto()
    QUESTIONS = auto()


class Outcome(Enum):
    """That of the latest exchange with a node. FOREIGN is of another cluster; REFUSES refuses this client."""

    UNREACHABLE = auto()
    OURS = auto()
    FOREIGN = auto()
    REFUSES = auto()


class Verdict(Enum):
    """What follows from a report. CONFIRMED: the leader itself says that it leads; FOLLOWED: another one does."""

    NOTHING = auto()
    CONFIRMED = auto()
    FOLLOWED = auto()


class _Node:
    def __init__(self) -> None:
        self.outcome = Outcome.UNREACHABLE
        self.asking = False
        self.dial_after = dict.fromkeys(Use, 0.0)
        self.dial_failures = dict.fromkeys(Use, 0)
        self.left_until = 0.0  # until then only its own word makes it the leader again that it was
        self.refusals = 0
        self.ask_after = 0.0


class Search:
    """Knows the nodes of a cluster, takes one of them for the leader, and says which to ask."""

    def __init__(self, addrs: Sequence[str], draw: Random = random.random) -> None:
        self._addrs = list(addrs)
        self._draw = draw
        self._nodes: dict[str, _Node] = {}
        self._members: list[str] = []
        self.leader = ""
        self.suspected = True
        self.connecting = False  # to a new leader
        self._asked = self._ask_after = self._begun = 0.0
        self._rounds = self._moves = 0

    def known(self) -> list[str]:
        """Returns all addresses that may be those of nodes."""
        return sorted({*self._members, *self._addrs, *([self.leader] if self.leader else [])})

    def members(self) -> list[str]:
        """Returns the members, or all known addresses while they are unknown."""
        return self._members or self.known()

    def _node(self, addr: str) -> _Node:
        return self._nodes.setdefault(addr, _Node())

    def forget(self, used: Callable[[str], bool]) -> None:
        """Removes addresses that are unknown and not used, so that they do not accumulate."""
        keep = set(self.known())
        self._nodes = {a: n for a, n in self._nodes.items() if n.asking or a in keep or used(a)}

    def ask(self, now: float) -> tuple[list[str], float]:
        """Returns the nodes to ask now, until :meth:`answered`, and when to call again (0: after an event)."""
        if not self.suspected:
            return [], 0.0
        if self._ask_after > now:
            return [], self._ask_after
        if self._rounds == 0:
            self._begun = now
        addrs = [addr for addr in self.known() if self.question(addr, now)]
        self._asked = now
        self._ask_after = now + pause(self._rounds, self.dial_pause_max(now), self._draw)
        self._rounds += 1
        return addrs, self._ask_after

    def refresh(self, now: float) -> bool:
        """Reports whether a client that is used has to ask the leader for the members, though all is well."""
        if self.suspected or not self.leader or now - self._asked <= REFRESH_INTERVAL:
            return False
        self._asked = now
        return True

    def question(self, addr: str, now: float) -> bool:
        """Reports whether to ask one node, which is then being asked."""
        node = self._node(addr)
        if node.asking or now < node.ask_after:
            return False
        node.asking = True
        return True

    def answered(self, addr: str) -> None:
        """Notes that a question has ended, with an answer or without."""
        self._node(addr).asking = False

    def asking_only(self, addrs: Sequence[str]) -> None:
        """Notes that all questions have ended but those to some nodes."""
        for addr, node in self._nodes.items():
            node.asking = addr in addrs

    def asking(self, addr: str) -> bool:
        """Reports whether a node is being asked."""
        return addr in self._nodes and self._nodes[addr].asking

    def outcomes(self) -> dict[str, Outcome]:
        """Returns that of the latest exchange with each node."""
        return {addr: node.outcome for addr, node in self._nodes.items()}

    def reported(self, addr: str, outcome: Outcome, now: float) -> None:
        """Takes in the outcome of any exchange. A node that refuses this client is asked less and less often."""
        node = self._node(addr)
        if outcome is Outcome.REFUSES and now >= node.ask_after:
            node.ask_after = now + pause(node.refusals, REFUSED_PAUSE_MAX, self._draw)
            node.refusals += 1
        elif outcome is Outcome.OURS:
            if node.outcome is Outcome.UNREACHABLE:
                node.dial_after[Use.STAMPS] = 0.0  # it is reached again
            node.refusals, node.ask_after = 0, 0.0
        node.outcome = outcome

    def heard(self, addr: str, view: View, now: float) -> Verdict:
        """Takes in what a node reports."""
        self._learn(addr, view)
        if view.leader == self.leader:
            return Verdict.CONFIRMED if addr == self.leader else Verdict.NOTHING
        if self.suspected and self._accepts(addr, view.leader, now):
            self._follow(view.leader, now)
            return Verdict.FOLLOWED
        return Verdict.NOTHING

    def _learn(self, addr: str, view: View) -> None:
        # What the leader that serves reports is all there is. What others report is added.
        members = view.members
        if not (addr == view.leader == self.leader and not self.suspected):
            members = sorted({*self._members, *view.members})
        self._members = members if len(members) <= MEMBERS_MAX else view.members

    def _accepts(self, addr: str, leader: str, now: float) -> bool:
        if not self.leader or addr == leader:
            return True
        connecting = self.connecting and now >= self._node(self.leader).dial_after[Use.STAMPS]
        node = self._node(leader)
        return not connecting and now >= node.dial_after[Use.STAMPS] and now >= node.left_until

    def _follow(self, addr: str, now: float) -> None:
        if self.leader and self.suspected:
            self._node(self.leader).left_until = now + PAUSE_MAX
        self.leader, self.connecting = addr, True

    def moved(self, origin: str, leader: str, now: float) -> bool:
        """Takes in a redirect, and reports whether to follow it: only the present leader's word counts."""
        if origin != self.leader or leader == origin:
            return False
        node = self._node(leader)
        node.left_until = node.dial_after[Use.STAMPS] = 0.0
        self._moves += 1
        if self._moves > MOVES_MAX:
            node.dial_after[Use.STAMPS] = now + pause(self._moves - MOVES_MAX, PAUSE_MAX, self._draw)
        self._follow(leader, now)
        return True

    def suspect(self, addr: str) -> bool:
        """Notes that a node has failed, refused or been silent, and reports whether that is the leader."""
        if addr == self.leader:
            self.suspected = True
        return addr == self.leader

    def connected(self) -> bool:
        """Notes a connection to the leader, and reports whether it is the first to a new one."""
        new = self.connecting
        self.suspected = self.connecting = False
        return new

    def recovered(self, addr: str) -> None:
        """Notes the answer to a request, after a suspicion."""
        if addr == self.leader:
            self.suspected, self._rounds, self._moves = False, 0, 0
            self._ask_after = self._asked + PAUSE_MIN
            self._node(addr).dial_failures[Use.STAMPS] = 0

    def dial_at(self, addr: str, use: Use) -> float:
        """Returns when an address may be dialed next."""
        return self._node(addr).dial_after[use]

    def dialed(self, addr: str, use: Use) -> None:
        """Notes a dial that succeeded. One that connects and then falls silent is still dialed less often."""
        failures = self._node(addr).dial_failures
        if use is Use.IDS and failures[use] > 0:
            failures[use] -= 1

    def dial_pause_max(self, now: float) -> float:
        """Returns what bounds the pauses of the search."""
        return EAGER_PAUSE_MAX if self.suspected and now - self._begun < EAGER else PAUSE_MAX

    def failed(self, addr: str, use: Use, most: float, now: float) -> bool:
        """Notes that an address cannot be reached or used, and reports whether a search begins."""
        node = self._node(addr)
        if node.outcome is Outcome.REFUSES:
            most = REFUSED_PAUSE_MAX
        if now >= node.dial_after[use]:  # concurrent attempts count once
            node.dial_after[use] = now + pause(node.dial_failures[use], most, self._draw)
            node.dial_failures[use] += 1
        return use is Use.STAMPS and self.suspect(addr)

    def hurry(self, use: Use, now: float) -> None:
        """Shortens the pauses of all nodes: now every one is needed."""
        for node in self._nodes.values():
            node.dial_failures[use] = min(node.dial_failures[use], 1)
            node.dial_after[use] = now + pause(node.dial_failures[use], PAUSE_MAX, self._draw)
