"""Extra metrics of a run: functions of logits and labels, ready ones and a user's own, as columns of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor

from fednb.base.inputs import one_line, shown
from fednb.engines.functions import Functions, Named

OVER_CLIENTS = ("mean", "min", "max")
BINS = 15  # of confidence, as in Guo et al. 2017
COLUMNS = (
    "round", "accuracy", "test_loss", "validation_accuracy", "validation_loss", "global_accuracy", "own_accuracy",
    "tuned", "train_loss", "drift", "seconds", "gradient_evaluations", "bytes_down", "bytes_up", "clients", "lr",
)  # that a history has anyway  # fmt: skip


class BadMetric(ValueError):
    """A metric that is not there, or not what it should be: which, and what was expected."""


@dataclass(frozen=True, eq=False)
class Metric(Named):
    """A function of logits `[n, classes]` and labels `[n]` that gives a number.

    per_client: "" for one number on the test set; "mean", "min" or "max" over the clients of each one's number.
    """

    per_client: str = ""

    def code(self) -> list[Any]:
        return [*super().code(), self.per_client]

    def __call__(self, logits: Tensor, y: Tensor) -> float:
        """The number for some samples; nan where the logits are not finite. BadMetric where the function fails."""
        if not logits.isfinite().all():
            return nan
        try:
            found = self.function(logits, y)
            return float(found)
        except Exception as error:  # of a user's code
            why = f"{type(error).__name__}: {one_line(str(error), 200)}"
            given = f"logits {tuple(logits.shape)} and labels {tuple(y.shape)}"
            raise BadMetric(f"metric {self.name!r} gives no number for {given}: {why}") from error

    def over_clients(self, values: Iterable[float]) -> float:
        """One number from those of all clients."""
        each = torch.tensor(list(values), dtype=torch.float64)
        of_all: dict[str, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "min": torch.amin, "max": torch.amax}
        return float(of_all[self.per_client](each))


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of right answers, in percent.

    >>> accuracy(torch.eye(4), torch.tensor([0, 1, 2, 2]))
    75.0
    """
    return 100.0 * float((logits.argmax(-1) == labels).double().mean())


def macro_f1(logits: Tensor, labels: Tensor) -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN), in percent.

    A class that no sample has and no answer names is left out.

    >>> round(macro_f1(torch.eye(3), torch.tensor([0, 1, 1])), 2)               # F1 of 1, 2/3 and 0
    55.56
    """
    classes = logits.shape[-1]
    answered, there = (torch.bincount(each, minlength=classes) for each in (logits.argmax(-1), labels))
    right = torch.bincount(labels[logits.argmax(-1) == labels], minlength=classes)
    seen = answered + there > 0
    return 100.0 * float((2.0 * right.double()[seen] / (answered + there)[seen]).mean())


def calibration_error(logits: Tensor, labels: Tensor) -> float:
    """The expected calibration error, in percent: how far confidence is from accuracy, over 15 bins of confidence.

    >>> round(calibration_error(100.0 * torch.eye(4), torch.tensor([0, 1, 2, 2])), 2)   # sure of 4 answers, 3 right
    25.0
    """
    sure, answers = logits.double().softmax(-1).max(-1)
    bins = (sure * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, (answers == labels).double() - sure)
    return 100.0 * float(gaps.abs().sum()) / len(labels)


def _made(name: str, function: Any) -> Metric:
    """A metric from an import path, whose function may say by an attribute `per_client` what is taken over clients."""
    return checked(Metric(name, function, per_client=getattr(function, "per_client", "")))


def checked(metric: Metric) -> Metric:
    """The metric; BadMetric where its name is another column's, or `per_client` is not known."""
    if metric.name in COLUMNS:
        raise BadMetric(f"metric {metric.name!r} is a column that every history has; take another name")
    if metric.per_client not in ("", *OVER_CLIENTS):
        given = shown(metric.per_client)
        raise BadMetric(
            f"metric {shown(metric.name)}: per_client = {given}, expected {', '.join(OVER_CLIENTS)} or none"
        )
    return metric


READY = [
    Metric("macro_f1", macro_f1),
    Metric("calibration_error", calibration_error),
    Metric("worst_client_accuracy", accuracy, per_client="min"),
]
METRICS: Functions[Metric] = Functions("metric", BadMetric, _made, {each.name: each for each in READY})


def find_all(names: Any) -> tuple[str, ...]:
    """The names of some metrics, each once and sorted: from a list of names, or a text with commas between them.

    >>> find_all("macro_f1, calibration_error")
    ('calibration_error', 'macro_f1')
    """
    each = names.split(",") if isinstance(names, str) else names
    if not isinstance(each, list | tuple | set | frozenset):
        raise BadMetric(f"metrics = {shown(names)}: must be names, such as ['macro_f1', 'calibration_error']")
    there = [name for name in each if not isinstance(name, str) or name.strip()]
    return tuple(sorted({METRICS.find(name) for name in there}))


def add_metric(name: str, function: Any, *, per_client: str = "") -> None:
    """Enter a metric of your own under a name, for `fn.Setting(metrics=[name])` in this process.

    function: takes logits `[n, classes]` and labels `[n]`, torch tensors on the CPU, and gives a number. The history of
    a run has it in a column of that name beside `accuracy`, in every round that is tested.
    per_client: by default the samples are the test set and the model is the server's. With "mean", "min" or "max" the
    function is asked about each client's own samples, and the column has the mean, the least or the largest of the
    answers. A client's own samples are its test split where the setting has evaluation="personal", answered by the
    client's own model; those that it holds out where the setting has validation; its training samples otherwise.

    Ready are "macro_f1", "calibration_error" and "worst_client_accuracy", all in percent. Metrics change no weights,
    but are part of a run's key, with their code: a stored run that lacks one is not taken for one that has it. By
    import path, such as "my_package.scores:top3", the function may have an attribute `per_client`.

    >>> def top3(logits, labels):
    ...     return 100 * (logits.topk(3).indices == labels[:, None]).any(1).float().mean()
    >>> fn.add_metric("top3", top3)
    >>> setting = fn.Setting(metrics=["top3", "macro_f1"], samples=100, clients=4, rounds=2, epochs=1)
    >>> history = fn.run(setting, "FedAvg", progress=False).history
    >>> bool((history["top3"] >= history["accuracy"]).all())
    True
    """
    METRICS.add(checked(Metric(name, function, per_client=per_client)))
