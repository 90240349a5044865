"""Measurements that take long, made once for every run and kept beside it: what was stopped goes on where it was."""

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
        """The question as a text."""
        told = {name: _plain(name, value) for name, value in sorted(self.asked.items())}
        return repr((self.what, self.version, __version__, told, self.run.key, self.run.weights_sha256))

    @property
    def file(self) -> Path:
        """Where the answer is kept."""
        mark = hashlib.sha256(self.words.encode()).hexdigest()[:16]
        return self.run.entry.folder / "measured" / f"{self.what}-{mark}.safetensors"

    @property
    def answered(self) -> bool:
        """Whether the answer is there."""
        return self.run.status == "finished" and self.file.exists()

    def answer(self, make: Callable[[], Measured]) -> Measured:
        """Tensors on the CPU: those that were kept, or made now and kept. What is damaged is made again."""
        if self.run.status != "finished":
            return _on_cpu(make())
        if known := load_measurement(self.run.entry, self.file, {"question": self.words}):
            return known[0]
        made = _on_cpu(make())
        self._keep(made)
        return made

    def _keep(self, made: Measured) -> None:
        """Whole or not at all, and one process at a time."""
        entry = self.run.entry
        with suppress(OSError, StoreError, NotAlone), entry.lock():  # what cannot be kept is not lost for that
            new_folder(self.file.parent)
            save_tensors(self.file, made, {"key": entry.key, "question": self.words})


def _on_cpu(tensors: Measured) -> Measured:
    return {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
    return device_of(value).type if name == "device" else value
