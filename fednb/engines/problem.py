"""What a round needs from outside mathematics: a model, clients with data, and the local training's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

import numpy as np
import torch
from torch import Tensor

from fednb.base.streams import stream
from fednb.core.federation import Population
from fednb.data.partition import PartitionFailed, counts
from fednb.data.plan import Plan, step_count
from fednb.data.resident import Drawn, Resident
from fednb.data.sources import Dataset, load
from fednb.engines.ahead import PlansAhead
from fednb.engines.losses import LOSSES
from fednb.engines.objective import Objective
from fednb.engines.own import TRIED, draws, refuse_counters, seeded
from fednb.engines.setting import Setting
from fednb.models import build, own_of

CHUNK = {"cpu": 500, "cuda": 5000}  # test samples scored at a time: fixed, so that sums have one order
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}  # of the weights


@dataclass(frozen=True, eq=False)
class Problem(Population):
    """One experiment without its method: enough to train any cohort in any round."""

    objective: Objective
    plan: Callable[[int, Sequence[int]], Plan]
    test: tuple[Tensor, Tensor] | None = None
    inputs: Callable[[Tensor], Tensor] = lambda x: x
    samples: tuple[Tensor, Tensor] | None = None
    own: Sequence[Tensor] = ()  # each client's own test split, as indices into the samples
    chunk: int = 500

    def score_own(self, w: Tensor, b: Tensor, client: int) -> float:
        """The accuracy, in percent, of a model on one client's own test split."""
        assert self.samples is not None
        x, y = (part[self.own[client]] for part in self.samples)
        return 100.0 * int(self.objective.score(w, b, self.inputs(x), y)[0]) / len(y)

    def answers(self, w: Tensor, b: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of a model for samples of this problem, and their labels, on the CPU."""
        pieces = [self.objective.logits(w, b, self.inputs(some)) for some in x.split(self.chunk)]
        return torch.cat(pieces).cpu(), y.cpu()

    def drawing(self, t: int, client: int) -> AbstractContextManager[None]:
        """A block in which a model that answers by chance draws by the seed, the round and the client."""
        if not self.objective.draws:
            return nullcontext()
        device = next(self.objective.model.parameters()).device
        return seeded(self.seed, "model", t, client, device=device)

    def chunks(self) -> int:
        """How many pieces the test set is scored in."""
        return 0 if self.test is None else -(-len(self.test[1]) // self.chunk)

    def score(self, w: Tensor, b: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """Correct answers and summed loss on one piece of the test set."""
        assert self.test is not None
        x, y = (part[chunk * self.chunk : (chunk + 1) * self.chunk] for part in self.test)
        return self.objective.score(w, b, self.inputs(x), y)


def participants(setting: Setting, seed: int, t: int) -> list[int]:
    """Who takes part in round t: a fixed count without replacement, or whoever wins a toss, tossed for each client.

    "coin" tosses again while nobody comes. "coin-released" re-seeds numpy's old generator with t + seed, and tries the
    next number while nobody comes: FL-Simulator's published runs met these clients. Its seeds are no independent runs,
    since seed 1 meets in round t whom seed 0 meets in round t + 1.
    """
    N, rng = setting.clients, stream(seed, "participants", t)
    if setting.sampling == "fixed":
        some = max(1, int(setting.participation * N))
        return sorted(rng.choice(N, size=some, replace=False).tolist())
    if setting.sampling == "coin":
        draws = (rng.random(N) < setting.participation for _ in count())
    else:
        draws = (_released_toss(t + seed + j, N) <= setting.participation for j in count())
    return np.flatnonzero(next(drawn for drawn in draws if drawn.any())).tolist()


def _released_toss(seed: int, clients: int) -> np.ndarray:
    return np.random.RandomState(seed % 2**32).random_sample(clients)


@lru_cache(maxsize=2)
def _pooled(data: Dataset) -> Dataset:
    x, y = torch.cat([data.x, data.x_test]), torch.cat([data.y, data.y_test])
    both = None if data.owner is None or data.owner_test is None else [data.owner, data.owner_test]
    owner = None if both is None else torch.cat(both)
    return replace(data, name=f"{data.name} pooled", x=x, y=y, owner=owner)


@lru_cache(maxsize=2)
def _held_out(data: Dataset, share: float) -> Dataset:
    """The data with a share of its training samples, one and the same for every seed, in place of its test set."""
    mixed = torch.from_numpy(stream(0, "held out").permutation(len(data.y)))
    count = min(max(1, round(share * len(mixed))), len(mixed) - 1)
    tested, trained = mixed[:count].sort().values, mixed[count:].sort().values
    owner, owner_test = (None, None) if data.owner is None else (data.owner[trained], data.owner[tested])
    return replace(data, name=f"{data.name} held out", x=data.x[trained], y=data.y[trained], x_test=data.x[tested],
                   y_test=data.y[tested], owner=owner, owner_test=owner_test)  # fmt: skip


def data_of(setting: Setting) -> Dataset:
    """The setting's data, with held-out training samples as its test set where it says so.

    Training and test images are pooled where every client has a test split of its own (see `own_split`).
    """
    data = load(setting.data)
    if setting.evaluation == "personal":
        return _pooled(data)
    return _held_out(data, setting.held_out) if setting.held_out else data


def own_split(setting: Setting, seed: int, parts: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Each client's samples cut into its own training and test split (FedFSA: 70 to 30).

    What the setting holds out of the training split takes the place of the test split.
    """
    mixed = [stream(seed, "own split", i).permutation(np.unique(p)) for i, p in enumerate(parts)]  # none in both
    train, test = _cut(mixed, setting.train_share)
    return _cut(train, 1 - setting.held_out) if setting.held_out else (train, test)


def _cut(parts: list[np.ndarray], share: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The first share of each client's samples, and the rest; PartitionFailed where one of the two would be empty."""
    cuts = [round(share * len(p)) for p in parts]
    if short := [i for i, (p, c) in enumerate(zip(parts, cuts, strict=True)) if not 0 < c < len(p)]:
        raise PartitionFailed(
            f"client {short[0]} has too few samples to train and test on; raise the partition's minimum"
        )
    return [p[:c] for p, c in zip(parts, cuts, strict=True)], [p[c:] for p, c in zip(parts, cuts, strict=True)]


def clients_of(setting: Setting, seed: int, data: Dataset) -> list[np.ndarray]:
    """Each client's training samples, as indices; `samples` of all are one random subset, whatever the partition."""
    return _shared_out(setting, seed, data)[1]


def whole_parts(setting: Setting, seed: int, data: Dataset) -> list[np.ndarray]:
    """Each client's samples, as indices, with those that it holds out for validation."""
    return _shared_out(setting, seed, data)[0]


def validation_of(setting: Setting, seed: int, data: Dataset) -> np.ndarray:
    """The samples that the setting holds out for validation, as indices; no client trains on them."""
    return _shared_out(setting, seed, data)[2]


def _shared_out(setting: Setting, seed: int, data: Dataset) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Who has which samples: each client with its own validation samples, each without them, and the validation set."""
    chosen = np.arange(len(data.y))
    if setting.samples is not None and setting.samples < len(chosen):
        chosen = np.sort(stream(seed, "samples").permutation(len(chosen))[: setting.samples])
    server = setting.validation_on == "server"
    held = _some(chosen, setting.validation, stream(seed, "validation")) if server else chosen[:0]
    if server:
        _something_held(setting, held)
    chosen = np.setdiff1d(chosen, held)
    owner = None if data.owner is None else data.owner.cpu().numpy()[chosen]
    parts = setting.partition.split(data.y.cpu().numpy()[chosen], setting.clients, seed, owner)
    parts = _nobody_empty([chosen[p] for p in parts], str(setting.partition), "raise its minimum to 1")
    if server or not setting.validation:
        return parts, parts, held
    each = [_some(p, setting.validation, stream(seed, "validation", i)) for i, p in enumerate(parts)]
    held = np.unique(np.concatenate(each))
    _something_held(setting, held)
    kept = [p[~np.isin(p, held)] for p in parts]  # nobody trains on what another one, who has it too, holds out
    return parts, _nobody_empty(kept, f"validation = {setting.validation}", "lower it"), held


def _some(part: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A random share of some samples: at least one, and not all; none where the share is 0."""
    mine = np.unique(part)
    return rng.permutation(mine)[: min(max(1, round(share * len(mine))), len(mine) - 1) if share else 0]


def _something_held(setting: Setting, held: np.ndarray) -> None:
    """PartitionFailed where the setting wants validation samples and there are none."""
    if setting.validation and len(held) == 0:
        raise PartitionFailed(
            f"validation = {setting.validation} holds nothing out, since nobody has more than one sample; take more "
            "samples or fewer clients"
        )


def _nobody_empty(parts: list[np.ndarray], what: str, remedy: str) -> list[np.ndarray]:
    """These parts; PartitionFailed where a client has nothing."""
    if empty := [i for i, p in enumerate(parts) if len(p) == 0]:
        raise PartitionFailed(f"{what} leaves client {empty[0]} without samples; {remedy}")
    return parts


def dealt(
    setting: Setting, seed: int, data: Dataset | None = None, parts: list[np.ndarray] | None = None
) -> tuple[Dataset, list[np.ndarray]]:
    """The data as the clients see it, and each client's training samples of it."""
    data = data_of(setting) if data is None else data
    whole, parts = _shared_out(setting, seed, data)[:2] if parts is None else (parts, parts)
    return setting.partition.changed(data, whole, seed), parts


def class_counts(setting: Setting, seed: int = 0) -> np.ndarray:
    """Who has what: samples of each class at each client, `[clients, classes]`.

    >>> counts = fn.class_counts(fn.Setting(data="digits", clients=4))
    >>> counts.shape, int(counts.sum())
    ((4, 10), 1438)
    """
    data = data_of(setting)
    return counts(data.y.numpy(), clients_of(setting, seed, data), data.classes)


def _objective(setting: Setting, seed: int, data: Dataset, home: Resident, device: str | torch.device) -> Objective:
    """The setting's model with its first weights, as a function of them; a user's own is tried on some samples."""
    model = build(setting.model, data.classes, data.input, seed=seed).to(device, home.dtype)
    own, loss = own_of(setting.model), LOSSES.own(setting.loss)
    per_sample = loss is None or loss.tried(data.classes, home.dtype, device)
    if own is None:
        return Objective(model, setting.precision, criterion=loss, per_sample=per_sample)
    mark = f" {own.serial} {seed}"  # what is not trained may be drawn by the seed
    objective = Objective(model, setting.precision, mark, loss, per_sample)
    some = home.inputs(home.data.x[:TRIED])
    refuse_counters(setting.model, objective, some)
    objective.draws = draws(objective, some)
    return objective


def waits_for_the_host(device: torch.device) -> bool:
    """True for a GPU: what the host has not prepared is waited for."""
    return device.type == "cuda"


def _plans(home: Resident, setting: Setting, seed: int) -> Callable[[int, Sequence[int]], Plan]:
    """The batches of clients in a round; for a GPU, which would wait for them, ahead of time."""

    def draw(t: int, ids: list[int]) -> Drawn:
        return home.drawn(seed, t, ids, setting.epochs, setting.batch)

    if waits_for_the_host(home.data.x.device):
        return PlansAhead(home, draw, lambda t: participants(setting, seed, t), setting.rounds)
    return lambda t, ids: home.placed(draw(t, list(ids)))


def problem_of(
    setting: Setting, seed: int, device: str | torch.device = "cpu", data: Dataset | None = None,
    parts: list[np.ndarray] | None = None,
) -> Problem:  # fmt: skip
    """The problem that a setting and a seed describe. Data and parts that are handed in come from `dealt`."""
    if data is None or parts is None:
        data, parts = dealt(setting, seed, data, parts)
    own: list[np.ndarray] = []
    if setting.evaluation == "personal":
        parts, own = own_split(setting, seed, parts)
    dtype = DTYPES[setting.precision]
    home = Resident.of(data, parts, dtype, setting.augment, device, setting.crop == "every")
    objective = _objective(setting, seed, data, home, device)
    return Problem(
        objective,
        _plans(home, setting, seed),
        layout=objective.layout,
        sizes=home.sizes,
        steps=torch.tensor([step_count(len(p), setting.epochs, setting.batch) for p in parts]),
        training=setting.training(len(parts[0])),
        server_lr=setting.server_lr,
        by_size=setting.weighting == "size",
        labels=torch.from_numpy(counts(data.y.cpu().numpy(), parts, data.classes)),
        test=home.test(own),
        own=[torch.as_tensor(p, device=home.data.x.device) for p in own],
        samples=(home.data.x, home.data.y),
        inputs=home.inputs,
        chunk=CHUNK.get(torch.device(device).type, 500),
        seed=seed,
    )
