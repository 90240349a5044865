"""What a probe keeps is what the clients had, and keeping it changes nothing."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import fednb as fn
from fednb.data.plan import batches
from fednb.data.sources import load
from fednb.engines.problem import clients_of
from fednb.models import build
from fednb.runs.experiment import run_of
from fednb.runs.probes import Probe

SETTING = fn.Setting(
    rounds=2, clients=3, participation=1, epochs=1, batch=50, samples=300, partition="dirichlet(alpha=0.5)"
)
EVERYTHING = ("gradient", "perturbation", "move", "model")


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    """One store for all tests of this file, so that a run asked for twice is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield


def run(method, probe=None, **changes):
    return fn.run(SETTING.but(**changes), method, device="cpu", engine="loop", progress=False, probe=probe)


def gradient(w, client, t, steps=(0,)):
    """The mean gradient of a client's batches by plain autograd: a module, its loss, backward."""
    data, part = load("digits"), clients_of(SETTING, 0, load("digits"))[client]
    drawn = batches(0, t, client, len(part), SETTING.epochs, SETTING.batch)
    model = build(SETTING.model, 10, (1, 8, 8), seed=0)
    torch.nn.utils.vector_to_parameters(w, model.parameters())
    for step in steps:
        index = torch.from_numpy(part)[drawn[step][drawn[step] >= 0]]
        x = (data.x[index].float() / 16 - 0.3054) / 0.3760
        (cross_entropy(model(x), data.y[index]) / len(steps)).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def first_weights():
    return torch.nn.utils.parameters_to_vector(build(SETTING.model, 10, (1, 8, 8), seed=0).parameters()).detach()


def close(a, b):
    return torch.allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["FedSAM", "SCAFFOLD", "FedFFT-D"])
def test_a_probe_changes_nothing(name):
    """The same weights, bit for bit, and the same gradients counted; kept under a key of its own."""
    plain, probed = run(name), run(name, Probe(EVERYTHING, rounds=(0, 1), batches=2))
    assert probed.weights_sha256 == plain.weights_sha256 and probed.key != plain.key
    for left, right in zip(plain.rows, probed.rows, strict=True):
        assert {**left, "seconds": 0} == {**right, "seconds": 0}


def test_everything_is_kept_for_every_participant_with_the_layers():
    done = run("FedSAM", Probe(EVERYTHING, rounds=(1,)))
    kept = done.probed(1)
    model = build(SETTING.model, 10, (1, 8, 8), seed=0)
    assert kept.clients == (0, 1, 2) and kept.round == 1 and set(kept.vectors) == set(EVERYTHING)
    assert kept.layout.names == tuple(name for name, _ in model.named_parameters())
    assert {x.shape for x in kept.vectors.values()} == {(3, sum(p.numel() for p in model.parameters()))}
    assert not list(done.entry.folder.glob("probes/round-000000*"))


def test_gradients_are_those_of_the_first_batch_at_the_global_model():
    """Round 0 starts at the model's own weights, round 1 where one round alone ends."""
    done = run("FedAvg", Probe(("gradient", "perturbation"), rounds=(0, 1)))
    for t, w in enumerate([first_weights(), run("FedAvg", rounds=1).w]):
        vectors = done.probed(t).vectors
        for i in range(3):
            assert close(vectors["gradient"][i], gradient(w, i, t))
        assert not vectors["perturbation"].any()  # FedAvg looks nowhere else


def test_several_batches_are_averaged():
    """Two batches: the mean of their gradients, both at the global model. More than there are: all there are."""
    two = run("FedAvg", Probe(("gradient",), batches=2)).probed(0).vectors["gradient"]
    assert close(two[0], gradient(first_weights(), 0, 0, steps=(0, 1)))
    part = clients_of(SETTING, 0, load("digits"))[0]
    every = range(-(-len(part) // SETTING.batch))
    many = run("FedAvg", Probe(("gradient",), batches=10_000)).probed(0).vectors["gradient"]
    assert close(many[0], gradient(first_weights(), 0, 0, steps=every))


@pytest.mark.parametrize("rho", [0.1, 0.7])
def test_perturbations_have_length_rho_along_the_gradient(rho):
    """δ = ρ g / (‖g‖ + 10⁻⁷), so ‖δ‖ = ρ ‖g‖ / (‖g‖ + 10⁻⁷) and ⟨δ, g⟩ = ‖δ‖ ‖g‖."""
    vectors = run(fn.method("FedSAM", rho=rho), Probe(("gradient", "perturbation")), rounds=1).probed(0).vectors
    g, delta = vectors["gradient"].double(), vectors["perturbation"].double()
    lengths, wanted = delta.norm(dim=1), rho * g.norm(dim=1) / (g.norm(dim=1) + 1e-7)
    assert lengths.tolist() == pytest.approx(wanted.tolist(), rel=1e-5)
    assert (delta * g).sum(1).tolist() == pytest.approx((lengths * g.norm(dim=1)).tolist(), rel=1e-5)


def test_filtered_perturbations_are_kept_filtered():
    """FedFFT takes the lowest frequencies out: 16,384 weights lose ⌊0.01 · 8193⌋ = 81 of them, with them their mean."""
    done = run("FedFFT", Probe(), rounds=1).probed(0)
    raw = run("FedSAM", Probe(), rounds=1).probed(0)
    mean, before = (
        kept.layout.layers(kept.vectors["perturbation"])["fc1.weight"].mean(1).abs() for kept in (done, raw)
    )
    assert (mean < 1e-9).all() and (before > 1e-7).all()


def test_moves_are_models_minus_the_global_model_and_average_to_its_step():
    """Δ_k = w_k − w, and the next global model is w + Σ (n_k / n) Δ_k."""
    done = run("FedAvg", Probe(("move", "model"), rounds=(0, 1)))
    n = torch.tensor([float(len(p)) for p in clients_of(SETTING, 0, load("digits"))])
    weights = [first_weights(), run("FedAvg", rounds=1).w, done.w]
    for t in (0, 1):
        vectors = done.probed(t).vectors
        assert torch.equal(vectors["move"], vectors["model"] - weights[t])
        assert vectors["move"].abs().max() > 1e-3
        assert torch.allclose(weights[t + 1], weights[t] + n / n.sum() @ vectors["move"], atol=1e-6)


@pytest.mark.parametrize(
    "bad, said",
    [
        (dict(what=("weights",)), r"probe 'weights': must be one of gradient, perturbation, move, model"),
        (dict(what=("gradient", "loss")), r"probe 'loss'"),
        (dict(batches=0), r"batches = 0, .*at least 1 batch"),
        (dict(rounds=(0, -1)), r"rounds = \(0, -1\): .*rounds from 0"),
    ],
)
def test_bad_probes_are_refused(bad, said):
    with pytest.raises(ValueError, match=said):
        Probe(**bad)


def test_lists_from_a_file_are_the_same_probe():
    assert Probe(["move"], [0, 2]) == Probe(("move",), (0, 2)) and repr(Probe(["move"])) == repr(Probe(("move",)))


def test_what_parts_declare_is_kept_by_its_name():
    """FedSCAM: ρ_k = 0.05 / (1 + h_adj), the length of each client's perturbation; u of the server, after it moved."""
    what = ("k.rho_k", "k.h_adj", "s.u", "perturbation")
    plain, done = run("FedSCAM"), run("FedSCAM", Probe(what, rounds=(0, 1)))
    assert done.weights_sha256 == plain.weights_sha256
    for t in (0, 1):
        vectors = done.probed(t).vectors
        assert set(vectors) == set(what) and vectors["k.rho_k"].shape == (3, 1)
        assert torch.allclose(vectors["k.rho_k"], 0.05 / (1 + vectors["k.h_adj"]), rtol=1e-6)
        assert torch.allclose(vectors["perturbation"].norm(dim=1, keepdim=True), vectors["k.rho_k"], rtol=1e-4)
    assert done.probed(0).vectors["k.rho_k"].unique().numel() == 3
    assert torch.equal(vectors["s.u"], done.entry.weights()["u"][None])
    assert not torch.equal(done.probed(0).vectors["s.u"], vectors["s.u"])


@pytest.mark.parametrize("method, what, said", [
    ("FedAvg", "k.rho_k", r"probe 'k.rho_k': no part of FedAvg declares it; declared are nothing"),
    ("FedSCAM", "s.rho_k", r"probe 's.rho_k': no part of FedSCAM declares it; declared are .*k.rho_k.*s.u"),
])  # fmt: skip
def test_what_no_part_declares_is_refused_before_anything_runs(method, what, said):
    probe = Probe((what,))
    with pytest.raises(ValueError, match=said):
        run(method, probe, rounds=1)
    assert run_of(SETTING.but(rounds=1), fn.method(method), 0, probe).status == "absent"
