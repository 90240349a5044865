"""Published runs, reproduced: numbers made by the methods' own code (or by formulas that matched it), see golden/.

One tiny network, three rounds, four clients of whom some stay away; every batch is in the file.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from published import NAMES, described, golden, ours

FILES = sorted((Path(__file__).parent / "golden").glob("*.npz"))
ENGINES = ("loop", "stacked")

ONE_PASS = ("FedLESAM", "FedLESAM_S", "FedLESAM_D", "FedWMSAM")  # ascents that need no gradient of their own
CLIENTS = {  # ours: the file's names for it
    "h": ("state_h_params_list", "h"),
    "c_k": ("state_c_i_params_list", "ci"),
    "mu": ("state_mu_params_list", "mu"),
    "sigma": ("state",),
}
SERVER = {
    "c": ("server_c_params_list", "c"),
    "s": ("server_global_dynamic_dual", "s"),
    "sigma": ("sigma",),
    "alpha": ("alpha",),
}
ELSEWHERE = {"m", "w_old", "seen", "w_last", "w_sent", "large", "epochs_done"}  # state with a test of its own
each_file = pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
each_engine = pytest.mark.parametrize("engine", ENGINES)


def files_with(*keys: str):
    """Those files that have any of the keys."""
    some = [f for f in FILES if any(key in golden(f) for key in keys)]
    return pytest.mark.parametrize("file", some, ids=lambda f: f.stem)


def agree(file: Path, ours: torch.Tensor, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-12)


@each_engine
@each_file
def test_global_weights(file, engine):
    """Before the first round and after each."""
    agree(file, ours(file, engine).w, golden(file)["w"])


@each_engine
@files_with("local")
def test_local_weights_of_those_who_came(file, engine):
    here = golden(file)["mask"].astype(bool)
    got = ours(file, engine).local
    agree(file, got[here], golden(file)["local"][here])
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
    for name in run.clients.keys() - ELSEWHERE:
        agree(file, run.clients[name], stored(file, CLIENTS[name]))
    for name in run.server.keys() - ELSEWHERE:
        if name == "h":
            agree(file, run.server[name], stored(file, CLIENTS["h"]).mean(1))
        else:
            agree(file, run.server[name], stored(file, SERVER[name]).reshape(3, -1))


@each_engine
@pytest.mark.parametrize("file", [f for f in FILES if "FedLESAM" in f.stem], ids=lambda f: f.stem)
def test_what_clients_last_received(file, engine):
    """w_old is the global model of the last round that the client came to, the first model for those who never did."""
    g, run = golden(file), ours(file, engine)
    last = [[max([s for s in range(t + 1) if g["mask"][s, i]], default=0) for i in range(4)] for t in range(3)]
    assert last == [[0, 0, 0, 0], [0, 1, 1, 1], [2, 2, 1, 1]]
    agree(file, run.clients["w_old"], g["w"][last])
    agree(file, run.server["w_last"], g["w"][:-1])
    assert run.clients["seen"][..., 0].tolist() == [[1, 0, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]


@each_engine
@files_with("w_sent")
def test_model_sent_down(file, engine):
    """FedGloSS sends w̃, not w: in the first round the first model, then what the round before had made."""
    sent, w = golden(file)["w_sent"], golden(file)["w"]
    agree(file, ours(file, engine).server["w_sent"][:-1], sent[1:])
    assert np.linalg.norm(sent - w[:-1], axis=1).tolist() == pytest.approx([0, 0.05, 0.05], abs=1e-12)


@each_engine
@pytest.mark.parametrize("file", [f for f in FILES if "__FedFSA__" in f.stem], ids=lambda f: f.stem)
def test_selected_layers(file, engine):
    """The one layer with the larger radius, 0 = W1 or 2 = W2, for those who came; the others keep theirs."""
    g, run = golden(file), ours(file, engine)
    chosen = np.zeros((3, 4, 4))
    for t, i in np.argwhere(g["mask"]):
        chosen[t:, i] = np.eye(4)[g["sel"][t, i, 0]]
    assert set(g["sel"].flat) == {-1, 0, 2}
    assert (run.clients["large"].numpy() == chosen).all()
    assert (run.clients["epochs_done"][..., 0].numpy() == 2 * g["mask"].cumsum(0)).all()


@each_engine
@each_file
def test_passes(file, engine):
    """Six steps of one or two network passes for those who came, as counted in the published code."""
    got, g = ours(file, engine).gradients.numpy(), golden(file)
    twice = "rho" in described(file).parameters() and file.stem.split("__")[1] not in ONE_PASS
    assert (got == (12 if twice else 6) * g["mask"]).all()
    if "n_forward" in g:
        assert (got == g["n_forward"]).all()


@each_engine
@files_with("recv_Client_momentum", "momentum")
def test_momentum(file, engine):
    """What each client received in a round is what the server had made in the round before; zero at first."""
    g = golden(file)
    m = ours(file, engine).server["m"]
    sent = torch.cat([torch.zeros_like(m[:1]), m[:-1]])
    for t, i in np.argwhere(g["mask"]):
        agree(file, sent[t], g["momentum"][t] if "momentum" in g else g["recv_Client_momentum"][t, i])


@each_engine
@pytest.mark.parametrize("file", [f for f in FILES if "__FedWMSAM__" in f.stem], ids=lambda f: f.stem)
def test_momentum_after_the_round(file, engine):
    agree(file, ours(file, engine).server["m"], stored(file, ("mom",)))


@each_file
def test_rates(file):
    """η_t = η · decay^t, and all other numbers of the problem are those of its description."""
    g = golden(file)
    assert g["mask"].tolist() == [[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]]
    assert g["X"].shape == ((3, 4, 1, 6, 4, 6) if "FedGloSS" in file.stem else (3, 4, 2, 3, 4, 6))
    if "server_rhos" in g:
        assert g["server_rhos"].tolist() == [0.05] * 3 and g["client_rhos"].tolist() == [0.04] * 3
    if "lr_client" in g:  # the decay of FedFSA's file is 1: nothing decays
        assert g["lr_client"][g["mask"]].tolist() == [0.1] * 7
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
    assert sum("proxclip" in f.stem for f in FILES) == 4
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
        ("flsim__FedSMOO__base", "spec__FedSMOO__proxclip_base"),
        ("flsim__FedSAM__base", "spec__FedFFT-FedAvg__r0.0_base"),
        ("flsim__FedGamma__base", "spec__FedFFT-SCAFFOLD__r0.0_base"),
        ("flsim__FedSpeed__base", "spec__FedFFT-FedDyn__r0.0_base"),
        ("spec__FedSpeed__proxclip_base", "spec__FedFFT-FedDyn__r0.0_base"),
        *[(f"flsim__{m}__base", f"spec__SpecGradFilter-{m}__r0.0_base")
          for m in ("FedAvg", "FedCM", "FedDyn", "FedProx", "SCAFFOLD")],
        *[(f"spec__{m}__proxclip_base", f"spec__SpecGradFilter-{m}__r0.0_base") for m in ("FedDyn", "FedProx")],
    ]  # fmt: skip
    assert same == set(map(frozenset, wanted))
