"""Which client holds which samples: every partition is a pure function of labels, client count and seed."""

import difflib
import math
import numbers
import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import ClassVar

import numpy as np

from fednb.streams import stream

RETRIES = 1000  # whole splits drawn before `Dirichlet` gives up on its minimum


class UnknownPartition(ValueError):
    """A name that no partition has."""


class PartitionFailed(ValueError):
    """These labels cannot be split among that many clients in this way."""


@dataclass(frozen=True)
class Partition:
    """A way to deal samples to clients; its text, such as "dirichlet(alpha=0.1, minimum=10)", is read by `parse`."""

    name: ClassVar[str] = ""
    least: ClassVar[int] = 0  # the smallest allowed whole number

    def __post_init__(self):
        for field in fields(self):
            object.__setattr__(self, field.name, number(self, field))

    def __str__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{self.name}({values})" if values else self.name

    def split(self, labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
        """Sample indices (int64, ascending) of each client."""
        labels = np.asarray(labels)
        if not 1 <= clients <= len(labels):
            raise PartitionFailed(f"clients={clients} for {len(labels)} samples; allowed is 1 to {len(labels)}.")
        present = np.unique(labels, return_inverse=True)[1]  # classes without samples take no part
        parts = self.deal(present, clients, stream(seed, "partition", self.name))
        return [np.sort(np.asarray(part, dtype=np.int64)) for part in parts]

    def deal(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> list:
        """The indices of each client in any order; `labels` are 0..C-1, all present."""
        raise NotImplementedError


@dataclass(frozen=True)
class Iid(Partition):
    """Shuffle and cut: every sample once, sizes equal up to one."""

    name: ClassVar[str] = "iid"

    def deal(self, labels, clients, rng):
        return np.array_split(rng.permutation(len(labels)), clients)


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Each class is cut among the clients in shares drawn from Dir(alpha 1_N); every sample once, unequal sizes.

    The text of FedFFT and FedSCAM, after Hsu et al. 2019; the code of FedLAW and FedAWA, which has no minimum.
    alpha: 0.1 and 0.6 in FedFFT and SpecGradFilter; 0.1, 0.5 and 1 in FedSCAM.
    minimum: the whole split is drawn again until every client has that many samples; 10 in FedSCAM.
    """

    alpha: float = 0.1
    minimum: int = 10
    name: ClassVar[str] = "dirichlet"

    def deal(self, labels, clients, rng):
        cuts = self.cuts(np.bincount(labels), clients, rng)
        pieces = [np.split(rng.permutation(np.flatnonzero(labels == each)), cut[:-1]) for each, cut in enumerate(cuts)]
        return [np.concatenate(part) for part in zip(*pieces, strict=True)]

    def cuts(self, sizes: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Where to cut each class, [C, N]; the last column is the class's size."""
        best, n = -1, sizes.sum()
        for _ in range(RETRIES if clients * self.minimum <= n else 0):
            cuts = (ends(rng.dirichlet(np.full(clients, self.alpha), size=len(sizes))) * sizes[:, None]).astype(int)
            smallest = np.diff(cuts, axis=1, prepend=0).sum(0).min()
            if smallest >= self.minimum:
                return cuts
            best = max(best, int(smallest))
        seen = f"the smallest client had {best} at best in {RETRIES} draws" if best >= 0 else "there are too few"
        raise PartitionFailed(
            f"alpha={self.alpha}, clients={clients}, minimum={self.minimum}: no split of {n} samples "
            f"gives every client the minimum; {seen}. Lower minimum or clients, or raise alpha."
        )


@dataclass(frozen=True)
class DirichletClient(Partition):
    """Each client draws its own class prior from Dir(alpha 1_C); a class that runs out starts again from the full.

    FL-Simulator's split, hence FedSMOO's, FedLESAM's and FedWMSAM's (alpha 0.1 and 0.6). Every client gets n // N
    samples and the remainder is left out. Because classes start again, some samples have two owners or more and some
    none: of 50,000 in 10 classes, 100 clients use about 92% (alpha 0.1) or 96% (0.6), give or take two by seed.
    """

    alpha: float = 0.1
    name: ClassVar[str] = "dirichlet-client"
    refill: ClassVar[bool] = True

    def deal(self, labels, clients, rng):
        prior = rng.dirichlet(np.full(labels.max() + 1, self.alpha), size=clients)
        return hand_out(labels, prior, rng, self.refill)


@dataclass(frozen=True)
class DirichletEqual(DirichletClient):
    """As `DirichletClient`, but a class that runs out is closed to everyone, so that no sample is dealt twice.

    FedFSA and FedCR (alpha 0.5 and 0.3), but with every class drawn from the prior: their code never draws the first.
    n // N samples each, remainder left out; a client whose prior has only closed classes draws from all that remain.
    """

    name: ClassVar[str] = "dirichlet-equal"
    refill: ClassVar[bool] = False


@dataclass(frozen=True)
class Pathological(Partition):
    """Each client draws evenly from `classes` classes picked at random; a class that runs out starts again.

    FL-Simulator's form, as FedWMSAM uses it (3 and 6 of 10 classes, 10 and 20 of 100). Every client gets n // N
    samples and the remainder is left out; as in `DirichletClient` samples can have several owners or none.
    """

    classes: int = 2
    name: ClassVar[str] = "pathological"
    least: ClassVar[int] = 1

    def deal(self, labels, clients, rng):
        known = int(labels.max()) + 1
        if self.classes > known:
            raise PartitionFailed(f"{self.name}: classes={self.classes}; the labels allow 1 to {known} classes.")
        picked = rng.permuted(np.tile(np.arange(known), (clients, 1)), axis=1) < self.classes
        return hand_out(labels, picked / self.classes, rng, refill=True)


def hand_out(labels: np.ndarray, prior: np.ndarray, rng: np.random.Generator, refill: bool) -> list[list[int]]:
    """Deal n // N samples to each client, the class of each drawn from its row of `prior` [N, C].

    An empty class refills, and the draw that met it is repeated, as in FL-Simulator; or it closes for everyone.
    """
    full = [rng.permutation(np.flatnonzero(labels == each)).tolist() for each in range(labels.max() + 1)]
    pools, bounds, parts = [pool.copy() for pool in full], rows(prior), [[] for _ in prior]
    for client in turns(len(prior), len(labels) // len(prior), rng):
        while not pools[each := bisect(bounds[client] or remaining(pools), rng.random())]:
            pools[each] = full[each].copy()
        parts[client].append(pools[each].pop())
        if not pools[each] and not refill:
            prior = np.where(np.arange(len(pools)) == each, 0.0, prior)
            bounds = rows(prior)
    return parts


def remaining(pools: list[list[int]]) -> list[float]:
    """`ends` of the classes by what is left of them: every remaining sample is equally likely."""
    return rows(np.array([[len(pool) for pool in pools]]))[0]


def ends(shares: np.ndarray) -> np.ndarray:
    """Where each share ends when a row is laid out on [0, 1]; the last ends at 1 exactly."""
    sums = shares.cumsum(1)
    return sums / sums[:, -1:]


def rows(prior: np.ndarray) -> list[list[float] | None]:
    """`ends` as lists, which are quick to look a number up in; None for a row without any share."""
    some = prior.any(1, keepdims=True)
    return [row if held else None for row, held in zip(ends(np.where(some, prior, 1.0)).tolist(), some, strict=True)]


def turns(clients: int, size: int, rng: np.random.Generator) -> Iterator[int]:
    """Whose turn it is, `size` times each: at every step one of the clients with room left, all equally likely."""
    room, waiting = [size] * clients, list(range(clients))
    for u in rng.random(clients * size).tolist():
        at = int(u * len(waiting))
        client = waiting[at]
        room[client] -= 1
        if not room[client]:
            waiting[at] = waiting[-1]
            waiting.pop()
        yield client


def counts(labels: np.ndarray, parts: list[np.ndarray], classes: int) -> np.ndarray:
    """Samples of each class at each client, [clients, classes]."""
    return np.stack([np.bincount(np.asarray(labels)[part], minlength=classes) for part in parts])


def number(partition: Partition, field: Field) -> float:
    """The value of a field as declared (alpha 1 and 1.0 are one setting); refuse what is out of range."""
    value, what = getattr(partition, field.name), f"{partition.name}: {field.name}"
    if field.type is float and not (isinstance(value, numbers.Real) and 0 < value < math.inf):
        raise ValueError(f"{what}={value!r}; allowed is a number greater than 0.")
    if field.type is int and not (isinstance(value, numbers.Integral) and value >= partition.least):
        raise ValueError(f"{what}={value!r}; allowed is a whole number from {partition.least}.")
    return field.type(value)


NAMES = {kind.name: kind for kind in (Iid, Dirichlet, DirichletClient, DirichletEqual, Pathological)}


def parse(text: str | Partition) -> Partition:
    """The partition a text names: "iid", "dirichlet(0.1)", "pathological(classes=2)". A partition passes unchanged.

    >>> parse("dirichlet-client(0.6)")
    DirichletClient(alpha=0.6)
    """
    if isinstance(text, Partition):
        return text
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", str(text))
    kind = kind_of(found[1] if found else str(text))
    return kind(**arguments(kind, found[2] or ""))


def kind_of(name: str) -> type[Partition]:
    """The class of a name; letter case, '-' and '_' do not matter."""
    known = {each.replace("-", ""): kind for each, kind in NAMES.items()}
    key = name.lower().replace("-", "").replace("_", "")
    if key in known:
        return known[key]
    near = [known[each].name for each in difflib.get_close_matches(key, known, cutoff=0.4)]
    raise UnknownPartition(f"no partition {name!r}; closest: {', '.join(near or NAMES)}.")


def arguments(kind: type[Partition], inner: str) -> dict[str, float]:
    """Field values from the text between the brackets, by position or by name."""
    known, values = [field.name for field in fields(kind)], {}
    for at, piece in enumerate(inner.split(",") if inner.strip() else []):
        field, _, value = (each.strip() for each in piece.rpartition("="))
        field = field or (known[at] if at < len(known) else value)
        if field not in known or field in values:
            problem = f"argument {field!r} is {'given twice' if field in values else 'unknown'}"
            raise ValueError(f'{kind.name}: {problem}; write e.g. "{kind()}".')
        try:
            values[field] = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
        except ValueError:
            raise ValueError(f'{kind.name}: {field}={value!r} is not a number; write e.g. "{kind()}".') from None
    return values
