"""What every way of dealing samples to clients has in common; `partition` lists and parses them."""

from dataclasses import Field, dataclass, field, fields
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from fednb.base.checks import MOST_WHOLE, is_number
from fednb.base.inputs import shown
from fednb.base.streams import stream
from fednb.data.dataset import Dataset

SMALLEST, LARGEST = 1e-6, 1e6  # of alpha and shares: a split beyond them is as one at them


class PartitionFailed(ValueError):
    """These samples cannot be split among that many clients in this way."""


def switch() -> Any:
    """A field that is off unless said otherwise, and is not written where it is off: older texts keep their meaning."""
    return field(default=False, metadata={"quiet": True})


@dataclass(frozen=True)
class Partition:
    """A way to deal samples to clients; its text, such as "dirichlet(alpha=0.1, minimum=10)", is read by `parse`."""

    name: ClassVar[str] = ""
    least: ClassVar[int] = 0  # the smallest allowed whole number

    def __post_init__(self):
        for each in fields(self):
            object.__setattr__(self, each.name, value(self, each))

    def __str__(self) -> str:
        said = [f for f in fields(self) if not f.metadata.get("quiet") or getattr(self, f.name) != f.default]
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in said)
        return f"{self.name}({values})" if values else self.name

    def split(self, labels: np.ndarray, clients: int, seed: int, owner: np.ndarray | None = None) -> list[np.ndarray]:
        """Sample indices (int64, ascending) of each client. `owner` is the natural client of each sample, if any."""
        labels = np.asarray(labels)
        if not 1 <= clients <= len(labels):
            raise PartitionFailed(f"clients={clients} for {len(labels)} samples; allowed is 1 to {len(labels)}.")
        present = np.unique(labels, return_inverse=True)[1]  # classes without samples take no part
        parts = self.deal(present, clients, stream(seed, "partition", self.name))
        return [np.sort(np.asarray(part, dtype=np.int64)) for part in parts]

    def deal(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> list:
        """The indices of each client in any order; `labels` are 0..C-1, all present."""
        raise NotImplementedError

    def changed(self, data: Dataset, parts: list[np.ndarray], seed: int) -> Dataset:
        """The data as these clients see it: the same, unless the partition is about more than who holds what.

        Called once for a data set and its parts. What it returns is kept, so that asking again gives the same object.
        """
        return data


def value(partition: Partition, field: Field) -> Any:
    """The value of a field as declared (alpha 1 and 1.0 are one setting); refuse what is out of range."""
    given: Any = getattr(partition, field.name)
    kind: Any = field.type
    what = f"{partition.name}: {field.name}"
    if kind is bool and not isinstance(given, bool | np.bool_):
        raise ValueError(f"{what}={shown(given)}; allowed is true or false.")
    if kind is float and not (is_number(given) and given > 0):
        raise ValueError(f"{what}={shown(given)}; allowed is a number greater than 0.")
    if kind is float and not SMALLEST <= given <= LARGEST:
        raise ValueError(f"{what}={shown(given)}; allowed is a number from {SMALLEST:g} to {LARGEST:g}.")
    if kind is int and not (
        isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= partition.least
    ):
        raise ValueError(f"{what}={shown(given)}; allowed is a whole number from {partition.least}.")
    if kind is int and given > MOST_WHOLE:
        raise ValueError(f"{what}={shown(given)}; allowed is at most {MOST_WHOLE}.")
    return kind(given)


def counts(labels: np.ndarray, parts: list[np.ndarray], classes: int) -> np.ndarray:
    """Samples of each class at each client, [clients, classes]."""
    return np.stack([np.bincount(np.asarray(labels)[part], minlength=classes) for part in parts])
