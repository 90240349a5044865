"""What has to be known of a user's own model before it is trained: does it draw, does it count, can it be stacked?"""

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
from fednb.models import BadModel

TRIED = 64  # samples that a model is asked about twice
FEW = 4  # samples on which it is asked whether it counts
FAR = 10**6  # batches that it may have counted
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
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
    return not torch.equal(*(answer(objective, x[:TRIED], turn).nan_to_num() for turn in (0, 1)))


def answer(objective: Objective, x: Tensor, seed: int = 0) -> Tensor:
    """What a model answers in training with its first weights."""
    w, b = objective.start(next(objective.model.parameters()).dtype, x.device)
    with torch.no_grad(), objective.arithmetic(), seeded(seed, "tried", device=x.device):
        return objective.outputs(w, b, x)


def refuse_counters(name: str, objective: Objective, x: Tensor) -> None:
    """BadModel where answers depend on what training changes and nobody carries from client to client.

    That is a count of whole numbers, for example: what is answered by it would depend on who trained before, in the
    same process. A count by which nothing is answered, such as that of BatchNorm with a momentum, may stand.
    """
    twin, x = objective.by_itself(), x[:FEW]
    fresh = {key: each.clone() for key, each in _left_behind(twin).items()}
    if not fresh:
        return
    first = _all_answers(twin, x)
    moved = [key for key, each in _left_behind(twin).items() if not torch.equal(each, fresh[key])]
    if not moved or (_alike(first, _all_answers(twin, x)) and _alike(first, _far_on(twin, moved, x))):
        return
    raise BadModel(
        f"model {name!r}: its answers depend on {', '.join(map(repr, moved[:3]))}, which training changes and nobody "
        "carries from client to client; keep a count in a floating-point buffer, changed in place, and give BatchNorm "
        "a momentum, such as 0.1"
    )


def _left_behind(objective: Objective) -> dict[str, Tensor]:
    """What a model keeps beside the weights and buffers that go from client to client."""
    carried = {*objective.layout.names, *objective.buffers.names}
    state = {**dict(objective.model.named_parameters()), **dict(objective.model.named_buffers())}
    return {key: each.detach() for key, each in state.items() if key not in carried}


def _all_answers(objective: Objective, x: Tensor) -> Tensor:
    """Answers of the first weights in training and outside of it, and the buffers in between, as one vector."""
    w, b = objective.start(next(objective.model.parameters()).dtype, x.device)
    with torch.no_grad(), objective.arithmetic(), seeded(0, "tried", device=x.device):
        return torch.cat([objective.outputs(w, b, x).flatten(), b, objective.logits(w, b, x).flatten()]).nan_to_num()


def _far_on(objective: Objective, names: list[str], x: Tensor) -> Tensor | None:
    """All answers where these counts have reached large numbers; None where there are none."""
    for each in (_left_behind(objective)[name] for name in names):
        if each.dtype in WHOLE:
            each.fill_(min(FAR, torch.iinfo(each.dtype).max))
    try:
        return _all_answers(objective, x)
    except Exception:  # of a user's code, such as an index out of range
        return None


def _alike(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def why_not_stacked(objective: Objective, x: Tensor, y: Tensor) -> str:
    """The reason why clients with this model cannot be stacked; an empty text where they can.

    x, y: inputs and labels of at least one sample, on which gradients of two clients in a stack, whose short batches
    are filled up, are compared with those of each alone.
    """
    if len(objective.buffers):
        return "keeps running statistics, as BatchNorm does"
    if objective.draws:
        return "draws at random, as Dropout does"
    if not objective.per_sample:
        return "has a loss that gives one number for a batch, not one for each sample"
    six = torch.arange(6, device=y.device) % len(y)
    x, y = x[six].unflatten(0, (2, 3)), y[six].view(2, 3)
    w, b = objective.start(next(objective.model.parameters()).dtype, y.device)
    try:
        if objective.criterion is not None and not objective.criterion.separate(answer(objective, x[0])):
            return "has a loss that mixes the samples of a batch"
        with objective.arithmetic():
            valid = torch.tensor([1, 1, 0], device=y.device).expand_as(y).to(w.dtype)
            rows, none = w.expand(2, -1).clone(), b.expand(2, -1).clone()
            g, _ = vmap(grad_and_value(objective.masked_loss))(rows, none, x, y, valid)
        alone = torch.stack([objective.gradient(w, b, x[c, :2], y[c, :2])[0] for c in (0, 1)])
    except Exception as error:  # whatever torch or a user's code raises
        return f"cannot be stacked ({type(error).__name__}: {one_line(str(error), 120)})"
    apart = (g - alone).abs().max()
    same = apart <= CLOSE * alone.abs().max() + 1e-6
    return "" if same else "has other gradients when clients are stacked, as where it mixes the samples of a batch"
