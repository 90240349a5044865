"""A data set that lives once on the device; clients are index lists into it, batches are gathered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from fednb.data.dataset import TENSORS, Dataset
from fednb.data.plan import augment, batches, changes, step_count

Drawn = tuple[Tensor, Tensor | None]  # samples of each client, step and place in its batch; how each is changed


@dataclass(frozen=True, eq=False)
class Resident:
    """The data of all clients: raw samples, each client's index list (on the host), what turns samples into inputs."""

    data: Dataset
    parts: list[Tensor]
    dtype: torch.dtype
    augmented: bool
    crop_every: bool = False

    @classmethod
    def of(
        cls, data: Dataset, parts: list[np.ndarray], dtype: torch.dtype, augmented: bool, device: torch.device | str,
        crop_every: bool = False,
    ) -> Resident:  # fmt: skip
        data = _placed(data, torch.device(device))
        lists = [torch.as_tensor(p, dtype=torch.int64) for p in parts]
        return cls(data, lists, dtype, augmented and (data.flip or data.pad > 0), crop_every)

    @property
    def sizes(self) -> Tensor:
        return torch.tensor([len(p) for p in self.parts])

    def holding(self, x: Tensor, y: Tensor) -> Resident:
        """This data with its samples in other tensors, such as those that a compiler traces."""
        twin = replace(self, data=replace(self.data, x=x, y=y))
        if not self.data.vocabulary:
            vars(twin)["scaling"] = self.scaling  # made once, and never while a graph is captured
        return twin

    def test(self, own: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        """The test set: the data's, or all clients' own splits together."""
        if not own:
            return self.data.x_test, self.data.y_test
        index = torch.as_tensor(np.concatenate(own), device=self.data.x.device)
        return self.data.x[index], self.data.y[index]

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation per channel, on the data's device."""
        each = torch.tensor([self.data.mean, self.data.std], dtype=self.dtype, device=self.data.x.device)
        mean, std = each.view(2, -1, *[1] * (self.data.x.dim() - 2))
        return mean, std

    def inputs(self, x: Tensor) -> Tensor:
        """Raw samples as the model's inputs: pixels scaled to [0, 1] and normalised per channel; tokens as they are."""
        if self.data.vocabulary:
            return x.long()
        mean, std = self.scaling
        return (x.to(self.dtype) / self.data.scale - mean) / std

    def plan(self, seed: int, t: int, ids: list[int], epochs: int, size: int) -> ResidentPlan:
        """The batches of some clients in round t, padded with −1 to the longest of them."""
        return self.placed(self.drawn(seed, t, ids, epochs, size))

    def drawn(self, seed: int, t: int, ids: list[int], epochs: int, size: int) -> Drawn:
        """What `plan` consists of, still on the host."""
        size = min(size, max(map(len, self.parts)))  # no batch is longer than the largest client
        counts = [step_count(len(self.parts[i]), epochs, size) for i in ids]
        index = torch.full((len(ids), max(counts), size), -1, dtype=torch.int64)
        how = torch.zeros((*index.shape, 3), dtype=torch.int64) if self.augmented else None
        for c, (i, steps) in enumerate(zip(ids, counts, strict=True)):
            local = batches(seed, t, i, len(self.parts[i]), epochs, size)
            index[c, :steps] = torch.where(local < 0, -1, self.parts[i][local.clamp_min(0)])
            if how is not None:
                how[c, :steps] = changes(seed, t, i, steps, size, self.data.pad, self.data.flip, self.crop_every)
        return index, how

    def placed(self, drawn: Drawn) -> ResidentPlan:
        """A round's batches on the device of the data."""
        (index, how), device = drawn, self.data.x.device
        return ResidentPlan(self, index.to(device), None if how is None else how.to(device))


@lru_cache(maxsize=4)  # runs of one process share what lies on a device
def _placed(data: Dataset, device: torch.device) -> Dataset:
    return replace(data, **{name: getattr(data, name).to(device) for name in TENSORS})


@dataclass(frozen=True, eq=False)
class ResidentPlan:
    """One round's batches as indices into the resident data."""

    home: Resident
    index: Tensor  # [C, S, B], −1 where there is no sample
    how: Tensor | None  # [C, S, B, 3]

    def at(self, step: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batches of a step: of one for all clients, or of each one's own, `[C, 1]` on the device."""
        index, how = _batch(self.index, step), None if self.how is None else _batch(self.how, step)
        flat = index.clamp_min(0).reshape(-1)
        x = self.home.inputs(self.home.data.x[flat])
        if how is not None:
            x = augment(x, how.reshape(-1, 3), self.home.data.pad)
        return x.reshape(*index.shape, *x.shape[1:]), self.home.data.y[flat].reshape(index.shape), index >= 0


def _batch(x: Tensor, step: int | Tensor) -> Tensor:
    """Row `step` of x `[C, S, ...]` for each client, `[C, ...]`; the last row for a step behind it."""
    if isinstance(step, int) or step.dim() == 0:
        here = x.new_tensor([step], dtype=torch.int64) if isinstance(step, int) else step.view(1)
        return x.index_select(1, here).squeeze(1)
    own = step.clamp_max(x.shape[1] - 1).view(-1, *[1] * (x.dim() - 1))
    return x.gather(1, own.expand(-1, 1, *x.shape[2:])).squeeze(1)
