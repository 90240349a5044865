"""What the store has for explorers: runs with probes, the small set of them that a first look needs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from safetensors import safe_open

from fednb.data.partition import Dirichlet
from fednb.experiment import Watch, run
from fednb.methods import method
from fednb.probes import Kept, Probe, kept
from fednb.setting import Setting
from fednb.store import Entry, home
from fednb.widgets.frame import attended

NEEDED = ("perturbation", "gradient", "global")
ALPHAS, METHODS = (0.1, 1.0), ("FedSAM", "FedFFT")

# A first look: few clients, every round probed. The larger scales are the papers' data with models to match.
SCALES: dict[str, dict[str, Any]] = {
    "smoke": dict(
        data="digits", model="cnn-small", samples=250, clients=5, participation=1.0, batch=25, epochs=1, rounds=3
    ),
    "laptop": dict(data="fashion-mnist", model="cnn-small", samples=6000, clients=10, participation=1.0, rounds=5),
    "paper": dict(data="cifar10", model="resnet20-gn", clients=100, participation=0.1, batch=50, epochs=5, rounds=50),
}


@dataclass(frozen=True)
class Stored:
    """A run with probes, by its file: finished, at work or stopped. It has what `sample_of` asks of a run."""

    entry: Entry
    setting: Setting
    method: str
    seed: int
    what: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def data(self) -> str:
        return self.setting.data

    @property
    def alpha(self) -> str:
        """How uneven the clients' data are: alpha, or the whole partition where it is not the common one."""
        part = self.setting.partition
        return f"{part.alpha:g}" if type(part) is Dirichlet and part == Dirichlet(part.alpha) else str(part)

    @property
    def label(self) -> str:
        """What tells it from other runs with the same data, alpha and method."""
        return f"seed {self.seed}, {self.setting.model}, {self.key[:6]}"

    @property
    def title(self) -> str:
        """All of it in a line."""
        return f"{self.data}, α {self.alpha}, {self.method}, {self.label}"

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The rounds that were probed and finished."""
        done = len(self.entry.history())
        there = (int(p.stem.removeprefix("round-")) for p in sorted(_probes(self.entry.folder)))
        return tuple(t for t in there if t < done)

    def probed(self, t: int) -> Kept:
        """What was kept in round t; the last few are held in memory."""
        return _kept(self.entry.folder, t)


@lru_cache(maxsize=8)
def _kept(folder: Path, t: int) -> Kept:
    return kept(folder, t)


def _probes(folder: Path) -> list[Path]:
    return list((folder / "probes").glob("round-*.safetensors"))


def stored(*needed: str) -> list[Stored]:
    """Every run of the store whose probes have all that is needed, and at least one finished round of them."""
    found = (_stored(path.parent) for path in sorted((home() / "runs").glob("*/probes")))
    usable = (s for s in found if s is not None and set(needed) <= set(s.what) and s.rounds)
    return sorted(usable, key=lambda s: (s.data, s.alpha, s.method, s.seed, s.key))


def _stored(folder: Path) -> Stored | None:
    """The run of a folder. One of an older version, whose setting no longer reads, is left out."""
    entry, files = Entry(folder.name, folder), _probes(folder)
    about = entry.about()
    if not about or not files or not (folder / "state.safetensors").exists():
        return None
    with safe_open(files[0], framework="pt") as f:
        what = tuple(f.keys())
    try:
        setting = Setting(**about["setting"])
    except (TypeError, ValueError):
        return None
    return Stored(entry, setting, about["method"], about["seed"], what)


def setting_of(scale: str, data: str | None = None, alpha: float | None = None, rounds: int | None = None) -> Setting:
    """A setting of a scale, with other data, skew or rounds where given; the model stays."""
    if scale not in SCALES:
        raise ValueError(f"scale = {scale!r}: must be one of {', '.join(SCALES)}")
    changes = {"data": data, "rounds": rounds, "partition": None if alpha is None else Dirichlet(alpha)}
    return Setting(**SCALES[scale] | {name: value for name, value in changes.items() if value is not None})


def probe_of(setting: Setting) -> Probe:
    """What explorers need of a run: of every round, or of ten spread over it where there are more."""
    ends = {round(i * (setting.rounds - 1) / 9) for i in range(10)}
    return Probe(NEEDED, rounds=tuple(range(setting.rounds)) if setting.rounds <= 10 else tuple(sorted(ends)))


def first_set(
    scale: str = "smoke", alphas: Sequence[float] = ALPHAS, methods: Sequence[str] = METHODS, device: str = "auto"
) -> list[Stored]:  # fmt: skip
    """The runs of a first look; made where the store does not have them: at smoke scale a few seconds."""
    settings = [setting_of(scale, alpha=alpha) for alpha in alphas]
    with preparing(len(methods) * sum(setting.rounds for setting in settings)) as progress:
        made = [run(setting, method(name), probe=probe_of(setting), device=device, progress=progress).key
                for setting in settings for name in methods]  # fmt: skip
    return [s for key in made for s in stored(*NEEDED) if s.key == key]


@contextmanager
def preparing(rounds: int) -> Iterator[bool | Watch]:
    """How runs are watched: by a bar among the outputs where a front end shows them, else in the runs' own way."""
    if not attended():
        yield True
        return
    import ipywidgets as w
    from IPython.display import display

    bar, said, began = w.IntProgress(max=rounds), w.Label("preparing …"), time.monotonic()

    def watch(_: dict[str, Any]) -> None:
        bar.value += 1
        left = (time.monotonic() - began) / bar.value * (rounds - bar.value)
        said.value = f"preparing: round {bar.value} of {rounds}, about {left:.0f} s left"

    shown = w.HBox([bar, said])
    display(shown)
    try:
        yield watch
    finally:
        shown.close()
