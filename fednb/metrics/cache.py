"""Measurements that take long, stored beside their run: each is made when first asked for, and read after that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fednb.base.files import new_folder, save_tensors
from fednb.base.locks import NotAlone
from fednb.base.version import __version__
from fednb.engines import device_of
from fednb.runs.store import StoreError, load_measurement

if TYPE_CHECKING:
    from fednb.runs.experiment import Run

Measured = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked about a run, with everything that decides the answer.

    what, version: the measurement; raise its version when the same question gets another answer. asked: all that
    changes the numbers besides the run itself, which counts with its key and the bits of its last weights; a tensor
    counts with its bits, "device" by its kind. A run that is not finished may still change: nothing is kept of it.
    """

    run: Run
    what: str
    version: int
    asked: dict[str, Any]

    @cached_property
    def words(self) -> str:
        """The question as a text; its hash names the file."""
        asked = {name: _comparable(name, value) for name, value in sorted(self.asked.items())}
        return repr((self.what, self.version, __version__, asked, self.run.key, self.run.weights_sha256))

    @property
    def file(self) -> Path:
        """The file of the answer, in the run's folder."""
        mark = hashlib.sha256(self.words.encode()).hexdigest()[:16]
        return self.run.entry.folder / "measured" / f"{self.what}-{mark}.safetensors"

    @property
    def answered(self) -> bool:
        """True if the answer is stored."""
        return self.run.status == "finished" and self.file.exists()

    def answer(self, make: Callable[[], Measured]) -> Measured:
        """Tensors on the CPU: read from the file, or made now by `make` and stored. A damaged file is made again."""
        if self.run.status != "finished":
            return _on_cpu(make())
        if known := load_measurement(self.run.entry, self.file, {"question": self.words}):
            return known[0]
        made = _on_cpu(make())
        self._keep(made)
        return made

    def _keep(self, made: Measured) -> None:
        """Store the answer atomically, under the run's lock; where that cannot be done it is only not stored."""
        entry = self.run.entry
        with suppress(OSError, StoreError, NotAlone), entry.lock():
            new_folder(self.file.parent)
            save_tensors(self.file, made, {"key": entry.key, "question": self.words})


def _on_cpu(tensors: Measured) -> Measured:
    return {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}


def _comparable(name: str, value: Any) -> Any:
    """A value of a question such that equal ones have equal texts: a tensor as shape and hash, a device as its kind."""
    if isinstance(value, Tensor):
        return tuple(value.shape), hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
    return device_of(value).type if name == "device" else value
