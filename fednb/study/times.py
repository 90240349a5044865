"""What a run takes: seconds that a history of this device tells, else an estimate from the nearest that is known."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import inf, log
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from fednb import models
from fednb.core.cost import Cost, cost
from fednb.core.rounds import Method
from fednb.core.vectors import NoSuchLayer
from fednb.data.plan import step_count
from fednb.data.sources import find as find_data
from fednb.engines import device_of
from fednb.engines.setting import Setting
from fednb.models.lstm import Lstm
from fednb.runs.store import Entry, StoreError, entries

BESIDE = 0.05  # of a round: evaluation and saving, where the history does not tell
COMPILING = 60.0  # seconds before the first round of a new method or shape on a GPU, where nothing is known
PRECISIONS = ("bf16", "tf32", "fp32", "fp64")  # from the fastest to the slowest
Span = tuple[float, float]
SHAPE = ("clients", "participation", "sampling", "epochs", "batch", "samples")  # of a round, beside model and data


@dataclass(frozen=True)
class Timing:
    """One measured round: where, of what, its seconds, and the gradients of a batch that it took.

    beside: seconds a round for evaluation and saving. start: seconds before the first round. source: for people.
    """

    device: str
    data: str
    model: str
    precision: str
    method: str
    shape: tuple[Any, ...]
    batch: int
    gradients: float
    seconds: float
    beside: float
    start: float
    source: str

    @property
    def work(self) -> float:
        """Operations of a round."""
        return self.gradients * self.batch * operations(self.model, self.data)


def _bench(model: str, precision: str, method: str, seconds: float, beside: float, passes: int, file: str) -> Timing:
    """A kept benchmark of one H200: CIFAR-10's shapes, 10 of 100 clients, 5 epochs of 10 batches of 50."""
    shape = (100, 0.1, "fixed", 5, 50, None)
    return Timing("NVIDIA H200", "cifar10", model, precision, method, shape, 50, 500.0 * passes, seconds, beside,
                  COMPILING, f"benchmark {file}")  # fmt: skip


KEPT = (  # seconds of a round and of an evaluation, from the files that `fednb bench kept` shows
    _bench("resnet20-gn", "bf16", "FedAvg", 0.188, 0.053, 1, "h200_resnet20_bf16_methods"),
    _bench("resnet20-gn", "bf16", "FedSAM", 0.382, 0.054, 2, "h200_resnet20_bf16_methods"),
    _bench("resnet20-gn", "bf16", "FedFFT", 0.378, 0.053, 2, "h200_resnet20_bf16_methods"),
    _bench("resnet20-gn", "bf16", "SpecGradFilter", 0.195, 0.052, 1, "h200_resnet20_bf16_methods"),
    _bench("resnet20-gn", "tf32", "FedAvg", 0.328, 0.048, 1, "h200_resnet20_tf32_methods"),
    _bench("resnet20-gn", "tf32", "SpecGradFilter", 0.335, 0.048, 1, "h200_resnet20_tf32_methods"),
    _bench("resnet18-gn", "bf16", "FedAvg", 0.168, 0.019, 1, "h200_resnet18_bf16_methods"),
    _bench("resnet18-gn", "bf16", "FedFFT", 0.362, 0.019, 2, "h200_resnet18_bf16_methods"),
    _bench("resnet18-gn", "bf16", "SpecGradFilter", 0.209, 0.018, 1, "h200_resnet18_bf16_methods"),
    Timing("aarch64 CPU", "fashion-mnist", "cnn-small", "fp32", "FedAvg", (10, 1.0, "fixed", 1, 25, 1000), 25, 40.0,
           0.499, 0.189, 0.0, "benchmark cpu_peers"),
)  # fmt: skip
GPU = KEPT[0].device  # what is planned for where there is no GPU to look at


@dataclass(frozen=True)
class Estimate:
    """What a run takes: seconds a round and before the first one, and where they come from.

    measured: on this device, with this model, data and precision; else estimated from what is nearest to it.
    """

    round: float
    start: float
    measured: bool
    source: str


class Times:
    """What is known of one device: its runs in the store and with the papers, and kept benchmarks.

    device: its name, as `run.json` has it. folders: of runs that came with papers. here: the store's runs count, too.
    """

    def __init__(self, device: str, folders: Iterable[Path] = (), here: bool = True) -> None:
        self.device = device
        kept = [Entry(folder.name, folder) for folder in folders]
        runs = {entry.key: entry for entry in (*kept, *(entries() if here else ()))}  # a run of both was made once
        self.known = [*_measured(device, runs.values()), *(t for t in KEPT if _is_cpu(t.device) == _is_cpu(device))]

    def of(self, setting: Setting, method: Method) -> Estimate:
        """The estimate for a run, scaled from the nearest timing by the operations of a round."""
        work = gradients(setting, method) * setting.batch * operations(setting.model, setting.data)
        shape = _shape(setting.plain())
        near = max(self.known, key=lambda t: self._likeness(t, setting, method, shape, work))
        like = (near.device, near.data, near.model, near.precision)
        same = like == (self.device, setting.data, setting.model, setting.precision)
        factor = work / near.work
        return Estimate(near.seconds * factor + near.beside, near.start, same, near.source)

    def _likeness(
        self, t: Timing, setting: Setting, method: Method, shape: tuple[Any, ...], work: float
    ) -> tuple[float, ...]:
        """How well a timing fits, what matters most first."""
        return (t.device == self.device, t.model == setting.model, t.data == setting.data,
                -abs(PRECISIONS.index(t.precision) - PRECISIONS.index(setting.precision)), t.method == method.name,
                t.shape == shape, t.source.startswith("run"), -abs(log(work / t.work)))  # fmt: skip


def device_name(device: str, scale: str) -> str:
    """The name of the device that a plan is for: as runs record it.

    Where a GPU is asked for, or paper scale needs one, and none is here: the one that benchmarks were kept of.
    """
    wants_gpu = device.startswith("cuda") or (device == "auto" and scale == "paper")
    if wants_gpu and not torch.cuda.is_available():
        return GPU
    where = device_of(device)
    return torch.cuda.get_device_name(where) if where.type == "cuda" else f"{platform.machine()} CPU"


def gradients(setting: Setting, method: Method) -> float:
    """Gradients of a batch that all clients of a round take together, as far as it can be told without the data."""
    samples = setting.samples or find_data(setting.data).train or setting.clients * setting.batch
    share = setting.train_share if setting.evaluation == "personal" else 1.0
    steps = step_count(max(1, round(share * samples / setting.clients)), setting.epochs, setting.batch)
    seen = _cost(method)
    return max(1.0, setting.participation * setting.clients) * (steps * seen.passes + seen.extra)


@cache
def _cost(method: Method) -> Cost:
    """What a method costs; two gradients a step where it names a layer that the counting model has not."""
    try:
        return cost(method)
    except NoSuchLayer:
        return Cost(passes=2.0, down=1.0, up=1.0, kept=0.0)


@cache
def operations(model: str, data: str) -> float:
    """Multiplications of a model's layers on one sample, forward; those of ResNet-20 where it cannot be built here."""
    source = find_data(data)
    shape, classes = (source.shape, source.classes) if source.classes else ((3, 64, 64), 10)
    return _operations(model, shape, classes, source.text) or operations("resnet20-gn", "cifar10")


@cache
def _operations(model: str, shape: tuple[int, ...], classes: int, text: bool) -> float:
    """Multiplications for one sample of a shape; 0 where the model cannot be built here."""
    counted: list[float] = []
    try:
        with torch.no_grad():  # shapes alone: no numbers are computed
            with torch.device("meta"):
                made = models.MODELS[model](classes, shape).eval()
            for layer in made.modules():
                layer.register_forward_hook(lambda layer, _, out: counted.append(_multiplications(layer, out)))
            size, kind = ((1, shape[1]), torch.long) if text else ((1, *shape), torch.float32)
            made(torch.zeros(size, dtype=kind, device="meta"))
    except (RuntimeError, ValueError, ImportError, NotImplementedError):
        return 0.0
    return max(1.0, sum(counted))


def _multiplications(layer: nn.Module, out: Any) -> float:
    """What one layer multiplies to make its outputs; layers inside it count for themselves."""
    if isinstance(layer, Lstm):
        return out.shape[-2] * sum(weight.numel() for weight in layer.parameters())
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
        return out.numel() * layer.weight[0].numel()
    return 0.0


def _is_cpu(device: str) -> bool:
    return device.endswith(" CPU")


def _shape(plain: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(plain.get(name) for name in SHAPE)


def _measured(device: str, runs: Collection[Entry]) -> list[Timing]:
    """One timing for each kind of run that was made on a device: of the last one that ended."""
    made = [(entry, about) for entry in runs if (about := _about(entry)).get("device_name") == device]
    spans = [span for _, about in made if (span := _span(about))]
    latest = {_kind(about): (entry, about) for entry, about in sorted(made, key=lambda m: m[1].get("ended", ""))}
    return [timing for entry, about in latest.values() if (timing := _timing(entry, about, spans))]


def _about(entry: Entry) -> dict[str, Any]:
    """run.json; nothing where it cannot be read."""
    try:
        about = entry.about()
    except StoreError:
        return {}
    return about if isinstance(about.get("setting"), dict) else {}


def _kind(about: dict[str, Any]) -> tuple[Any, ...]:
    setting = about["setting"]
    return (*(setting.get(name) for name in ("data", "model", "precision")), about.get("method"), _shape(setting))


def _timing(entry: Entry, about: dict[str, Any], spans: list[Span]) -> Timing | None:
    """What a run's history tells; None where it has no round after the first, or cannot be read.

    Where runs shared the device, the seconds of each are divided by how many there were: what counts for a table is how
    many rounds the device makes.
    """
    setting, span = about["setting"], _span(about)
    try:
        first, *rest = [row for row in entry.history() if not row.get("tuned")]
        seconds = median(row["seconds"] for row in rest)
        counted = median(row["gradient_evaluations"] for row in rest)
        model, data = models.find(setting["model"]), find_data(setting["data"]).name
    except (StoreError, ValueError, KeyError):
        return None
    if min(seconds, counted) <= 0 or setting.get("precision", "fp32") not in PRECISIONS:
        return None
    at_once = _at_once(span, spans) if span else 1.0
    trained = first["seconds"] + sum(row["seconds"] for row in rest)
    beside = _beside(span, seconds, trained, 1 + len(rest))
    return Timing(
        about["device_name"], data, model, setting.get("precision", "fp32"), about.get("method", ""), _shape(setting),
        setting["batch"], counted, seconds / at_once, beside / at_once, max(0.0, first["seconds"] - seconds),
        f"run {entry.key[:8]}",
    )  # fmt: skip


def _span(about: dict[str, Any]) -> Span | None:
    """When a run began and ended, in seconds; None where it did not end or does not say."""
    try:
        began, ended = (datetime.fromisoformat(about[name]).timestamp() for name in ("started", "ended"))
    except (KeyError, ValueError, TypeError):
        return None
    return (began, ended) if ended > began else None


def _at_once(own: Span, spans: list[Span]) -> float:
    """How many runs were at work on the device while one was, itself counted, on average."""
    shared = sum(max(0.0, min(own[1], end) - max(own[0], begin)) for begin, end in spans)
    return max(1.0, shared / (own[1] - own[0]))


def _beside(span: Span | None, seconds: float, trained: float, rounds: int) -> float:
    """Seconds a round for what is no training; a share of the round where the run waited or does not say."""
    other = span[1] - span[0] - trained if span else inf
    return other / rounds if 0 <= other <= trained else BESIDE * seconds
