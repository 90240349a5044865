"""Two runs' loss surfaces: the numbers of the library, computed once, kept, stopped and gone on with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from moving import check, through_controls
from small_grid import small_results

import fednb as fn
from fednb.metrics import landscape as measured
from fednb.show.explore import landscape
from fednb.show.explore.landscape import Landscapes, opening
from fednb.show.explore.planes import Plane, finished

LOOK = {"points": 5, "samples": 40}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(what=["move"])


@pytest.fixture
def runs(results):
    """FedAvg and FedSAM, in a store that has no planes yet."""
    for run in results.runs:
        for file in (run.entry.folder / "landscapes").glob("*"):
            file.unlink()
    by_key = {each.key: each for each in finished()}
    return [by_key[run.key] for run in results.runs]


@pytest.fixture
def explorer(runs):
    made = Landscapes(device="cpu", **LOOK)
    yield made
    made.close()


@pytest.fixture
def ready(explorer):
    """With its first picture."""
    explorer.refresh()
    explorer.wait()
    return explorer


def test_a_plane_is_what_the_library_measures(results, runs):
    """L(w + a d + b e), with the same two directions from one seed for both runs."""
    table = measured.surfaces(results, radius=0.5, points=5, samples=40, seed=0, device="cpu", progress=False)
    for run in runs:
        mine = Plane(0, 0.5, **LOOK).losses(run, device="cpu")
        theirs = table[table["key"] == run.key].pivot(index="a", columns="b", values="value")
        assert mine.numpy() == pytest.approx(theirs.to_numpy(), rel=1e-12)


def test_the_middle_is_the_model_itself_whatever_the_directions(runs):
    middles = {float(Plane(seed, radius, **LOOK).losses(runs[0], device="cpu")[2, 2])
               for seed, radius in ((0, 0.5), (1, 0.5), (0, 1.0))}  # fmt: skip
    assert len(middles) == 1
    assert not torch.equal(Plane(0, 1.0, **LOOK).losses(runs[0]), Plane(1, 1.0, **LOOK).losses(runs[0]))


def test_computed_once_then_read(runs, monkeypatch):
    plane = Plane(**LOOK)
    first = plane.losses(runs[0], device="cpu")
    monkeypatch.setattr("fednb.show.explore.planes.sample_of", None)  # nothing is evaluated any more
    assert torch.equal(plane.losses(runs[0]), first) and plane.known(runs[0])
    assert not Plane(seed=1, **LOOK).known(runs[0]) and not plane.known(runs[1])


def test_stopped_it_keeps_its_rows_and_goes_on_with_the_same_bits(runs):
    plane, ticks = Plane(**LOOK), []

    def tick():
        ticks.append(1)
        if len(ticks) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plane.losses(runs[0], tick, device="cpu")
    losses, rows = plane.load(runs[0])
    assert rows == 2 and losses[:2].isfinite().all() and losses[2:].isnan().all()
    more = []
    whole = plane.losses(runs[0], lambda: more.append(1), device="cpu")
    assert len(more) == 3 and torch.equal(whole[:2], losses[:2])
    plane.file(runs[0]).unlink()
    assert torch.equal(plane.losses(runs[0], device="cpu"), whole)


def test_a_picture_comes_when_its_plane_is_there(explorer):
    explorer.refresh()
    assert explorer.picture.value == b"" and not explorer.buttons["stop"].disabled
    explorer.wait()
    assert explorer.picture.value[:4] == b"\x89PNG" and explorer.buttons["stop"].disabled
    losses = explorer.plane(explorer.values).losses(explorer.pair(explorer.values)[0]).numpy()
    assert f"loss {losses[2, 2]:.4g} at the model" in explorer.words.value
    assert f"higher by {losses.mean() - losses[2, 2]:.4g}" in explorer.words.value


def test_both_have_one_scale(ready):
    """One colour norm for both panels, from the lowest loss of both to the highest; the same axes."""
    figure, _ = ready.draw(**ready.values)
    left, right = (ax for ax in figure.axes if ax.get_xlabel() == "first direction")
    plane = ready.plane(ready.values)
    both = np.stack([plane.losses(each).numpy() for each in ready.pair(ready.values)])
    for ax in (left, right):
        norm = ax.collections[0].norm
        assert (norm.vmin, norm.vmax) == (both.min(), both.max())
    assert left.get_xlim() == right.get_xlim() and left.get_ylim() == right.get_ylim()


@pytest.mark.parametrize("before, name, value", [
    ("contours", "kind", "surface"), ("contours", "kind", "profile"), ("contours", "log", True),
    ("profile", "log", True), ("surface", "angle", 30), ("surface", "height", 60),
])  # fmt: skip
def test_a_view_needs_no_new_plane(ready, monkeypatch, before, name, value):
    monkeypatch.setattr("fednb.show.explore.planes.sample_of", None)
    ready.controls["kind"].value = before
    seen = ready.picture.value
    ready.controls[name].value = value
    assert ready.picture.value != seen and ready._job is None


@pytest.mark.parametrize("name, value", [("radius", 0.5), ("seed", 3)])
def test_another_plane_is_computed_and_drawn(ready, name, value):
    seen = ready.picture.value
    ready.controls[name].value = value
    ready.wait()
    assert ready.picture.value != seen
    assert ready.plane(ready.values) == Plane(**LOOK | {name: value}) and not ready.missing(ready.values)


def test_swapped_runs_swap_places(ready):
    first, second = ready.values["first"], ready.values["second"]
    seen = ready.picture.value
    with ready.together():
        ready.controls["first"].value, ready.controls["second"].value = second, first
    assert ready.picture.value != seen
    names = [ready.found[key].short for key in (second, first)]
    assert ready.words.value.index(names[0]) < ready.words.value.index(names[1])


def test_log_scale_is_of_base_ten():
    """Losses 1 and 100 are 0 and 2; a loss of zero has a floor and no infinity."""
    losses = np.array([[1.0, 100.0, 1.0]] * 2 + [[1.0, 1.0, 0.0]])
    table = landscape.table_of({"run": losses}, Plane(points=3), log=True)
    assert table["value"].tolist() == [0, 2, 0, 0, 2, 0, 0, 0, -12]
    assert landscape.table_of({"run": losses}, Plane(points=3), log=False)["value"].tolist() == losses.ravel().tolist()


def test_after_a_stop_another_wish_is_computed(explorer):
    explorer.stop()
    explorer.refresh()
    assert explorer._job is None and "stopped" in explorer.state.value
    explorer.controls["radius"].value = 0.5
    explorer.wait()
    assert not explorer.missing(explorer.values) and explorer.picture.value[:4] == b"\x89PNG"


def test_a_run_beside_itself_is_refused(ready):
    seen = ready.picture.value
    ready.controls["second"].value = ready.values["first"]
    assert "choose two different ones" in ready.words.value and ready.picture.value == seen


def test_stop_and_go_on(explorer, monkeypatch):
    tell = landscape.Job.tell

    def stopping(job, done, total, left):
        if done == 2:
            explorer.stop()
        tell(job, done, total, left)

    monkeypatch.setattr(landscape.Job, "tell", stopping)
    explorer.refresh()
    explorer.wait()
    assert "stopped" in explorer.state.value and not explorer.buttons["go_on"].disabled
    assert explorer.picture.value == b""
    plane = explorer.plane(explorer.values)
    assert sum(plane.load(each)[1] for each in explorer.pair(explorer.values)) == 2
    monkeypatch.setattr(landscape.Job, "tell", tell)
    explorer.buttons["go_on"].click()
    explorer.wait()
    assert explorer.picture.value[:4] == b"\x89PNG" and explorer.bar.max == 8  # the rows that were missing


def test_other_values_end_what_is_at_work(explorer, monkeypatch):
    """While one plane is computed another is asked for: the first keeps its rows, the second is drawn."""
    tell, asked = landscape.Job.tell, []

    def asking(job, done, total, left):
        if done == 1 and not asked:
            asked.append(1)
            explorer.controls["radius"].value = 0.5
        tell(job, done, total, left)

    monkeypatch.setattr(landscape.Job, "tell", asking)
    explorer.refresh()
    explorer.wait()
    first = explorer.pair(explorer.values)[0]
    assert Plane(radius=1.0, **LOOK).load(first)[1] == 1 and not explorer.missing(explorer.values)
    assert "within 0.5" in explorer.words.value and explorer.picture.value[:4] == b"\x89PNG"


def test_an_error_in_the_thread_is_shown(explorer, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no <memory>")

    monkeypatch.setattr("fednb.show.explore.planes.sample_of", fails)
    explorer.refresh()
    explorer.wait()
    assert "role='alert'" in explorer.state.value and "RuntimeError: no &lt;memory&gt;" in explorer.state.value


def test_closed_it_leaves_no_thread(explorer):
    explorer.refresh()
    job = explorer._job
    explorer.close()
    assert not job.is_alive() and explorer._job is None


def test_what_is_shown_first(runs):
    """FedAvg and another method, though FedSAM is the newer; of several, one in the same setting, FedSAM first."""
    assert [each.method for each in runs] == ["FedAvg", "FedSAM"]
    assert opening(runs[::-1]) == opening(runs) == (runs[0].key, runs[1].key)
    assert opening(runs[1:]) == (runs[1].key, None) and opening([]) == (None, None)
    avg, sam = runs
    newer = [replace(sam, entry=replace(sam.entry, key=f"{i}"), **other) for i, other in enumerate(
        ({"method": "FedAvg"}, {"setting": sam.setting.but(rounds=9)}, {"method": "SCAFFOLD"}))]  # fmt: skip
    assert opening([avg, *newer[1:], sam])[1] == sam.key  # in the same setting, and FedSAM
    assert opening([avg, *newer[1:]])[1] == "2" and opening([avg, *newer[:2]])[1] == "1"
    assert opening([avg, newer[0]])[1] == "0"


def test_an_empty_store_gets_two_runs_and_headless_a_grid(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setenv("FEDNB_WIDGETS", "still")
    small = {"data": "digits", "samples": 60, "clients": 2, "participation": 1.0, "epochs": 1, "batch": 30}
    monkeypatch.setitem(landscape.RUNS, "smoke", small)
    monkeypatch.setitem(landscape.ROUNDS, "smoke", 1)
    monkeypatch.setitem(landscape.LOOKED, "smoke", LOOK)
    made = Landscapes.at("smoke", device="cpu")
    assert [each.method for each in made.pair(made.values)] == ["FedAvg", "FedSAM"] and not made.missing(made.values)
    assert set(made._repr_mimebundle_()) == {"text/plain", "image/png"}
    assert {each.get("kind") for each in made.stills()} == set(landscape.KINDS)
    assert len(Landscapes.at("smoke", device="cpu").found) == 2  # a second time they come from the store


def test_a_scale_begins_with_runs_of_its_own(tmp_path, monkeypatch):
    """Hardly trained runs of the same data and model are in the store, newer ones too: they are offered, not opened."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    small = {"data": "digits", "samples": 60, "clients": 2, "participation": 1.0, "epochs": 1, "batch": 30}
    monkeypatch.setitem(landscape.RUNS, "smoke", small)
    monkeypatch.setitem(landscape.ROUNDS, "smoke", 2)
    monkeypatch.setitem(landscape.LOOKED, "smoke", {"points": 3, "samples": 20})
    for lr in (0.1, 0.2):
        for name in landscape.METHODS:
            fn.run(fn.Setting(**small, rounds=1, lr=lr), name, device="cpu")
        made = Landscapes.at("smoke", device="cpu")
        pair = made.pair(made.values)
        assert [(each.method, each.setting.rounds) for each in pair] == [("FedAvg", 2), ("FedSAM", 2)]
    assert len(made.found) == 6


def test_unfinished_runs_are_not_offered(runs, results):
    def interrupt(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fn.run(results.grid.cells[0].setting.but(lr=0.03), "FedAvg", engine="loop", device="cpu", progress=interrupt)
    assert {each.key for each in finished()} == {run.key for run in runs}


def test_without_a_kernel_every_state_has_its_picture(ready):
    def put(values):
        set_all(values)
        ready.wait()  # a plane that is not known is computed in a thread
        return ready.picture.value, ready.words.value

    set_all = through_controls(ready)
    check(ready, put, some=2)
