"""The model as a function of a flat vector, and its gradient: what engines give to mathematics.

A run's precision is entered here and nowhere else: whoever calls a model, an engine or a measurement, calls it by an
`Objective`, which computes in the `arithmetic` of its precision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy, deepcopy
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fednb.core.record import OwnLoss
from fednb.core.vectors import Layout
from fednb.engines.losses import BadLoss, Loss

SHORT = ("tf32", "bf16")  # precisions in which products of 32-bit numbers may keep 10 bits after the point


class OutsideArithmetic(RuntimeError):
    """A model's answer was asked for, to be differentiated, where the precision of its run does not hold."""


class Objective:
    """The mean loss of a model whose weights are a vector `[P]` and whose buffers are a vector `[B]`.

    precision: see `Setting`; with bf16 layers multiply in 16 bits, while weights, sums and losses stay in 32.
    Gradients, scores and answers that nobody differentiates are computed in the run's arithmetic from wherever they are
    asked for. A caller that differentiates `outputs` or a loss itself does so inside `arithmetic()`, backward pass and
    all; outside it is refused.
    mark: what tells a user's own model from others that look like it. draws: the model answers by chance in training.
    criterion: a user's own loss in place of cross-entropy; per_sample: it gives a number for each sample.
    Parameters that require no gradient are no part of the vector.
    """

    def __init__(
        self, model: nn.Module, precision: str = "fp32", mark: str = "", criterion: Loss | None = None,
        per_sample: bool = True,
    ) -> None:  # fmt: skip
        self.model = model
        self.criterion, self.per_sample = criterion, per_sample
        self.precision = precision
        self.mark = mark
        self.draws = False
        self.layout = Layout.of({name: p for name, p in model.named_parameters() if p.requires_grad})
        self.buffers = Layout.of({k: v for k, v in model.named_buffers() if v.is_floating_point()})
        self.fixed = 0

    @cached_property
    def form(self) -> str:
        """What is computed here apart from the weights: the precision, the model in words, and which loss."""
        loss = "" if self.criterion is None else f" loss {self.criterion.serial}"
        return f"{self.precision} {self.model!r}{self.mark}{loss}"

    def by_itself(self) -> Objective:
        """This objective with a model of its own: a model must not be called by two threads at the same time."""
        twin = copy(self)
        twin.model = deepcopy(self.model)
        return twin

    def only_last(self, layers: int | None) -> Objective:
        """This objective with a gradient that is zero but in so many layers at the end; itself where none is named."""
        if layers is None:
            return self
        twin = copy(self)
        twin.fixed = max(0, len(self.layout) - layers)
        return twin

    def arithmetic(self) -> AbstractContextManager[None]:
        """A block in which torch computes in this run's precision, on one thread."""
        return arithmetic(self.precision)

    def start(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """The model's own weights and buffers as vectors."""
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        b = self.buffers.flat(state) if len(self.buffers) else torch.zeros(0)
        return self.layout.flat(state).to(device, dtype), b.to(device, dtype)

    def outputs(self, w: Tensor, b: Tensor, x: Tensor) -> Tensor:
        """What the model answers; in training mode BatchNorm writes its new statistics into `b`."""
        return self._answer(self._state(w, b), x)

    def _state(self, w: Tensor, b: Tensor) -> dict[str, Tensor]:
        weights = self.layout.tensors(w)
        held = {name: weights[name].detach() for name in self.layout.names[: self.fixed]}
        return {**weights, **held, **self.buffers.tensors(b)}

    def _answer(self, state: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        if holds(self.precision):
            return self._called(state, inputs)
        if torch.is_grad_enabled() and any(x.requires_grad for x in state.values()):
            raise OutsideArithmetic(
                f"a derivative of a {self.precision} model outside of its arithmetic: on a GPU the backward pass would "
                f"have torch's precision. Take it inside `with objective.arithmetic():`"
            )
        with self.arithmetic():
            return self._called(state, inputs)

    def _called(self, state: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Any:
        if self.precision != "bf16":
            return functional_call(self.model, state, inputs)
        with torch.autocast(inputs[0].device.type, torch.bfloat16, cache_enabled=False):
            out = functional_call(self.model, state, inputs)
        return out.float() if isinstance(out, Tensor) else tuple(x.float() for x in out)

    def loss(self, w: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
        if self.criterion is not None:
            return self.criterion.mean(self.outputs(w, b, x), y)
        return F.cross_entropy(self.outputs(w, b, x), y)

    def masked_loss(self, w: Tensor, b: Tensor, x: Tensor, y: Tensor, valid: Tensor) -> Tensor:
        """The loss where some samples of the batch are only padding; zero where all are."""
        out = self.outputs(w, b, x)
        losses = F.cross_entropy(out, y, reduction="none") if self.criterion is None else self.criterion(out, y)
        return (losses * valid).sum() / valid.sum().clamp_min(1)

    def own_loss(
        self, w: Tensor, b: Tensor, x: Tensor, y: Tensor, valid: Tensor, row: Tensor, common: Tensor,
        step: int | Tensor, loss: Callable[..., tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The mean of a part's own loss over the samples that are there, and the sum of what it saw of them."""
        if self.criterion is not None:
            raise BadLoss(f"loss {self.criterion.name!r}: this method has a loss of its own; run it with cross-entropy")
        state = self._state(w, b)
        draws = hasattr(self.model, "latent")
        losses, seen = loss(lambda *more: self._answer(state, x, *(more if draws else ())), y, row, step, common)
        valid = valid[:, None]
        return (losses * valid).sum() / valid.sum().clamp_min(1), torch.where(valid > 0, seen, 0.0).sum(0).detach()

    def gradient(self, w: Tensor, b: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """∇L and L at w on one batch."""
        leaf = w.detach().requires_grad_()
        with self.arithmetic():
            loss = self.loss(leaf, b, x, y)
            (g,) = torch.autograd.grad(loss, leaf)
        return g, loss.detach()

    def own_loss_gradient(
        self, told: OwnLoss, step: int, w: Tensor, b: Tensor, x: Tensor, y: Tensor, row: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """∇L and L at w on one batch, L a part's own loss, and the sum of what the part saw."""
        leaf = w.detach().requires_grad_()
        with self.arithmetic():
            valid = torch.ones_like(y, dtype=w.dtype)
            loss, seen = self.own_loss(leaf, b, x, y, valid, row, told.common, step, told.loss)
            (g,) = torch.autograd.grad(loss, leaf)
        return g, loss.detach(), seen

    @torch.no_grad()
    def score(self, w: Tensor, b: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Correct answers, and the sum of cross-entropies; on the device, nobody waits for them here."""
        with self.arithmetic():
            out = self.logits(w, b, x)
            loss = F.cross_entropy(out.double(), y, reduction="sum")
        return (out.argmax(-1) == y).sum(), loss

    @torch.no_grad()
    def logits(self, w: Tensor, b: Tensor, x: Tensor) -> Tensor:
        """What the model answers outside of training, where Dropout and BatchNorm stand still."""
        self.model.eval()
        try:
            with self.arithmetic():
                return self.outputs(w, b, x)
        finally:
            self.model.train()


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: sums then have one order, so that every engine and machine load gives the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Entered(threading.local):
    """What a thread has entered by `arithmetic`: whether products may be short; None outside."""

    short: bool | None = None


_entered = _Entered()


class _Switches:
    """torch's switches of arithmetic, which all threads share: the first sets them, the last puts them back."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside = 0
        self.before: tuple[bool, bool, int] = (False, False, 1)

    def enter(self, short: bool) -> None:
        """Set them; wait while other threads need them otherwise."""
        with self.changed:
            self.changed.wait_for(lambda: not self.inside or self.short == short)
            if not self.inside:
                self.before, self.short = self._now(), short
                self._set(short, short, 1)
            self.inside += 1

    def leave(self) -> None:
        with self.changed:
            self.inside -= 1
            if not self.inside:
                self._set(*self.before)
            self.changed.notify_all()

    @contextmanager
    def turned(self, short: bool) -> Iterator[None]:
        """Other switches inside a block of this very thread."""
        before = self._now()
        self._set(short, short, 1)
        try:
            yield
        finally:
            self._set(*before)

    def _now(self) -> tuple[bool, bool, int]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.get_num_threads()

    def _set(self, matmul: bool, cudnn: bool, threads: int) -> None:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn
        torch.set_num_threads(threads)


_switches = _Switches()


def holds(precision: str) -> bool:
    """Whether this thread is inside the arithmetic of a precision."""
    return _entered.short == (precision in SHORT)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """One thread; and on a GPU products of 32-bit numbers with 10 bits after the point where the precision allows.

    Inside a block of such a precision it does nothing, so that every step of a round may ask for it. Threads that want
    different arithmetic wait for each other.
    """
    if holds(precision):
        yield
        return
    outer, short = _entered.short, precision in SHORT
    if outer is None:
        _switches.enter(short)
    _entered.short = short
    try:
        with nullcontext() if outer is None else _switches.turned(short):
            yield
    finally:
        _entered.short = outer
        if outer is None:
            _switches.leave()


def wait_for(device: str | torch.device) -> None:
    """Until the device has done what this thread gave it; a clock read before that shows only the giving."""
    if torch.device(device).type == "cuda":
        torch.cuda.current_stream(device).synchronize()
