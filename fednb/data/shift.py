"""Feature shift: all clients have the same classes, but each sees its images through corruptions of its own."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch

from fednb.base.streams import stream
from fednb.data.corrupt import KINDS, SEVERITIES, corrupted_by
from fednb.data.dataset import Dataset
from fednb.data.labels import Iid
from fednb.data.split import PartitionFailed


@dataclass(frozen=True)
class FeatureShift(Iid):
    """Equal IID parts; each client draws 2 or 3 of the 15 corruptions, and each of its images gets one of them.

    SpecGradFilter, Table VIII ("CIFAR-10-C" at severity 3): the released files corrupt test images only, so that the
    paper must have made or chosen training images in a way it does not print. We corrupt the training set with the
    same functions. The other reading, clients that share out the released test images, is not offered.
    The test set meets every corruption in turn, in an order that does not know the labels and is the same for every
    seed: its accuracy is an unbiased sample of the mean over corruptions, at a fifteenth of the cost.
    severity: 0 (clean) to 5. fewest, most: how many corruptions a client draws, without replacement.
    """

    severity: int = 3
    fewest: int = 2
    most: int = 3
    name: ClassVar[str] = "feature-shift"

    def __post_init__(self):
        super().__post_init__()
        if self.severity > SEVERITIES:
            raise ValueError(f"{self.name}: severity={self.severity}; allowed is 0 (clean) to {SEVERITIES}.")
        if not 1 <= self.fewest <= self.most <= len(KINDS):
            raise ValueError(
                f"{self.name}: fewest={self.fewest}, most={self.most}; allowed is 1 to {len(KINDS)}, fewest first."
            )

    def kinds(self, seed: int, client: int) -> list[str]:
        """The corruptions that a client draws."""
        rng = stream(seed, "corruptions", client)
        return rng.choice(KINDS, size=rng.integers(self.fewest, self.most + 1), replace=False).tolist()

    def changed(self, data, parts, seed):
        if self.severity == 0:
            return data
        if data.vocabulary:
            raise PartitionFailed(f"{self.name}: {data.name} is text; corruptions are for images.")
        if data.x.dtype != torch.uint8 or data.x.dim() != 4:
            raise PartitionFailed(f"{self.name}: {data.name} is {data.x.dtype}; corruptions are for images of uint8.")
        return shifted(data, self, seed, tuple(np.asarray(part, dtype=np.int64).tobytes() for part in parts))


@lru_cache(maxsize=2)  # all runs of a grid with one seed share it, and so do the worker processes
def shifted(data: Dataset, how: FeatureShift, seed: int, parts: tuple[bytes, ...]) -> Dataset:
    """The corrupted data set, its pixels from 0 to 255 whatever they were; images that nobody holds stay clean."""
    kind = np.full(len(data.y), "", dtype=object)
    for client, part in enumerate(parts):
        index, drawn = np.frombuffer(part, dtype=np.int64), how.kinds(seed, client)
        each = stream(seed, "corruption of each", client).integers(len(drawn), size=len(index))
        kind[index] = np.array(drawn, dtype=object)[each]
    x = corrupted_by(to_255(data.x.numpy(), data.scale), kind, how.severity, seed)
    note = "; ".join(filter(None, (data.note, f"corrupted at severity {how.severity}")))
    return replace(data, x=torch.from_numpy(x), x_test=tested(data, how.severity), scale=255.0, note=note)


@lru_cache(maxsize=2)
def tested(data: Dataset, severity: int) -> torch.Tensor:
    """The test images, every corruption in turn; the seed of the run has no part in it."""
    turn = stream(0, "corruptions of the test set").permutation(len(data.y_test)) % len(KINDS)
    kind = np.array(KINDS, dtype=object)[turn]
    return torch.from_numpy(corrupted_by(to_255(data.x_test.numpy(), data.scale), kind, severity, seed=0))


def to_255(images: np.ndarray, scale: float) -> np.ndarray:
    """Pixels of any scale as 0 to 255."""
    return images if scale == 255.0 else np.rint(images * (255.0 / scale)).astype(np.uint8)
