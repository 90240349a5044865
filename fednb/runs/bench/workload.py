"""What is timed: federated training on made data that have the shapes of a named set. Nothing is downloaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fednb.base.streams import stream
from fednb.data.dataset import Dataset, Source, whole
from fednb.data.made import patterns
from fednb.data.partition import Iid
from fednb.data.sources import find
from fednb.engines.problem import Problem, problem_of
from fednb.engines.setting import Setting
from fednb.models import find as find_model
from fednb.models import reads

SEED = 0
SHAPES = {"cnn-small": "fashion-mnist", "cnn-small-cr": "fashion-mnist", "lstm": "shakespeare",
          "lstm-small": "shakespeare"}  # fmt: skip


class BadWorkload(ValueError):
    """A workload that cannot be."""


@dataclass(frozen=True)
class Workload:
    """One federated workload; all clients have as many samples.

    data: a data set's name, or a shape such as "1x4x4". samples: of each client. test: samples to evaluate on.
    """

    data: str
    model: str
    clients: int
    participants: int
    samples: int
    batch: int
    epochs: int
    test: int
    precision: str = "fp32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not 1 <= self.participants <= self.clients:
            raise BadWorkload(f"participants = {self.participants}: must lie between 1 and clients = {self.clients}")
        if min(self.samples, self.test) < 1:
            raise BadWorkload(f"samples = {self.samples}, test = {self.test}: must be at least 1")

    @cached_property
    def setting(self) -> Setting:
        """As a setting; its rate does not decay, so that every round is like the last."""
        return Setting(
            data=self.data if not _sides(self.data) else "digits", partition=Iid(), model=self.model,
            clients=self.clients, participation=min(1.0, (self.participants + 0.5) / self.clients),
            epochs=self.epochs, batch=self.batch, lr_decay=1.0, precision=self.precision,
        )  # fmt: skip

    @cached_property
    def dataset(self) -> Dataset:
        return made(shape(self.data), self.clients * self.samples, self.test)

    @cached_property
    def parts(self) -> list[np.ndarray]:
        """Each client's samples."""
        return np.split(np.arange(self.clients * self.samples), self.clients)

    @cached_property
    def problem(self) -> Problem:
        return problem_of(self.setting, SEED, self.device, self.dataset, self.parts)

    @property
    def weights(self) -> int:
        return self.problem.objective.layout.total

    @property
    def steps(self) -> int:
        """Local steps of a client in a round."""
        return self.epochs * -(-self.samples // self.batch)

    def __str__(self) -> str:
        return (
            f"{self.model} ({self.weights:,} weights), shapes of {self.data}: {self.participants} of {self.clients} "
            f"clients x {self.samples} samples, batch {self.batch}, {self.steps} steps a round, {self.precision}, "
            f"{self.device}"
        )


def usual(device: str, **given: Any) -> Workload:
    """The workload where nothing is said: seconds on a CPU; on a GPU a round of the papers' CIFAR-10 experiments."""
    gpu = torch.device(device).type == "cuda"
    model = find_model(given.get("model") or ("resnet20-gn" if gpu else "cnn-small"))
    data = SHAPES.get(model, "cifar10" if reads(model) == "images" else "yahoo-answers")
    sizes = (100, 10, 500, 50, 5, 10_000) if gpu else (10, 10, 100, 25, 1, 500)
    names = ("clients", "participants", "samples", "batch", "epochs", "test")
    chosen = {name: value for name, value in given.items() if value is not None} | {"model": model, "device": device}
    if "clients" in chosen:
        chosen.setdefault("participants", min(sizes[1], chosen["clients"]))
    return Workload(**{"data": data, **dict(zip(names, sizes, strict=True)), **chosen})


def _sides(text: str) -> tuple[int, ...]:
    """The numbers of "3x32x32"; none where it is a name."""
    return tuple(map(int, text.split("x"))) if re.fullmatch(r"\d+x\d+x\d+", text) else ()


def shape(text: str) -> Source:
    """The catalogue's line of a data set, or one with ten classes for a shape."""
    if not (sides := _sides(text)):
        return find(text)
    half = (0.5,) * sides[0]
    return replace(find("digits"), name=text, shape=sides, mean=half, std=half, scale=255.0)


def made(source: Source, train: int, test: int) -> Dataset:
    """Samples of a source's shape: a pattern per class under noise, or any tokens."""
    rng, n = stream(SEED, "bench", source.name), train + test
    y = rng.integers(source.classes, size=n)
    if source.text:
        x = rng.integers(source.shape[0], size=(n, source.shape[1]), dtype=np.int32)
    else:
        x = rng.integers(128, size=(n, *source.shape), dtype=np.uint8)
        x += (127 * patterns(rng, source.classes, source.shape)).astype(np.uint8)[y]
    samples, labels = torch.from_numpy(x), whole(y)
    return Dataset(
        source.name, samples[:train], labels[:train], samples[train:], labels[train:], source.classes, source.scale,
        source.mean, source.std, source.pad, source.flip, source.shape[0] if source.text else 0,
    )  # fmt: skip


Say = Callable[[str], None]  # where progress is told
