"""The server's half of a round: what each client is sent, what its answer must be, and a round of those who answered.

The server's state is saved after every round: a run that is started again goes on after the last saved round.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fednb.base.files import DamagedFile, load_tensors, new_folder, save_tensors, sweep
from fednb.core.record import Table
from fednb.core.rounds import Method, blank, observed_server
from fednb.data.plan import step_count
from fednb.engines.loop import Loop, joined
from fednb.engines.problem import Problem
from fednb.engines.setting import Setting
from fednb.flower.client import NotSent, Task
from fednb.flower.rows import NEVER
from fednb.flower.wire import Parcels, fault, wire_of

NOT_KEPT = ("delta", "step", "lr")  # of the server: made anew in every round
STATE = "server.safetensors"


class ServerSide:
    """The server of one federation: the model, what the method declares, and who took part when.

    sizes, labels: the samples of each client that has said who it is, and its samples of each class where the method
    needs them. counted: the last round of each client that counted.
    """

    def __init__(self, problem: Problem, setting: Setting, method: Method, folder: Path, key: str) -> None:
        self.setting, self.method, self.key = setting, method, key
        self.path = folder / STATE
        self.wire = wire_of(method)
        self.parcels = Parcels(method, self.wire, problem.layout)
        like = next(problem.objective.model.parameters())
        self.w, self.b = problem.objective.start(like.dtype, like.device)
        self.problem = problem
        self.s = problem.server(method, self.w, self.b)
        self.start = method.buffers("per_client", problem.layout, self.w)
        self.table = Table({name: self.start[name] for name in self.wire.rows_at_server})
        empty = blank(method, problem.layout, self.w, self.b, 1)
        kinds = {"lr": empty["loss"][0], **{name: x[0] for name, x in empty.items()}, **self.start}
        self.zeros = {name: torch.zeros_like(kinds[name]) for name in self.wire.up}  # an answer that says nothing
        self.federation = secrets.token_hex(8)
        self.sizes: dict[int, int] = {}
        self.labels: dict[int, list[int]] = {}
        self.counted: dict[int, int] = {}
        self.first_samples = 0
        self.history: list[dict[str, Any]] = []

    # who there is

    def meet(self, client: int, samples: int, labels: Sequence[int] = ()) -> None:
        """A client says how many samples it has, and of each class where the method needs to know."""
        self.sizes[client] = samples
        if labels:
            self.labels[client] = list(labels)

    def unknown(self, client: int, samples: int, labels: Sequence[int] = ()) -> str | None:
        """What is wrong with what a client says of itself, in words; None if nothing is."""
        if not 0 <= client < self.setting.clients:
            return f"says that it is client {client}, and there are clients 0 to {self.setting.clients - 1}"
        if samples < 1:
            return f"says that it has {samples} samples"
        if self.wire.labels and (len(labels) != self._classes or sum(labels) != samples or min(labels) < 0):
            return f"says that its {samples} samples are of {list(labels)[:20]} in {self._classes} classes"
        return None

    @property
    def _classes(self) -> int:
        assert self.problem.labels is not None
        return self.problem.labels.shape[1]

    # one round

    def task(self, client: int) -> Task:
        """What a client is told beside arrays in this round."""
        self.first_samples = self.first_samples or self.sizes[min(self.sizes)]
        counted = self.counted.get(client, NEVER)
        return Task(self.federation, client, self.s.t, counted, sum(self.sizes.values()), self.first_samples)

    def sends(self, client: int) -> dict[str, Tensor]:
        """The arrays that go down to a client in this round."""
        rows = self.table.gather([client], self.wire.rows_down)
        return self.parcels.packed(self.s.values(self.wire.down), self.wire.down) | {
            f"row.{name}": x[0].cpu() for name, x in rows.items()
        }

    def fault(self, came: Mapping[str, Tensor]) -> str | None:
        """What is wrong with a client's answer, in words; None if nothing is."""
        return fault(came, self.parcels.packed(self.zeros, self.wire.up), self.method.name)

    def finish(self, answers: Mapping[int, Mapping[str, Tensor]]) -> None:
        """The server's half of a round, with those who answered and no others."""
        ids, s, t = sorted(answers), self.s, self.s.t
        population = self._population()
        k = joined(population, self.method, s, ids, self._rows_of(ids, answers), torch.zeros(len(ids), 1).long())
        vars(s)["samples"] = int(population.sizes.sum())
        observed_server(self.method, k, s)
        known = {*self.wire.up, *self.wire.rows_at_server, "lr"}
        if unsent := k.sent - known - k.MOVE:
            raise NotSent(f"{self.method.name} read {sorted(unsent)[0]!r} of its clients, which does not travel")
        self.table.scatter(ids, k.values(self.wire.rows_at_server))
        self.counted |= dict.fromkeys(ids, t)

    def _rows_of(self, ids: list[int], answers: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """What is known of the clients after training: what they sent, what follows from it, zeros for the rest."""
        sent = self.s.values([self.wire.model])[self.wire.model]
        each = [self.parcels.unpacked(answers[i], self.wire.up, self.zeros) for i in ids]
        rows = {name: torch.stack([own[name] for own in each]) for name in self.wire.up}
        moved = {"w0": sent.expand_as(rows["delta"]), "w": sent + rows["delta"]}
        start = {name: x.expand(len(ids), -1) for name, x in self.start.items()}
        return {**start, **moved, **self.table.gather(ids), **rows}

    def _population(self) -> Problem:
        """The problem with the sizes that the clients have told."""
        N = self.setting.clients
        sizes = torch.tensor([self.sizes.get(i, 0) for i in range(N)])
        steps = [step_count(int(n), self.setting.epochs, self.setting.batch) for n in sizes]
        none = [0] * self._classes
        labels = torch.tensor([self.labels.get(i, none) for i in range(N)])
        training = self.setting.training(self.first_samples)
        return replace(self.problem, sizes=sizes, steps=torch.tensor(steps), labels=labels, training=training)

    def evaluate(self) -> tuple[float, float] | None:
        """Accuracy (in percent) and mean loss of the server's model on its test set; None where it has none."""
        if self.problem.test is None:
            return None
        return Loop(self.problem).evaluate(*self.s.values(("w", "b")).values())

    # saved rounds

    def save(self) -> None:
        """Keep the state as it is after the last round."""
        sweep(new_folder(self.path.parent), self.path.name)
        s, rows = self.s, self.table.clients
        state = {f"s.{name}": x for name, x in s.values(n for n in s.names if n not in NOT_KEPT).items()}
        state |= {f"row.{i}.{name}": x for i, own in rows.items() for name, x in own.items()}
        facts = {name: getattr(self, name) for name in FACTS}
        save_tensors(self.path, state, {"key": self.key, "round": str(s.t), "facts": json.dumps(facts)})

    def load(self) -> bool:
        """Go on from the state in the folder; False where there is none."""
        if not self.path.exists():
            return False
        state, about = load_tensors(self.path)
        if about.get("key") != self.key:
            raise ValueError(
                f"{self.path.parent} has the state of another run; give this one a folder of its own (`folder`), or "
                f"begin anew (`again=true`)"
            )
        try:
            facts = json.loads(about["facts"])
            for name in FACTS:
                setattr(self, name, _as_numbers(facts[name]))
            self.s.t = int(about["round"])
        except (KeyError, ValueError) as error:
            raise DamagedFile(self.path, f"is not the state of a server ({error})") from None
        for name, x in state.items():
            if name.startswith("s."):
                setattr(self.s, name.removeprefix("s."), x.to(self.w.device))
            else:
                _, i, own = name.split(".", 2)
                self.table.clients.setdefault(int(i), {})[own] = x.to(self.w.device)
        return True


FACTS = ("federation", "sizes", "labels", "counted", "first_samples", "history")  # that are saved beside tensors


def _as_numbers(value: Any) -> Any:
    """Client numbers as keys, which JSON turns into texts."""
    return {int(i): x for i, x in value.items()} if isinstance(value, dict) else value
