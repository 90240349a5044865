"""The loss of the local steps: cross-entropy, or a user's own function of logits and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fednb.base.inputs import one_line, shown
from fednb.engines.functions import Functions, Named

CROSS_ENTROPY = "cross-entropy"
TRIED = 6  # samples that a loss is tried on
WANTED = "one number for each sample, or their mean"


class BadLoss(ValueError):
    """A loss that is not there, or not what it should be: which, and what was expected."""


@dataclass(frozen=True, eq=False)
class Loss(Named):
    """A user's loss: a function of logits `[n, classes]` and labels `[n]`."""

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        """What the function gives: losses `[n]`, or their mean."""
        return self.function(logits, y)

    def mean(self, logits: Tensor, y: Tensor) -> Tensor:
        """The mean over the samples."""
        return self(logits, y).mean()

    def tried(self, classes: int, dtype: torch.dtype, device: str | torch.device) -> bool:
        """True if it gives a number for each sample, False if their mean; BadLoss where it gives anything else."""
        logits, y = _drawn(TRIED, torch.empty(classes, dtype=dtype, device=device))
        logits.requires_grad_()
        try:
            found = self(logits, y)
        except Exception as error:  # of a user's code
            why = f"{type(error).__name__}: {one_line(str(error), 200)}"
            raise BadLoss(f"loss {self.name!r} fails on logits {tuple(logits.shape)}: {why}") from error
        if not isinstance(found, Tensor) or tuple(found.shape) not in ((), (TRIED,)):
            answer = tuple(found.shape) if isinstance(found, Tensor) else shown(found)
            raise BadLoss(f"loss {self.name!r} gives {answer} for {TRIED} samples, expected a tensor {(TRIED,)} or (): "
                          f"{WANTED}")  # fmt: skip
        self._differentiated(found, logits)
        return found.dim() == 1

    def separate(self, like: Tensor) -> bool:
        """True if no sample's loss changes with the other samples of its batch; like: some logits."""
        logits, y = _drawn(2 * TRIED, like)
        y[TRIED:] = 0
        return torch.allclose(self(logits, y)[:TRIED], self(logits[:TRIED], y[:TRIED]), rtol=1e-4, atol=1e-6)

    def _differentiated(self, found: Tensor, logits: Tensor) -> None:
        """Refuse losses that are not finite, and those that say nothing about the logits."""
        if not found.isfinite().all():
            raise BadLoss(f"loss {self.name!r} gives {shown(found.tolist())}, expected finite numbers: {WANTED}")
        g = torch.autograd.grad(found.sum(), logits, allow_unused=True)[0] if found.requires_grad else None
        if g is None or not g.isfinite().all():
            wrong = "cannot be differentiated" if g is None else "has a gradient that is not finite"
            raise BadLoss(f"loss {self.name!r} {wrong}, expected torch operations on the logits from end to end")


def _drawn(n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Logits `[n, classes]` of the kind of others `[..., classes]`, and labels `[n]` of all classes in turn."""
    logits = torch.randn(n, like.shape[-1], generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)
    return logits, torch.arange(n, device=like.device) % like.shape[-1]


LOSSES: Functions[Loss] = Functions("loss", BadLoss, Loss, {CROSS_ENTROPY: Loss(CROSS_ENTROPY, lambda *asked: None)})


def add_loss(name: str, function: Any) -> None:
    """Enter a loss of your own under a name, for `fn.Setting(loss=name)` in this process.

    function: takes logits `[n, classes]` and labels `[n]`, gives the losses of the samples `[n]`, or their mean as one
    number, by torch operations. Only losses `[n]`, each of its own sample, run on every engine: `stacked` fills up
    short batches with samples that must not count, and a mean has them counted already; with a mean, or a loss that
    mixes the samples of a batch, `loop` or `pool` takes its place.

    Every local step goes down this loss, with any method that has none of its own; `train_loss` in the history is its
    mean, while `test_loss` stays cross-entropy, so that runs with different losses can be compared. A run's key has the
    function's code. A name can be used again: another function replaces the former, which is said. In a TOML file or on
    the command line a loss is named by its import path, such as "my_package.losses:focal".

    >>> def focal(logits, labels):
    ...     loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    ...     return (1 - torch.exp(-loss)) ** 2 * loss
    >>> fn.add_loss("focal", focal)
    >>> setting = fn.Setting(loss="focal", samples=100, clients=4, rounds=1, epochs=1)
    >>> fn.run(setting, "FedSAM", progress=False).status
    'finished'
    """
    LOSSES.add(Loss(name, function))
