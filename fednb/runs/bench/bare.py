"""Federated averaging as one writes it by hand: a module, a copy of its weights per client, torch.optim, a mean.

What the engines are compared with. It shares nothing with them but the batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = dict[str, Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]


class BareLoop:
    """The server's model, and its clients one after another.

    rho: the radius of FedSAM's ascent; 0 is FedAvg. half: layers multiply in bfloat16.
    """

    def __init__(
        self, model: nn.Module, lr: float, weight_decay: float, clip_norm: float | None, rho: float = 0.0,
        half: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.lr, self.weight_decay, self.clip_norm, self.rho = model, lr, weight_decay, clip_norm, rho
        self.half = half
        self.state: State = {name: x.clone() for name, x in model.state_dict().items()}

    def round(self, clients: Iterable[tuple[float, Batches]]) -> float:
        """Everyone trains; the server takes the mean, weighed by the given shares. Returns the mean of the losses."""
        mean: State = {name: torch.zeros_like(x) for name, x in self.state.items()}
        losses = []
        for share, batches in clients:
            self.model.load_state_dict(self.state)
            losses.append(self._train(batches))
            for name, x in self.model.state_dict().items():
                if x.is_floating_point():
                    mean[name].add_(x, alpha=share)
                else:
                    mean[name].copy_(x)
        self.state = mean
        return float(torch.stack(losses).mean())

    def _train(self, batches: Batches) -> Tensor:
        self.model.train()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        total, seen = torch.zeros((), device=next(self.model.parameters()).device), 0
        for x, y in batches:
            optimizer.zero_grad()
            loss = self._loss(x, y)
            loss.backward()
            if self.rho:
                self._again_uphill(optimizer, x, y)
            if self.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
            optimizer.step()
            total, seen = total + loss.detach() * len(y), seen + len(y)
        return total / seen

    def _again_uphill(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
        """The gradient rho further up, in the place of the one here (SAM)."""
        weights: list[Tensor] = [p for p in self.model.parameters() if p.grad is not None]
        slopes = [p.grad for p in weights if p.grad is not None]
        length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in slopes]))
        climb = [g * (self.rho / (length + 1e-7)) for g in slopes]
        before = [p.detach().clone() for p in weights]
        with torch.no_grad():
            torch._foreach_add_(weights, climb)
        optimizer.zero_grad()
        self._loss(x, y).backward()
        with torch.no_grad():
            torch._foreach_copy_(weights, before)

    def _answer(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16) if self.half else nullcontext():
            out = self.model(x)
        return out.float() if self.half else out

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self._answer(x), y)

    @torch.no_grad()
    def accuracy(self, batches: Batches) -> float:
        """In percent."""
        self.model.load_state_dict(self.state)
        self.model.eval()
        seen = [((self._answer(x).argmax(-1) == y).sum(), len(y)) for x, y in batches]
        return 100.0 * int(sum(right for right, _ in seen)) / sum(n for _, n in seen)
