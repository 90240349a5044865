"""The server's talk with nodes: who is there, which client each of them is, and the answers of a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fednb.base.inputs import one_line
from fednb.flower.config import Patience
from fednb.flower.records import BadRecord, opened, record_of
from fednb.flower.server import ServerSide

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

QUERY, TRAIN = "query", "train"  # kinds of messages, as Flower names them
POLL = 0.5  # seconds between two looks at the nodes and their answers
UNREACHED = (3, 4, 5)  # codes of errors that say that a message or its answer got lost, not that it was bad


Letter = tuple[str, dict[str, Any], dict[str, Tensor]]  # what kind of message, with which numbers and arrays


class TooFewNodes(RuntimeError):
    """Fewer clients answered than a round needs."""


class Nodes:
    """The nodes of a run and what was asked of them. `node_of` says which node stands for a client."""

    def __init__(self, grid: Grid, server: ServerSide, patience: Patience, say: Callable[[str], None]) -> None:
        self.grid, self.server, self.patience, self.say = grid, server, patience, say
        self.greeted: set[int] = set()
        self.node_of: dict[int, int] = {}
        self.pending: dict[str, tuple[int, int | None]] = {}  # messages without an answer: node, and client if known
        self.asked: set[tuple[int, int]] = set()  # client and node, in this round
        self.answers: dict[int, dict[str, Tensor]] = {}
        self.refused: dict[int, str] = {}
        self.bytes = {"down": 0, "up": 0}  # of arrays, in this round

    def assemble(self) -> None:
        """Wait until every client has said who it is; go on with fewer after the timeout, if they are enough."""
        N, until = self.server.setting.clients, time.monotonic() + self.patience.timeout
        while len(self.node_of) < N and time.monotonic() < until:
            self._look(())
            time.sleep(POLL)
        if len(self.node_of) < min(self.patience.min_nodes, N):
            raise TooFewNodes(
                f"{len(self.node_of)} of {N} clients are there after {self.patience.timeout:g} s, and "
                f"{self.patience.min_nodes} are needed (min-nodes); start more SuperNodes, or raise timeout"
            )
        if absent := sorted(set(range(N)) - set(self.node_of)):
            self.say(f"begins without client{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}")

    def gather(self, ids: Sequence[int]) -> dict[int, dict[str, Tensor]]:
        """The answers of a round's clients: of all, or after the timeout of those who came, if they are enough."""
        self.answers, self.refused, self.bytes = {}, {}, {"down": 0, "up": 0}
        self.pending = {m: told for m, told in self.pending.items() if told[1] is None}  # late answers are not pulled
        needed = min(self.patience.min_nodes, len(ids))
        for again in range(self.patience.tries):
            self.asked = set()
            self._wait_for(ids)
            if len(self.answers) >= needed:
                return self.answers
            if again + 1 < self.patience.tries:
                self.say(f"round {self.server.s.t + 1}: {self._who_answered(ids)}; it is tried again")
        raise TooFewNodes(
            f"round {self.server.s.t + 1} was tried {self.patience.tries} times: {self._who_answered(ids)}, and "
            f"{needed} are needed (min-nodes). Nothing is lost: the same run goes on after round {self.server.s.t}"
        )

    def _who_answered(self, ids: Sequence[int]) -> str:
        absent = [i for i in ids if i not in self.answers and i not in self.refused]
        pieces = [f"{len(self.answers)} of {len(ids)} clients answered"]
        pieces += [f"none came from {', '.join(map(str, absent))}"] * bool(absent)
        pieces += [f"client {i} was refused" for i in self.refused]
        return ", ".join(pieces)

    def _wait_for(self, ids: Sequence[int]) -> None:
        until = time.monotonic() + self.patience.timeout
        while time.monotonic() < until:
            open_ = [i for i in ids if i not in self.answers]
            self._look(open_)
            if all(i in self.answers or i in self.refused for i in ids):
                return
            time.sleep(POLL)

    def _look(self, wanted: Iterable[int]) -> None:
        """Greet nodes that are new, ask wanted clients that have a node, take what was answered."""
        fresh = [node for node in self.grid.get_node_ids() if node not in self.greeted]
        self.greeted |= set(fresh)
        numbers = {"key": self.server.key, "labels": self.server.wire.labels}
        self._send([(node, None) for node in fresh], lambda _: (QUERY, numbers, {}))
        due = [(self.node_of[i], i) for i in wanted if i in self.node_of and (i, self.node_of[i]) not in self.asked]
        self.asked |= {(i, node) for node, i in due}
        self._send(due, self._letter)
        for reply in self.grid.pull_messages(list(self.pending)) if self.pending else ():
            node, client = self.pending.pop(reply.metadata.reply_to_message_id, (0, None))
            if node:
                self._met(node, reply) if client is None else self._answered(node, client, reply)

    def _letter(self, client: int) -> Letter:
        arrays = self.server.sends(client)
        self.bytes["down"] += _bytes(arrays)
        return TRAIN, {**asdict(self.server.task(client)), "key": self.server.key}, arrays

    def _send(self, to: list[tuple[int, Any]], letter: Callable[[Any], Letter]) -> None:
        from flwr.app import Message

        for node, client in to:
            kind, numbers, arrays = letter(client)
            group, ttl = str(self.server.s.t), self.patience.timeout
            message = Message(record_of(numbers, arrays), node, kind, ttl=ttl, group_id=group)
            for sent in self.grid.push_messages([message]):
                if sent:
                    self.pending[sent] = (node, client)

    def _met(self, node: int, reply: Message) -> None:
        """A node says which client it is."""
        try:
            numbers, _ = opened(reply) if not reply.has_error() else _raise(reply)
            client, samples = int(numbers["client"]), int(numbers["samples"])
            labels = list(numbers.get("labels", ()))
            if wrong := self.server.unknown(client, samples, labels):
                raise BadRecord(wrong)
        except (BadRecord, KeyError, TypeError, ValueError) as error:
            self.say(f"node {node} cannot take part: {one_line(str(error))}")
            return
        before = self.node_of.get(client)
        self.node_of[client] = node
        self.refused.pop(client, None)  # by another node
        self.server.meet(client, samples, labels)
        self.say(f"client {client} is node {node}" + f", it was {before}" * (before is not None))

    def _answered(self, node: int, client: int, reply: Message) -> None:
        """A client's answer, refused by name where it is not what it should be."""
        if reply.has_error() and reply.error.code in UNREACHED:
            self.say(f"client {client} (node {node}) was not reached: {one_line(reply.error.reason or 'lost')}")
            return
        try:
            numbers, arrays = opened(reply) if not reply.has_error() else _raise(reply)
            told = {name: numbers.get(name) for name in ("federation", "client", "round")}
            task = asdict(self.server.task(client))
            if other := next((name for name, value in told.items() if value != task[name]), None):
                raise BadRecord(f"answered for {other} {told[other]} in place of {task[other]}")
            if wrong := self.server.fault(arrays):
                raise BadRecord(wrong)
        except BadRecord as error:
            self.refused[client] = one_line(str(error))
            self.say(f"round {self.server.s.t + 1}: client {client} (node {node}) is refused: {self.refused[client]}")
            return
        self.bytes["up"] += _bytes(arrays)
        self.answers[client] = arrays


def _raise(reply: Message) -> tuple[dict[str, Any], dict[str, Tensor]]:
    raise BadRecord(reply.error.reason or f"error {reply.error.code}")


def _bytes(arrays: dict[str, Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in arrays.values())
