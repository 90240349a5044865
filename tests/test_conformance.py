"""Published runs, reproduced: numbers made by the methods' own code (or by formulas that matched it), see golden/.

One tiny network, three rounds, four clients of whom some stay away; every batch is in the file.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fednb.engines.replay import Replay, replay
from fednb.methods import method
from fednb.rounds import Method

FILES = sorted((Path(__file__).parent / "golden").glob("*.npz"))
ENGINES = ("loop", "stacked")

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
    "FedFFT-FedAvg": "FedFFT",
    "FedFFT-SCAFFOLD": "FedFFT-S",
    "FedFFT-FedDyn": "FedFFT-D",
    "SpecGradFilter-FedAvg": "SpecGradFilter",
    "SpecGradFilter-FedProx": "SpecGradFilter-FedProx",
    "SpecGradFilter-SCAFFOLD": "SpecGradFilter-SCAFFOLD",
    "SpecGradFilter-FedDyn": "SpecGradFilter-FedDyn",
    "SpecGradFilter-FedCM": "SpecGradFilter-FedCM",
}
CLIENTS = {"h": ("state_h_params_list", "h"), "c_k": ("state_c_i_params_list", "ci")}  # ours: the file's names for it
SERVER = {"c": ("server_c_params_list", "c")}
each_file = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
each_engine = pytest.mark.parametrize("engine", ENGINES)


@cache
def golden(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as stored:
        return dict(stored)


def described(file: Path) -> Method:
    """The catalogue's method with the file's hyper-parameters; a file of an unknown method is an error."""
    _, name, variant = file.stem.split("__")
    assert name in NAMES, f"{file.name}: no method for {name!r}; add it to NAMES"
    made, hp = method(NAMES[name]), golden(file)
    given = dict(rho=hp["hp_rho"], alpha=hp["hp_alpha"], mu=hp["hp_lamb"], beta=1 / hp["hp_lamb"], ratio=hp.get("hp_r"))
    if variant.startswith("proxclip"):
        return made.but(prox_in_clip=True, **numbers(made, given))
    return made.but(**numbers(made, given))


def numbers(made: Method, given: dict) -> dict[str, float]:
    """Those of the file's numbers that the method has."""
    return {name: float(x) for name, x in given.items() if name in made.parameters()}


@cache
def ours(file: Path, engine: str) -> Replay:
    g = golden(file)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    rates = dict(lr=float(g["hp_lr"]), lr_decay=float(g["hp_lr_decay"]), server_lr=float(g["hp_glr"]))
    return replay(
        described(file), model.double(), g["w0"], g["X"], g["Y"], g["mask"], engine=engine, **rates,
        weight_decay=float(g["hp_wd"]), clip_norm=float(g["hp_max_norm"]),
    )  # fmt: skip


def agree(ours: torch.Tensor, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-9)


@each_engine
@each_file
def test_global_weights(file, engine):
    """Before the first round and after each."""
    agree(ours(file, engine).w, golden(file)["w"])


@each_engine
@each_file
def test_local_weights_of_those_who_came(file, engine):
    here = golden(file)["mask"].astype(bool)
    got = ours(file, engine).local
    agree(got[here], golden(file)["local"][here])
    assert got[~here].isnan().all()


def stored(file: Path, keys: tuple[str, ...]) -> np.ndarray:
    """A state of the published run, under whichever name the file has for it."""
    found = [golden(file)[key] for key in keys if key in golden(file)]
    assert len(found) == 1, f"{file.name}: wanted one of {', '.join(keys)}"
    assert np.abs(found[0]).max() > 1e-3, "an empty state would agree with nothing done"
    return found[0]


@each_engine
@each_file
def test_state(file, engine):
    """Duals and control variates of all clients, and the server's, after each round; its h is the mean of theirs."""
    run = ours(file, engine)
    for name, got in run.clients.items():
        agree(got, stored(file, CLIENTS[name]))
    for name, got in run.server.items():
        if name == "h":
            agree(got, stored(file, CLIENTS["h"]).mean(1))
        elif name != "m":  # see test_momentum
            agree(got, stored(file, SERVER[name]))


@each_engine
@each_file
def test_passes(file, engine):
    """Six steps of one or two network passes for those who came, as counted in the published code."""
    got, g = ours(file, engine).gradients.numpy(), golden(file)
    ascends = "rho" in described(file).parameters()
    assert (got == (12 if ascends else 6) * g["mask"]).all()
    if "n_forward" in g:
        assert (got == g["n_forward"]).all()


@each_engine
@pytest.mark.parametrize("file", [f for f in FILES if "recv_Client_momentum" in golden(f)], ids=lambda f: f.stem)
def test_momentum(file, engine):
    """What each client received in a round is what the server had made in the round before; zero at first."""
    g = golden(file)
    m = ours(file, engine).server["m"]
    sent = torch.cat([torch.zeros_like(m[:1]), m[:-1]])
    for t, i in np.argwhere(g["mask"]):
        agree(sent[t], g["recv_Client_momentum"][t, i])


@each_file
def test_rates(file):
    """η_t = η · decay^t, and all other numbers of the problem are those of its description."""
    g = golden(file)
    assert g["mask"].tolist() == [[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]]
    assert g["X"].shape == (3, 4, 2, 3, 4, 6)
    if "lr" in g:
        np.testing.assert_allclose(g["lr"], g["hp_lr"] * g["hp_lr_decay"] ** np.arange(3), rtol=1e-12)


def test_every_method_has_its_file():
    """No published run is lost without notice: each name has one, and the filters' are there cut and uncut."""
    names = [file.stem.split("__")[1] for file in FILES]
    assert set(names) == set(NAMES)
    for name in NAMES:
        if "-" in name:
            variants = {f.stem.split("__")[2] for f in FILES if f.stem.split("__")[1] == name}
            assert variants == {"r0.0_base", "r0.2_base"}
    assert sum("proxclip" in f.stem for f in FILES) == 3
    assert sum("recv_Client_momentum" in golden(f) for f in FILES) == 2


def test_a_file_of_an_unknown_method_fails(tmp_path):
    stranger = tmp_path / "flsim__FedNobody__base.npz"
    np.savez(stranger, **golden(FILES[0]))
    with pytest.raises(AssertionError, match="no method for 'FedNobody'"):
        described(stranger)


def test_the_files_tell_methods_apart():
    """Final weights differ between any two files but those that must agree: the limits r = 0 and an idle clip."""
    last = {f.stem: golden(f)["w"][-1] for f in FILES}
    same = {frozenset((a, b)) for a in last for b in last if a < b and np.abs(last[a] - last[b]).max() < 1e-9}
    wanted = [
        ("flsim__FedDyn__base", "spec__FedDyn__proxclip_base"),
        ("flsim__FedProx__base", "spec__FedProx__proxclip_base"),
        ("flsim__FedSpeed__base", "spec__FedSpeed__proxclip_base"),
        ("flsim__FedSAM__base", "spec__FedFFT-FedAvg__r0.0_base"),
        ("flsim__FedGamma__base", "spec__FedFFT-SCAFFOLD__r0.0_base"),
        ("flsim__FedSpeed__base", "spec__FedFFT-FedDyn__r0.0_base"),
        ("spec__FedSpeed__proxclip_base", "spec__FedFFT-FedDyn__r0.0_base"),
        *[(f"flsim__{m}__base", f"spec__SpecGradFilter-{m}__r0.0_base")
          for m in ("FedAvg", "FedCM", "FedDyn", "FedProx", "SCAFFOLD")],
        *[(f"spec__{m}__proxclip_base", f"spec__SpecGradFilter-{m}__r0.0_base") for m in ("FedDyn", "FedProx")],
    ]  # fmt: skip
    assert same == set(map(frozenset, wanted))
