"""What the store has for explorers: finished runs, runs with probes, and the few of them that a first look needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fednb.algorithms.catalogue import method
from fednb.data.partition import Dirichlet
from fednb.engines.setting import Setting
from fednb.runs.experiment import run, run_of
from fednb.runs.probes import Probe, Probed, read_probe
from fednb.runs.store import DamagedRun, Entry, entries
from fednb.show.explore.waiting import ticking

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

# Runs to compare methods by: more clients, and rounds enough to learn something.
RUNS: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "model": "cnn-small", "clients": 10, "rounds": 15, "epochs": 1, "batch": 20},
    "laptop": {"data": "fashion-mnist", "model": "cnn-small", "clients": 20, "rounds": 30, "batch": 20,
               "samples": 6000},
    "paper": {"data": "cifar10", "model": "resnet20-gn", "clients": 100, "participation": 0.1, "rounds": 200,
              "epochs": 5, "batch": 50},
}  # fmt: skip


@dataclass(frozen=True)
class OnDisk:
    """A run by its file. It has what `sample_of` asks of a run."""

    entry: Entry
    setting: Setting
    method: str
    seed: int

    @property
    def key(self) -> str:
        return self.entry.key


def on_disk(name: str) -> Iterator[tuple[OnDisk, dict[str, Any]]]:
    """The runs whose folders have such a file, and what is known of them.

    One that has no state yet, or of an older version, whose setting no longer reads, is left out; a damaged one, too,
    and it is said.
    """
    for entry in (e for e in entries() if (e.folder / name).exists() and e.state.exists()):
        try:
            about, _ = entry.about(), entry.history()
        except DamagedRun as error:
            print(f"fednb: {error}", file=sys.stderr)
            continue
        with suppress(TypeError, ValueError, KeyError):
            yield OnDisk(entry, Setting(**about["setting"]), about["method"], about["seed"]), about


@dataclass(frozen=True)
class Stored(OnDisk):
    """A run with probes: finished, at work or stopped."""

    what: tuple[str, ...]

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
        """The run in one line: data, method, setting, seed."""
        return f"{self.data}, α {self.alpha}, {self.method}, {self.label}"

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The rounds that were probed and finished."""
        done = len(self.entry.history())
        there = (int(p.stem.removeprefix("round-")) for p in sorted(_probes(self.entry.folder)))
        return tuple(t for t in there if t < done)

    def probed(self, t: int) -> Probed:
        """What was kept in round t; the last few are held in memory."""
        return _kept(self.entry, t)


@lru_cache(maxsize=8)
def _kept(entry: Entry, t: int) -> Probed:
    return read_probe(entry, t)


def _probes(folder: Path) -> list[Path]:
    return list((folder / "probes").glob("round-*.safetensors"))


def stored(*needed: str) -> list[Stored]:
    """Every run of the store whose probes have all that is needed, and at least one finished round of them."""
    found = [Stored(r.entry, r.setting, r.method, r.seed, _names(r.entry.folder)) for r, _ in on_disk("probes")]
    usable = (s for s in found if s.what and set(needed) <= set(s.what) and s.rounds)
    return sorted(usable, key=lambda s: (s.data, s.alpha, s.method, s.seed, s.key))


def _names(folder: Path) -> tuple[str, ...]:
    """What a run's probes kept; nothing where there are none yet."""
    for file in _probes(folder)[:1]:
        with suppress(SafetensorError, OSError), safe_open(file, framework="pt") as f:  # said where it is read
            return tuple(f.keys())
    return ()


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
    wanted = [(setting, method(name), 0, probe_of(setting)) for setting in settings for name in methods]
    keys = [run_of(*each).key for each in wanted]
    missing = [each for each in wanted if not run_of(*each).entry.ended]
    with ticking(sum(setting.rounds for setting, *_ in missing), "first look", "round") as tick:
        for setting, chosen, seed, probe in missing:
            run(setting, chosen, seed, probe=probe, device=device, progress=lambda row: tick())
    return [s for key in keys for s in stored(*NEEDED) if s.key == key]
