"""Vectors of published runs, and the method, the reading and the numbers that each of them is about.

A file's name is SOURCE__METHOD__VARIANT.npz. The source is "spec", formulas, or the repository whose code was run; the
variant is words between underscores, of which some choose a rule ("minus", "proxclip") and others only say which
numbers were taken ("base"). The numbers themselves are in the file.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fednb.algorithms.catalogue import method
from fednb.core.rounds import Method
from fednb.engines.replay import Replay, replay

NAMES = {  # the name in the file: the name in the catalogue
    "FedAvg": "FedAvg",
    "FedProx": "FedProx",
    "SCAFFOLD": "SCAFFOLD",
    "FedDyn": "FedDyn",
    "FedCM": "FedCM",
    "FedSAM": "FedSAM",
    "MoFedSAM": "MoFedSAM",
    "FedGamma": "FedGAMMA",
    "FedSpeed": "FedSpeed",
    "FedSMOO": "FedSMOO",
    "FedLESAM": "FedLESAM",
    "FedLESAM_S": "FedLESAM-S",
    "FedLESAM_D": "FedLESAM-D",
    "FedGloSS": "FedGloSS",
    "FedWMSAM": "FedWMSAM",
    "FedFSA": "FedFSA",
    "FedFFT-FedAvg": "FedFFT",
    "FedFFT-SCAFFOLD": "FedFFT-S",
    "FedFFT-FedDyn": "FedFFT-D",
    "SpecGradFilter-FedAvg": "SpecGradFilter",
    "SpecGradFilter-FedProx": "SpecGradFilter-FedProx",
    "SpecGradFilter-SCAFFOLD": "SpecGradFilter-SCAFFOLD",
    "SpecGradFilter-FedDyn": "SpecGradFilter-FedDyn",
    "SpecGradFilter-FedCM": "SpecGradFilter-FedCM",
}
FIELDS = {"lamb": "mu", "r": "ratio", "T_s": "warmup", "rho_default": "rho", "TopC": "top"}  # the file's name: ours
RATES = {"lr": "lr", "lr_decay": "lr_decay", "glr": "server_lr", "server_lr": "server_lr", "wd": "weight_decay",
         "max_norm": "clip_norm"}  # fmt: skip


@cache
def golden(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as stored:
        return dict(stored)


def described(file: Path) -> Method:
    """The file's method with its hyper-parameters and readings; a file of an unknown method is an error."""
    source, name, _ = file.stem.split("__")
    assert name in NAMES, f"{file.name}: no method for {name!r}; add it to NAMES"
    one_class = source == "fedfsarepo"  # that repository has FedFSA's class for MoFedSAM too
    made, hp = method("FedFSA" if one_class else NAMES[name]), golden(file)
    given = {key.removeprefix("hp_"): x for key, x in hp.items() if key.startswith("hp_")}
    given |= {ours: given[theirs] for theirs, ours in FIELDS.items() if theirs in given}
    if "lamb" in given:
        given["beta"] = 1 / given["lamb"]
    made = made.but(**numbers(made, given))
    made = made.but(top=0) if one_class and name == "MoFedSAM" else made
    return made.but(**readings(file, made))


def numbers(made: Method, given: dict[str, Any]) -> dict[str, float]:
    """Those of the file's numbers that the method has, whole where they are whole there."""
    known = made.parameters()
    return {name: type(known[name])(x) for name, x in given.items() if name in known}


def readings(file: Path, made: Method) -> dict[str, Any]:
    """What a file's source and variant say about the rules, for a method that knows such readings."""
    source, _, variant = file.stem.split("__")
    words = variant.split("_")
    chosen: dict[str, Any] = {}
    if (source != "spec" or "minus" in words) and any("released" in part.readings for part in made.parts):
        chosen["reading"] = "released"
    if "proxclip" in words:
        chosen["prox_in_clip"] = True
    return chosen


@cache
def ours(file: Path, engine: str) -> Replay:
    g = golden(file)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    rates = {ours: float(g[f"hp_{theirs}"]) for theirs, ours in RATES.items() if f"hp_{theirs}" in g}
    return replay(
        described(file), model.double(), g["w0"], g["X"], g["Y"], g["mask"], engine=engine, **rates,
        n=g.get("n_samples"),
    )  # fmt: skip
