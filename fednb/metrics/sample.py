"""A run's model on a fixed sample of its test set: the loss as a function of the weights alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from fednb.base.streams import stream
from fednb.engines import device_of
from fednb.engines.objective import Objective
from fednb.engines.problem import problem_of
from fednb.runs.result import refuse_others

if TYPE_CHECKING:
    from fednb.runs.experiment import Run

CHUNK = 250  # samples at a time; fixed, so that sums have one order
Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs and labels of some samples, and the model that reads them. Called with weights `[P]` it is the mean loss.

    The model is in evaluation mode: BatchNorm uses the run's last statistics, `b`.
    """

    objective: Objective
    x: Tensor
    y: Tensor
    b: Tensor

    def __call__(self, w: Tensor) -> Tensor:
        return torch.stack([piece(w) for piece in self.pieces]).sum()

    @property
    def pieces(self) -> list[Loss]:
        """The loss as a sum over chunks of samples, for those who cannot hold the graph of all at once."""
        return [lambda w, at=at: self._share(w, at) for at in range(0, len(self.y), CHUNK)]  # type: ignore[misc]

    def _share(self, w: Tensor, at: int) -> Tensor:
        x, y = self.x[at : at + CHUNK], self.y[at : at + CHUNK]
        with evaluating(self.objective.model):
            return self.objective.loss(w, self.b, x, y) * (len(y) / len(self.y))

    def arithmetic(self) -> AbstractContextManager[None]:
        """A block in which torch computes in the run's precision: derivatives of the loss are taken inside."""
        return self.objective.arithmetic()

    def place(self, w: Tensor) -> Tensor:
        """Weights on the device and in the numbers of the model."""
        like = next(self.objective.model.parameters())
        return w.to(like.device, like.dtype)


def arithmetic_of(loss: Loss) -> AbstractContextManager[None]:
    """A block to take derivatives of a loss in: of the run's precision if it is a `Sample`, else as torch is."""
    return loss.arithmetic() if isinstance(loss, Sample) else nullcontext()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards as it was."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


def sample_of(run: Run, count: int = 500, seed: int = 0, device: str = "auto") -> Sample:
    """`count` test samples, drawn once for all runs on the same data, with the model of one run.

    count: 500 in FedFFT (App. D.2). A smaller test set is taken whole. The run's own weights are read only where the
    model has statistics, so that probed models of a run that was exported without its weights can be evaluated.
    """
    refuse_others(run)
    problem = problem_of(run.setting, run.seed, device_of(device))
    assert problem.test is not None
    x, y = problem.test
    index = torch.from_numpy(drawn(len(y), count, seed)).to(y.device)
    sample = Sample(problem.objective, problem.inputs(x[index]), y[index], torch.zeros(0))
    statistics = run.entry.weights()["b"] if len(problem.objective.buffers) else sample.b
    return Sample(sample.objective, sample.x, sample.y, sample.place(statistics))


def drawn(n: int, count: int, seed: int) -> np.ndarray:
    """Which of n samples: `count` of them without replacement, in order."""
    if count < 1:
        raise ValueError(f"{count} samples: at least one is needed")
    return np.sort(stream(seed, "test sample").permutation(n)[:count])
