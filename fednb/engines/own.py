"""What has to be known of a user's own model before it is trained: does it draw at random, and can it be stacked?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.modules.dropout import _DropoutNd

from fednb.base.inputs import one_line
from fednb.base.streams import stream
from fednb.engines.objective import Objective

TRIED = 64  # samples that a model is asked about twice
CLOSE = 1e-3  # by which gradients of clients that are stacked may differ from those of one alone, of the largest

_one_at_a_time = threading.RLock()  # torch has one generator for all threads


@contextmanager
def seeded(seed: int, *names: str | int, device: torch.device) -> Iterator[None]:
    """A block in which torch's generators begin with a seed for one purpose; afterwards they are as they were."""
    devices = [device] if device.type == "cuda" else []
    with _one_at_a_time, torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(stream(seed, *names).integers(2**63)))
        yield


def draws(objective: Objective, x: Tensor) -> bool:
    """True if a model in training answers by chance, as with Dropout; x: some inputs to try it with."""
    if any(isinstance(m, _DropoutNd) and m.p > 0 for m in objective.model.modules()):
        return True
    w, b = objective.start(x.dtype if x.is_floating_point() else torch.float32, x.device)
    w = w.to(next(objective.model.parameters()).dtype)
    answers = []
    for turn in (0, 1):
        with torch.no_grad(), objective.arithmetic(), seeded(turn, "tried", device=x.device):
            answers.append(objective.outputs(w, b.clone().to(w), x[:TRIED]).nan_to_num())
    return not torch.equal(*answers)


def why_not_stacked(objective: Objective, x: Tensor, y: Tensor) -> str:
    """The reason why clients with this model cannot be stacked; an empty text where they can.

    x, y: inputs and labels of at least one sample, on which gradients of two clients are compared with those of one.
    """
    if len(objective.buffers):
        return "keeps running statistics, as BatchNorm does"
    if objective.draws:
        return "draws at random, as Dropout does"
    if not objective.per_sample:
        return "has a loss that gives one number for a batch, not one for each sample"
    four = torch.arange(4, device=y.device) % len(y)
    x, y = x[four].unflatten(0, (2, 2)), y[four].view(2, 2)
    w, b = objective.start(next(objective.model.parameters()).dtype, y.device)
    try:
        with objective.arithmetic():
            valid = torch.ones_like(y, dtype=w.dtype)
            rows, none = w.expand(2, -1).clone(), b.expand(2, -1).clone()
            g, _ = vmap(grad_and_value(objective.masked_loss))(rows, none, x, y, valid)
        alone = torch.stack([objective.gradient(w, b, x[c], y[c])[0] for c in (0, 1)])
    except Exception as error:  # whatever torch or a user's code raises
        return f"cannot be stacked ({type(error).__name__}: {one_line(str(error), 120)})"
    apart = (g - alone).abs().max()
    return "" if apart <= CLOSE * alone.abs().max() + 1e-6 else "has other gradients when clients are stacked"
