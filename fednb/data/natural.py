"""Clients that the data itself knows: each one is a writer, or a role in a play."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch

from fednb.base.streams import stream
from fednb.data.dataset import Dataset
from fednb.data.split import Partition, PartitionFailed


@dataclass(frozen=True)
class Natural(Partition):
    """Each client is one natural client (a writer of FEMNIST, a role of Shakespeare) with all that it has.

    The setting's number of clients is drawn by the seed among those with at least `minimum` samples, and the test set
    is what the drawn ones have in it: LEAF's own way to make a smaller federation (Shakespeare in FedFFT: 226 roles, a
    fifth of 1129). Samples of the others are not used.
    minimum: 1 in LEAF (its k = 0); where every client is tested on its own split it needs two at least.
    """

    minimum: int = 1
    name: ClassVar[str] = "natural"
    least: ClassVar[int] = 1

    def split(self, labels, clients, seed, owner=None):
        if owner is None:
            raise PartitionFailed(
                f"{self.name}: this data set does not know natural clients. femnist and shakespeare do (`fednb ls "
                "data`), and yours with fn.add_data(..., owners=...); for others take a partition by label, such as "
                "'dirichlet(alpha=0.1)'."
            )
        known, number, sizes = np.unique(owner, return_inverse=True, return_counts=True)
        large = np.flatnonzero(sizes >= self.minimum)
        if not 1 <= clients <= len(large):
            raise PartitionFailed(
                f"{self.name}: clients={clients}; the data has {len(known)} natural clients, {len(large)} of them with "
                f"at least {self.minimum} samples. Lower clients or minimum."
            )
        drawn = np.sort(stream(seed, "partition", self.name).choice(large, size=clients, replace=False))
        held = np.split(np.argsort(number, kind="stable"), sizes.cumsum()[:-1])
        return [held[each].astype(np.int64) for each in drawn]

    def changed(self, data, parts, seed):
        if data.owner is None or data.owner_test is None:
            return data
        return tested_by(data, tuple(int(data.owner[part[0]]) for part in parts))


@lru_cache(maxsize=4)
def tested_by(data: Dataset, owners: tuple[int, ...]) -> Dataset:
    """The data with only those owners' test samples."""
    assert data.owner_test is not None
    theirs = torch.isin(data.owner_test, torch.tensor(owners, device=data.owner_test.device))
    if theirs.all():
        return data
    if not theirs.any():
        raise PartitionFailed(
            f"natural: none of the {len(owners)} clients has a test sample; raise clients or minimum."
        )
    return replace(data, x_test=data.x_test[theirs], y_test=data.y_test[theirs], owner_test=data.owner_test[theirs])
