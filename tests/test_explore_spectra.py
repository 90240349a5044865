"""What the spectra explorer shows is what metrics say of stored probes; collecting can be stopped and goes on."""

import re
from threading import Event

import pytest
import torch
from moving import check
from small_store import TINY, VIEW, store  # noqa: F401

import fednb as fn
from fednb.core.vectors import Layout, cos, norm
from fednb.filters import HighPass, cut
from fednb.metrics import drift, spectra
from fednb.metrics.sample import sample_of
from fednb.runs import experiment
from fednb.show.explore import stored as shelves
from fednb.show.explore.look import Look, Losses, spectrum
from fednb.show.explore.spectra import Spectra

CONV = "conv2.weight"


@pytest.fixture(scope="module")
def one():
    return Spectra(alphas=[0.5, 5.0], methods=["FedSAM", "FedFFT"], device="cpu")


@pytest.fixture
def explorer(one):
    """The same for all tests, with its controls as they were at first."""
    one.patient, one.found = True, shelves.stored(*shelves.NEEDED)
    with one.together():
        one.choose(one.first[0].key)
        for name, value in {"layer": drift.WHOLE, "round": 0, "one": 0, "other": 2, "ratio": 0.05}.items():
            one.controls[name].value = value
    return one


@pytest.fixture
def mine(explorer):
    return explorer.first[0]


def delta(mine, t=0):
    return mine.probed(t).vectors["perturbation"]


def test_the_first_look_makes_its_runs_once(explorer, monkeypatch):
    """Two alphas and two methods, every round probed; the second look finds all of it in the store."""
    assert [(s.alpha, s.method, s.rounds) for s in explorer.first] == [
        ("0.5", "FedSAM", (0, 1)), ("0.5", "FedFFT", (0, 1)), ("5", "FedSAM", (0, 1)), ("5", "FedFFT", (0, 1)),
    ]  # fmt: skip
    monkeypatch.setattr(experiment, "_train", lambda *_: pytest.fail("trained again"))
    again = Spectra(alphas=[0.5, 5.0], methods=["FedSAM", "FedFFT"], device="cpu")
    assert [s.key for s in again.first] == [s.key for s in explorer.first]
    assert again.values == explorer.values  # how it opens


def test_only_runs_with_what_is_needed_are_offered(explorer):
    """A run whose probe kept moves alone has nothing to show here, but is there for those who want moves."""
    other = fn.run(shelves.setting_of("smoke"), "FedAvg", probe=fn.Probe(("move",)), device="cpu", progress=False)
    assert other.key not in {s.key for s in shelves.stored(*shelves.NEEDED)}
    assert other.key in {s.key for s in shelves.stored("move")}


def test_a_stored_run_is_the_run(explorer, mine):
    setting = shelves.setting_of("smoke", alpha=0.5)
    run = fn.run(setting, "FedSAM", probe=shelves.probe_of(setting), device="cpu", progress=False)
    assert (mine.key, mine.setting, mine.seed) == (run.key, run.setting, run.seed)
    assert torch.equal(delta(mine, 1), run.probed(1).vectors["perturbation"])


def test_long_runs_are_probed_in_ten_rounds():
    assert shelves.probe_of(fn.Setting(rounds=10)).rounds == tuple(range(10))
    assert shelves.probe_of(fn.Setting(rounds=100)).rounds == (0, 11, 22, 33, 44, 55, 66, 77, 88, 99)


@pytest.mark.parametrize("layer", [drift.WHOLE, CONV])
@pytest.mark.parametrize("ratio", [0.0, 0.05, 0.4])
def test_a_cut_gives_the_numbers_of_filters_and_metrics(mine, layer, ratio):
    """Norms, cosine, agreement and variance of HighPass(r)(δ), in one layer or in all."""
    kept = mine.probed(0)
    look = Look(mine, 0, layer)
    left = kept.layout.map(HighPass(ratio), delta(mine))
    x = left if layer == drift.WHOLE else kept.layout.layers(left)[layer]
    seen = look.at(ratio, 0, 2)
    assert torch.allclose(seen.vectors, x, atol=1e-8)
    assert seen.norms == pytest.approx(norm(x.double())[:, 0].tolist(), rel=1e-5)
    assert seen.cosine == pytest.approx(float(cos(x[0].double(), x[2].double())), abs=1e-5)
    assert seen.agreement == pytest.approx(drift.agreement(x), abs=1e-6)
    bands = torch.stack(list(spectra.variance(x, look.layout).values())).mean(0)
    assert seen.bands == pytest.approx(bands.tolist(), rel=1e-4, abs=1e-13)
    assert seen.taken == sum(cut(ratio, n) for n in look.layout.sizes)


def test_few_frequencies_have_as_many_bands(mine):
    """Ten weights have ⌊10/2⌋ + 1 = 6 frequencies."""
    assert len(Look(mine, 0, "fc2.bias").at(0.0, 0, 1).bands) == 6


def test_a_wave_has_its_amplitude_at_its_place():
    """x_i = a cos(2π 3 i / n), n = 64: ẑ_3 = a √n / 2, at (3 + 1) / 33; other frequencies are zero."""
    i = torch.arange(64, dtype=torch.float64)
    wave = torch.stack([a * torch.cos(2 * torch.pi * 3 * i / 64) for a in (1.0, 2.0)])
    curves = spectrum(wave, Layout(("w",), ((64,),)))
    for (at, y), a in zip(curves, (1.0, 2.0), strict=True):
        assert y.max() == pytest.approx(a * 4) and at[y.argmax()] == pytest.approx(4 / 33)
        assert sorted(y)[-2] < 1e-9


def test_the_loss_is_that_of_the_filtered_perturbation(mine):
    """L(w + Φ(δ_k)) on the sample that all clients share; L(w) of nobody. Each is computed once."""
    losses, kept = Losses(mine, 1, "cpu"), mine.probed(1)
    sample = sample_of(mine, losses.samples, device="cpu")
    w = kept.vectors["global"][0]
    for client, ratio in ((1, 0.0), (1, 0.3)):
        there = w + kept.layout.map(HighPass(ratio), delta(mine, 1)[client])
        assert losses.at(client, ratio) == pytest.approx(float(sample(there)), rel=1e-5)
    assert losses.at(None, 0.0) == pytest.approx(float(sample(w)), rel=1e-5)
    assert losses.at(1, 0.0) != losses.at(1, 0.3) != losses.at(None, 0.0)
    losses.sample = None
    assert losses.at(1, 0.3) == losses.known(1, 0.3) and losses.known(2, 0.3) is None


def test_words_tell_the_cut(explorer, mine):
    """The cosine and the norms in the table are the metrics' own, to the digits shown."""
    explorer.controls["ratio"].value = 0.2
    left = mine.probed(0).layout.map(HighPass(0.2), delta(mine))
    said = explorer.words.value
    one, other = explorer.controls["one"].value, explorer.controls["other"].value
    assert f"→ {float(cos(left[one].double(), left[other].double())):.4f}; mean" in said
    assert re.search(rf"client {one}</th><td>[\d.]+</td><td>{float(norm(left[one])):.4g}</td>", said)


@pytest.mark.parametrize("name, value", [
    ("ratio", 0.3), ("layer", CONV), ("round", 1), ("method", "FedFFT"), ("alpha", "5"), ("one", 1), ("other", 1),
])  # fmt: skip
def test_every_control_changes_the_picture(explorer, name, value):
    explorer.refresh()
    before = explorer.picture.value
    explorer.controls[name].value = value
    assert explorer.picture.value != before and "role='alert'" not in explorer.words.value


def test_dragging_the_line_is_the_same_as_typing(explorer):
    explorer.line.slider.value = 0.1
    dragged = explorer.picture.value
    explorer.controls["ratio"].value = 0.3
    assert explorer.picture.value != dragged
    explorer.controls["ratio"].value = 0.1
    assert explorer.picture.value == dragged


def test_a_choice_narrows_those_below_it(explorer):
    """Each choice offers what the store has for the ones above; the run is always one that fits them."""
    for alpha in ("5", "0.5"):
        for method in ("FedFFT", "FedSAM"):
            explorer.controls["alpha"].value, explorer.controls["method"].value = alpha, method
            mine = explorer._run(explorer.controls["run"].value)
            assert (mine.alpha, mine.method) == (alpha, method)


def test_a_client_is_not_paired_with_itself(explorer):
    explorer.refresh()
    before = explorer.picture.value
    explorer.controls["other"].value = explorer.controls["one"].value
    assert "paired with itself" in explorer.words.value and explorer.picture.value == before


def test_nothing_is_shown_of_methods_that_look_nowhere(explorer):
    setting = shelves.setting_of("smoke", alpha=0.5)
    run = fn.run(setting, "FedAvg", probe=shelves.probe_of(setting), device="cpu", progress=False)
    explorer.found = shelves.stored(*shelves.NEEDED)
    explorer.choose(run.key)
    explorer.refresh()
    assert "FedAvg perturbs nothing" in explorer.words.value


def test_slow_losses_come_after_the_picture(explorer, monkeypatch):
    """Dots at first, the number when it is there; the same number as for those who wait."""
    explorer.controls["ratio"].value = 0.07
    waited = explorer.words.value
    monkeypatch.setattr(Losses, "quick", False)
    monkeypatch.setattr(explorer.later, "do", held := [].append)
    explorer.patient = False
    explorer.controls["one"].value = 1
    explorer.controls["ratio"].value = 0.011
    assert "…" in explorer.words.value
    held.__self__[-1]()
    assert "…" not in explorer.words.value
    explorer.controls["ratio"].value, explorer.controls["one"].value = 0.07, 0
    assert explorer.words.value == waited


def test_headless_and_live(explorer, monkeypatch):
    bundle = explorer._repr_mimebundle_()
    assert VIEW not in bundle and "image/png" in bundle
    monkeypatch.setenv("FEDNB_WIDGETS", "live")
    bundle = explorer._repr_mimebundle_()
    assert VIEW in bundle and "image/png" in bundle


def collect(explorer, method, alpha=0.5, rounds=3):
    c = explorer.collector
    c.method.value, c.alpha.value, c.rounds.value = method, alpha, rounds
    c.collect()
    return c


def test_collected_probes_are_chosen(explorer):
    c = collect(explorer, "MoFedSAM", alpha=2.0, rounds=2)
    assert c.wait(60) and "MoFedSAM: finished, 2 rounds" in c.said.value and c.bar.value == 2
    chosen = {name: explorer.controls[name].value for name in ("alpha", "method")}
    assert chosen == {"alpha": "2", "method": "MoFedSAM"} and not c.start.disabled and c.stop.disabled
    assert explorer.picture.value


def test_stop_keeps_finished_rounds_and_collect_goes_on(explorer, monkeypatch):
    """Stopped in the first of three rounds: one is kept and offered. Collected again: the weights of one go."""
    rounds, first = [], Event()
    plain = experiment._one_round

    def counted(*given):
        rounds.append(1)
        first.set()
        return plain(*given)

    monkeypatch.setattr(experiment, "_one_round", counted)
    c = collect(explorer, "FedGAMMA")
    assert first.wait(60)
    c.end()
    assert c.wait(60) and "stopped after 1 of 3 rounds" in c.said.value and len(rounds) == 1
    assert explorer.controls["method"].value == "FedGAMMA"
    assert [value for _, value in explorer.controls["round"].options] == [0]
    c.collect()
    assert c.wait(60) and "finished, 3 rounds" in c.said.value and len(rounds) == 3
    assert [value for _, value in explorer.controls["round"].options] == [0, 1, 2]
    assert [label for label, _ in explorer.controls["round"].options] == ["1", "2", "3"]
    monkeypatch.undo()
    setting = shelves.setting_of("smoke", alpha=0.5, rounds=3)
    run = experiment.run_of(setting, fn.method("FedGAMMA"), 0, shelves.probe_of(setting))
    whole = fn.run(setting, "FedGAMMA", device="cpu", progress=False)
    assert run.weights_sha256 == whole.weights_sha256


def test_one_collects_at_a_time(explorer):
    c = collect(explorer, "FedLESAM", rounds=1)
    thread = c._thread
    c.collect()
    assert c._thread is thread and c.wait(60)


@pytest.mark.parametrize("method, said", [("FedSAMM", "no method"), ("FedSAM", "clients")])
def test_errors_of_a_collection_are_shown(explorer, monkeypatch, method, said):
    """A name that no method has; a partition that fails in the thread."""
    monkeypatch.setitem(shelves.SCALES, "smoke", TINY | {"clients": 140})
    c = collect(explorer, method)
    assert c.wait(60) and said in c.said.value and "role='alert'" in c.said.value and not c.start.disabled


def test_the_picture_is_drawn_from_these_numbers(explorer, mine):
    """The line stands at r, all to its left is shaded, and the curves are the cut's own vectors and variances."""
    explorer.controls["layer"].value = "fc2.bias"
    explorer.controls["ratio"].value = 0.4
    scene, look = explorer.scene, Look(mine, 0, "fc2.bias")
    assert list(scene.line.get_xdata()) == [0.4, 0.4]
    assert scene.gone.get_x() + scene.gone.get_width() == pytest.approx(0.4)
    for curves, client in zip(scene.curves, (0, 2), strict=True):
        for line, ratio in zip(curves, (0.0, 0.4), strict=True):
            assert line.get_ydata().tolist() == look.at(ratio, 0, 2).vectors[client].tolist()
    assert list(scene.after.get_ydata()) == look.at(0.4, 0, 2).bands


def test_without_a_kernel_every_state_has_its_picture(explorer):
    def put(values):
        with explorer.together():
            explorer.choose(values["run"])
            for name in ("layer", "one", "other", "ratio"):
                explorer.controls[name].value = values[name]
        return explorer.picture.value, explorer.words.value

    check(explorer, put)
    runs = explorer.moves()[0]
    assert [label for label, _ in runs.options] == ["α 0.5, FedSAM", "α 0.5, FedFFT", "α 5, FedSAM", "α 5, FedFFT"]
