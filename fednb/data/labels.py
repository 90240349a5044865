"""Partitions by label: every one is a pure function of labels, client count and seed."""

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fednb.data.split import Partition, PartitionFailed, switch

RETRIES = 1000  # whole splits drawn before `Dirichlet` gives up on its minimum
MOST_DRAWN = 500_000_000  # and the shares drawn for them, about ten seconds


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
        tries = min(RETRIES, max(1, MOST_DRAWN // (clients * len(sizes))))
        for _ in range(tries if clients * self.minimum <= n else 0):
            cuts = (ends(rng.dirichlet(np.full(clients, self.alpha), size=len(sizes))) * sizes[:, None]).astype(int)
            smallest = np.diff(cuts, axis=1, prepend=0).sum(0).min()
            if smallest >= self.minimum:
                return cuts
            best = max(best, int(smallest))
        seen = f"the smallest client had {best} at best in {tries} draws" if best >= 0 else "there are too few"
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
        return hand_out(labels, self.prior(labels.max() + 1, clients, rng), rng, self.refill)

    def prior(self, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
        """How likely each client draws each class, [N, C]."""
        return rng.dirichlet(np.full(classes, self.alpha), size=clients)


@dataclass(frozen=True)
class DirichletEqual(DirichletClient):
    """As `DirichletClient`, but a class that runs out is closed to everyone, so that no sample is dealt twice.

    FedFSA and FedCR (alpha 0.5 and 0.3). n // N samples each, remainder left out; a client whose prior has only closed
    classes draws from all that remain.
    quirk: as in their code, where the uniform number starts at the end of the first class: that class is never drawn
    from a prior, and is handed out when the others are exhausted. Off by default, since the text says no such thing.
    """

    quirk: bool = switch()
    name: ClassVar[str] = "dirichlet-equal"
    refill: ClassVar[bool] = False

    def prior(self, classes, clients, rng):
        drawn = super().prior(classes, clients, rng)
        return np.where(np.arange(classes) == 0, 0.0, drawn) if self.quirk else drawn


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
        known = enough(self, labels)
        picked = rng.permuted(np.tile(np.arange(known), (clients, 1)), axis=1) < self.classes
        return hand_out(labels, picked / self.classes, rng, refill=True)


@dataclass(frozen=True)
class PathologicalShards(Partition):
    """Each class is cut into shards of equal size, and each client takes `classes` of them, of distinct classes.

    FedFSA's Pat(s): 5 of 10, 15 of 100 and 50 of 200 classes. A shard has n / (N s) samples (CIFAR-10, 100 clients:
    120), and every sample is dealt once. Clients come in turn and pick any class that has a shard left and that they
    do not hold yet; the last ones may find none and take a second shard of a class. Where classes do not divide, the
    shards are the largest that give everyone the same number, and what is left of each class is left out.
    """

    classes: int = 5
    name: ClassVar[str] = "pathological-shards"
    least: ClassVar[int] = 1

    def deal(self, labels, clients, rng):
        known = enough(self, labels)
        size = self.shard(np.bincount(labels), clients)
        mixed = (rng.permutation(np.flatnonzero(labels == each)) for each in range(known))
        piles = [list(each[: len(each) // size * size].reshape(-1, size)) for each in mixed]
        return [np.concatenate(self.take(piles, rng)) for _ in range(clients)]

    def shard(self, sizes: np.ndarray, clients: int) -> int:
        """Samples in a shard: n / (N s) where the classes divide, and the largest number that does where not."""
        wanted = clients * self.classes
        for size in range(sizes.sum() // wanted, 0, -1):
            if (sizes // size).sum() >= wanted:
                return size
        raise PartitionFailed(
            f"{self.name}: {clients} clients with {self.classes} classes each need {wanted} shards; there are only "
            f"{sizes.sum()} samples. Lower clients or classes."
        )

    def take(self, piles: list[list[np.ndarray]], rng: np.random.Generator) -> list[np.ndarray]:
        """One client's shards, taken off the piles."""
        held: list[int] = []
        taken = []
        for _ in range(self.classes):
            left = [each for each, pile in enumerate(piles) if pile]
            fresh = [each for each in left if each not in held] or left
            held.append(fresh[rng.integers(len(fresh))])
            taken.append(piles[held[-1]].pop())
        return taken


def enough(partition: "Pathological | PathologicalShards", labels: np.ndarray) -> int:
    """How many classes there are; refuse a partition that wants more for one client."""
    known = int(labels.max()) + 1
    if partition.classes > known:
        raise PartitionFailed(f"{partition.name}: classes={partition.classes}; the labels allow 1 to {known} classes.")
    return known


def hand_out(labels: np.ndarray, prior: np.ndarray, rng: np.random.Generator, refill: bool) -> list[list[int]]:
    """Deal n // N samples to each client, the class of each drawn from its row of `prior` [N, C].

    An empty class refills, and the draw that met it is repeated, as in FL-Simulator; or it closes for everyone.
    """
    full = [rng.permutation(np.flatnonzero(labels == each)).tolist() for each in range(labels.max() + 1)]
    pools, bounds = [pool.copy() for pool in full], rows(prior)
    parts: list[list[int]] = [[] for _ in prior]
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
    return ends(np.array([[len(pool) for pool in pools]]))[0].tolist()


def ends(shares: np.ndarray) -> np.ndarray:
    """Where each share ends when a row is laid out on [0, 1]; the last ends at 1 exactly."""
    sums = shares.cumsum(1)
    return sums / sums[:, -1:]


def rows(prior: np.ndarray) -> list[list[float] | None]:
    """`ends` as lists, which are quick to look a number up in; None for a row without any share."""
    some = np.any(prior, axis=1)
    laid = ends(np.where(some[:, None], prior, 1.0)).tolist()
    return [row if held else None for row, held in zip(laid, some, strict=True)]


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
