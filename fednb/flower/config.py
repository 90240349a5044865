"""The configuration of a federation, as Flower hands it to server and clients: method, setting, seed, patience."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fednb.algorithms.catalogue import method
from fednb.base.inputs import shown
from fednb.base.streams import whole_seed
from fednb.core.rounds import Method
from fednb.data.own_folder import BadData
from fednb.data.sources import add_data
from fednb.data.sources import load as load_data
from fednb.engines.problem import Problem, problem_of
from fednb.engines.setting import Setting
from fednb.runs.experiment import fitted
from fednb.runs.keys import key_of
from fednb.runs.own_grid import method_of
from fednb.runs.store import home

OWN = "own-data"  # the name under which a project's own data are entered


class BadConfig(ValueError):
    """A value in [tool.flwr.app.config] that cannot be used."""


@dataclass(frozen=True)
class Patience:
    """How long the server waits, and for how many.

    min_nodes: clients that must answer for a round to count, or all of the round's where these are fewer. timeout:
    seconds that a round waits for answers. tries: how often it waits before the run ends.
    """

    min_nodes: int = 2
    timeout: float = 600.0
    tries: int = 3

    def __post_init__(self) -> None:
        for name, least in (("min_nodes", 1), ("timeout", 0.0), ("tries", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least or value == 0:
                raise BadConfig(f"{name.replace('_', '-')} = {shown(value)}: must be a number of at least {least or 1}")


@dataclass(frozen=True)
class Federated:
    """A run of a federation: what is trained and how, and where the server keeps its state."""

    setting: Setting
    method: Method
    seed: int = 0
    patience: Patience = Patience()
    folder: Path | None = None
    again: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any], own: OwnData | None = None, client: int | None = None) -> Federated:
        """Read a run configuration: flat, tables as "setting.lr" and "parameters.rho".

        own: a project's data, of which the samples of a client are loaded, or without one the server's test set.
        """
        known = {"method", "seed", "folder", "again", *(f.name.replace("_", "-") for f in fields(Patience))}
        if strange := [n for n in config if n not in known and not n.startswith(("setting.", "parameters."))]:
            raise BadConfig(f"config: no entry {shown(strange[0])}; there are {', '.join(sorted(known))} and the "
                            f"tables setting and parameters")  # fmt: skip
        chosen = method(method_of(config.get("method", "FedAvg")), **_below("parameters.", config))
        setting = Setting().but(**_below("setting.", config))
        if client is not None and not 0 <= client < setting.clients:
            raise BadConfig(f"partition-id = {client}: there are clients 0 to {setting.clients - 1} (setting.clients = "
                            f"{setting.clients})")  # fmt: skip
        if own is not None:
            setting = setting.but(data=own.enter(client, setting.clients))
        if own and setting.evaluation == "personal":
            raise BadConfig("setting.evaluation = 'personal': the server of a project has no clients' test samples")
        waits = {f.name: config[n] for f in fields(Patience) if (n := f.name.replace("_", "-")) in config}
        folder = Path(text) if (text := str(config.get("folder", ""))) else None
        return cls(fitted(setting, chosen), chosen, whole_seed(config.get("seed", 0)), Patience(**waits), folder,
                   bool(config.get("again", False)))  # fmt: skip

    @property
    def key(self) -> str:
        """What tells this run from others: 16 hexadecimal digits of setting, method and seed."""
        return key_of([self.setting.plain(), repr(self.method), self.seed])

    @property
    def server_folder(self) -> Path:
        """Where the server keeps its state."""
        return self.folder or home() / "flower" / "server" / self.key


def _below(table: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table of the configuration."""
    return {name.removeprefix(table): value for name, value in config.items() if name.startswith(table)}


@dataclass(frozen=True)
class OwnData:
    """Data of a project's own: each client loads its samples, the server its test set.

    train(client, clients): the samples of one client, a pair (x, y); it is called on that client's node alone. test():
    a pair for the server. x is `[n, ...]`, y `[n]` classes from 0 on. The other numbers are the same at all clients:
    x is divided by scale, then mean is taken off and std divided by; see `fn.add_data`.

    >>> from fednb.flower import OwnData
    >>> x, y = np.zeros((30, 1, 8, 8), np.uint8), np.arange(30) % 3
    >>> data = OwnData(train=lambda client, clients: (x[client::clients], y[client::clients]), test=lambda: (x, y),
    ...                classes=3, scale=255.0)
    >>> [len(data.train(client, 2)[1]) for client in range(2)]
    [15, 15]
    """

    train: Callable[[int, int], tuple[Any, Any]]
    test: Callable[[], tuple[Any, Any]]
    classes: int
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    scale: float = 1.0
    augment: str = "none"
    vocabulary: int = 0

    def enter(self, client: int | None = None, clients: int = 0) -> str:
        """Load one client's samples, or the server's test set, and enter them as a data set; returns its name."""
        x, y = self.test() if client is None else self.train(client, clients)
        if not len(y):
            raise BadData(f"{'the server' if client is None else f'client {client}'} has no samples")
        few = np.asarray(x)[:1], np.asarray(y)[:1]  # a client has no test set
        add_data(OWN, (x, y), (x, y) if client is None else few, classes=self.classes, mean=self.mean, std=self.std,
                 scale=self.scale, augment=self.augment, vocabulary=self.vocabulary)  # fmt: skip
        return OWN


def server_problem(run: Federated, own: OwnData | None) -> Problem:
    """The problem as the server sees it: the model and the test set; own data have been entered by then."""
    if own is None:
        return problem_of(run.setting, run.seed)
    nobody = [np.arange(1)] * run.setting.clients  # sizes are what clients say
    return problem_of(run.setting, run.seed, data=load_data(OWN), parts=nobody)


def client_problem(run: Federated, own: OwnData | None, client: int) -> Problem:
    """The problem as one client sees it; own data are its own samples, which have been entered by then."""
    if own is None:
        return problem_of(run.setting, run.seed)
    data = load_data(OWN)
    parts = [np.arange(len(data.y)) if i == client else np.arange(0) for i in range(run.setting.clients)]
    return problem_of(run.setting, run.seed, data=data, parts=parts)
