"""Bars, a few lines, or a function that is told; and what is left when long work is interrupted: all that was done."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_grid import small_results

from fednb.base import progress
from fednb.base.files import load_tensors
from fednb.base.progress import bar_of, duration, reporting_to
from fednb.data import files, pictures
from fednb.data.dataset import DataNotFound
from fednb.engines.setting import Setting
from fednb.metrics import cache as once
from fednb.metrics import cka, embed, features, hessian, landscape
from fednb.runs import experiment
from fednb.runs.grid import Grid
from fednb.study import jobs
from fednb.study.measurements import alignment, echo, sensitivity, separate

GRID = dict(
    setting=dict(data="digits", samples=120, clients=3, participation=1.0, rounds=2, epochs=1, batch=50,
                 partition="iid"), methods=["FedAvg", "FedSAM"], seeds=[0],
)  # fmt: skip


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.delenv("FEDNB_TERMINAL", raising=False)
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes only when it is told to."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    return now


def work(clock, steps, seconds, what="work"):
    with bar_of(steps, what, unit="step") as bar:
        for _ in range(steps):
            clock.seconds += seconds
            bar.update()


# What is shown, and where


@pytest.mark.parametrize("steps, seconds, most", [(1000, 10.0, 12), (3, 4000.0, 4), (40, 0.1, 0), (10_000, 0.01, 12)])
def test_in_a_pipe_there_are_few_lines_and_none_for_short_work(steps, seconds, most, clock, capsys):
    work(clock, steps, seconds)
    said = capsys.readouterr()
    assert len(said.err.splitlines()) <= most and "\r" not in said.err and said.out == ""
    if most:
        assert said.err.splitlines()[-1] == f"work: {steps} of {steps} steps in {duration(steps * seconds)}"


def test_a_line_comes_for_every_tenth_with_the_time_that_is_left(clock, capsys):
    """100 steps of 6 s: a tenth a minute, so after the third 60 s · 7 are left."""
    work(clock, 100, 6.0)
    assert "work: 30 of 100 steps in 3 min, about 7 min left" in capsys.readouterr().err.splitlines()


def test_the_first_line_does_not_wait_for_a_tenth(clock, capsys):
    with bar_of(1000, "work", unit="step") as bar:
        clock.seconds += progress.SOON * progress.FIRST
        bar.update()
        assert "1 of 1000 steps in 30 s, about 8 h 20 min left" in capsys.readouterr().err


def test_unknown_lengths_get_a_line_for_every_doubling(clock, capsys):
    with bar_of(None, "downloading x", unit="B") as bar:
        for _ in range(4000):
            clock.seconds += 1
            bar.update(10**6)
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 12 and lines[0].startswith("downloading x: 10 MB in 10 s")


def test_interrupted_work_says_how_far_it_came(clock, capsys):
    with pytest.raises(KeyboardInterrupt), bar_of(4, "work", unit="step") as bar:
        clock.seconds += 60
        bar.update()
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines()[-1] == "work: stopped at 1 of 4 steps in 60 s"


def test_what_was_there_before_does_not_count_for_the_estimate(clock):
    """50 of 100 come from the store at once, then 10 take 10 s: 40 s are left, not 6."""
    with bar_of(100, "work", show=False) as bar:
        assert bar.left is None
        bar.update(50, before=True)
        assert bar.left is None
        clock.seconds += 10
        bar.update(10)
        assert bar.left == pytest.approx(40.0)


class Tty(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_inner_work_is_written_behind_the_outer_bar(monkeypatch, clock):
    """One line, drawn again and again: no line breaks and no moving up, which notebooks do not understand."""
    monkeypatch.setattr(sys, "stderr", screen := Tty())
    with bar_of(4, "outer", unit="run") as outer:
        clock.seconds += 10
        outer.update()
        with bar_of(8, "inner", unit="step") as inner:
            clock.seconds += 1
            inner.update(3)
            seen = screen.getvalue().split("\r")[-1]
        clock.seconds += 1
        outer.update()
    assert "outer:  25%" in seen and "inner 3 of 8 steps" in seen
    assert "inner" not in screen.getvalue().split("\r")[-3], "the inner work is over"
    assert "\n" not in screen.getvalue() and "\x1b[A" not in screen.getvalue()


def test_a_notebook_executed_from_a_terminal_shows_its_bar_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDNB_TERMINAL", str(tmp_path / "tty"))
    with bar_of(4, "rounds") as bar:
        bar.update(4)
    assert "rounds: 100%" in (tmp_path / "tty").read_text() and capsys.readouterr().err == ""
    monkeypatch.setenv("FEDNB_TERMINAL", str(tmp_path / "no" / "such" / "place"))
    with bar_of(4, "rounds"):
        pass


@pytest.mark.parametrize("metadata, face", [({"cellId": "a"}, progress.OnTerminal), ({}, progress.InLines)])
def test_a_front_end_names_its_cell_and_papermill_does_not(metadata, face, monkeypatch):
    kernel = SimpleNamespace(get_parent=lambda channel: {"metadata": metadata})
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    with bar_of(1, "work") as bar:
        assert type(bar.face) is face


def test_a_function_is_told_of_the_outer_work_alone():
    heard = []
    with reporting_to(lambda *how: heard.append(how)):
        with bar_of(2, "outer") as outer, bar_of(5, "inner") as inner:
            inner.update(5)
            outer.update(2)
        with bar_of(1, "next"):
            pass
    assert [(done, total) for done, total, _ in heard] == [(0, 2), (2, 2), (0, 1)]
    with bar_of(1, "afterwards") as bar:
        assert not isinstance(bar.face, progress.ToFunction)


def test_silence_is_also_inside(capsys, clock):
    with bar_of(1, "outer", show=False):
        work(clock, 100, 60.0)
    assert capsys.readouterr().err == ""


# Runs and grids


def test_an_interrupted_grid_keeps_every_finished_round_and_goes_on(monkeypatch):
    """Two runs of two rounds, stopped in the fourth round: three are kept, and going on makes one."""
    made, one_round = [], experiment._one_round

    def counted(*args):
        if len(made) == 3 and not made.count("stop"):
            made.append("stop")
            raise KeyboardInterrupt
        made.append("round")
        return one_round(*args)

    monkeypatch.setattr(experiment, "_one_round", counted)
    grid = Grid.of("small", "smoke", GRID)
    with pytest.raises(KeyboardInterrupt):
        grid.run(device="cpu", engine="loop")
    assert grid.status()["rounds"].tolist() == ["2/2", "1/2"]
    done = grid.run(device="cpu", engine="loop")
    assert made == ["round"] * 3 + ["stop", "round"]
    assert [run.status for run in done.runs] == ["finished", "finished"] and not progress._here.bars


def test_a_grid_tells_its_rounds_one_by_one():
    heard = []
    with reporting_to(lambda *how: heard.append(how)):
        Grid.of("small", "smoke", GRID).run(device="cpu", engine="loop")
    counts = [done for done, _, _ in heard]
    assert counts == sorted(counts) and set(counts) == {0, 1, 2, 3, 4} and {total for _, total, _ in heard} == {4}
    assert heard[-1][2] == 0.0


def test_a_resumed_run_counts_old_rounds_as_old(monkeypatch):
    """Two rounds are in the store when it goes on, so that the bar ends with four of which two are new."""
    setting, bars = Setting(**GRID["setting"] | {"rounds": 4}), []

    def stop(row):
        if row["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(setting, "FedAvg", engine="loop", device="cpu", progress=stop)

    @contextmanager
    def seen(*args, **how):
        with bar_of(*args, **how) as bar:
            bars.append(bar)
            yield bar

    monkeypatch.setattr(experiment, "bar_of", seen)
    experiment.run(setting, "FedAvg", engine="loop", device="cpu")
    assert [(bar.n, bar.before) for bar in bars] == [(4, 2)]


def _wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_ctrl_c_ends_the_command_with_130_and_keeps_its_rounds(tmp_path):
    """The signal goes to all processes of the group, as from a terminal; no worker is left, no traceback is shown."""
    argv = [sys.executable, "-m", "fednb", "run", "fedavg", "--samples", "120", "--clients", "3", "--participation",
            "1", "--epochs", "1", "--partition", "iid", "--rounds", "30000", "--evaluate-every", "10000",
            "--engine", "pool", "--workers", "1", "--device", "cpu"]  # fmt: skip
    env = {**os.environ, "FEDNB_STORE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell are deaf to it
    process = subprocess.Popen(
        argv, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heard
    )
    _wait_for(lambda: list(tmp_path.glob("runs/*/state.safetensors")))
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "Traceback" not in said
    assert said.splitlines()[-1] == "fednb: interrupted; the same command goes on after the last finished round"
    _wait_for(lambda: not _alive(process.pid))
    (about,) = tmp_path.glob("runs/*/run.json")
    assert json.loads(about.read_text())["status"] == "running"
    key = about.parent.name
    assert len(experiment.Entry.of(key).history()) >= 1


def _alive(group):
    """The processes of a group that are not yet dead."""
    lines = subprocess.run(["ps", "-eo", "pgid=,stat=,pid="], capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if line.split()[0] == str(group) and not line.split()[1].startswith("Z")]


def test_interrupted_jobs_save_their_rounds_and_leave_no_process():
    """Four runs, two at a time. Interrupted when the first is over, the other ends too, and nothing is lost."""
    todo = jobs.jobs_of("fedfft", "table8", "smoke")
    making = jobs.run_all(todo, 2, "cpu")
    job, status = next(making)
    with pytest.raises(KeyboardInterrupt):
        making.throw(KeyboardInterrupt)
    assert status == "finished" and not _processes_of_jobs()
    runs = jobs.papers("fedfft").grid("table8").runs()
    assert {r.status for r in runs} <= {"finished", "running", "absent"} and runs[job.cell].status == "finished"
    for r in runs:
        state = r.entry.folder / "state.safetensors"
        assert not state.exists() or int(load_tensors(state)[1]["round"]) >= 1


def _processes_of_jobs():
    """The grid processes that this one has started and that are not yet dead."""
    lines = subprocess.run(["ps", "-eo", "ppid=,stat=,args="], capture_output=True, text=True).stdout.splitlines()
    ours = [line.split(maxsplit=2) for line in lines]
    return [
        args for ppid, stat, args in ours if ppid == str(os.getpid()) and "fednb.study.jobs" in args and stat[0] != "Z"
    ]


# Measurements


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("runs")))
        yield small_results(("FedAvg", "FedSAM"), [*("gradient", "perturbation", "move", "model"), "global"])


@pytest.fixture
def fresh(results):
    """Runs of which nothing was measured yet."""
    for run in results.runs:
        for file in (run.entry.folder / "measured").glob("*"):
            file.unlink()
    return results


LONG = {  # the call, where its work is done, how often
    "Hessian": (lambda r: hessian.table(r, hessian.of_runs(r, 1, 20, tolerance=0.1, device="cpu")), hessian, "top", 2),
    "surface": (lambda r: landscape.surfaces(r, points=3, samples=20, device="cpu"), landscape, "plane", 2),
    "line": (lambda r: landscape.lines(r, points=3, samples=20, device="cpu"), landscape, "line", 2),
    "CKA": (lambda r: cka.between_clients(r, samples=20, device="cpu"), cka, "shapes_of", 4),
    "layers": (lambda r: cka.between_layers(r, samples=20, device="cpu"), cka, "shapes_of", 4),
    "t-SNE": (lambda r: separate.separation(r, samples=30, device="cpu"), embed, "tsne", 2),
    "features": (lambda r: embed.spreads(features.clouds(r, samples=20, device="cpu")), features,
                 "_by_client_and_class", 4),
    "sensitivity": (lambda r: sensitivity.of_layers(r, radii=(0.1,), samples=10, device="cpu"), sensitivity,
                    "_by_client", 4),
    "alignment": (lambda r: alignment.alignment(r, device="cpu"), alignment, "_by_round", 2),
    "echo": (lambda r: echo.echo(r, device="cpu"), echo, "_overshoots", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_an_interrupted_measurement_keeps_what_is_finished_and_goes_on(name, fresh, monkeypatch):
    """Stopped in its last piece of work, it has that one left; asked again it has none; the table is the same."""
    measure, module, function, times = LONG[name]
    calls, real = [], getattr(module, function)

    def counted(*args, **how):
        calls.append(function)
        if len(calls) == times:
            raise KeyboardInterrupt
        return real(*args, **how)

    monkeypatch.setattr(module, function, counted)
    with pytest.raises(KeyboardInterrupt):
        measure(fresh)
    table = measure(fresh)
    assert len(calls) == times + 1
    again = measure(fresh)
    assert len(calls) == times + 1 and table.equals(again) and not progress._here.bars
    for run in fresh.runs:
        for file in (run.entry.folder / "measured").glob("*"):
            file.unlink()
    assert measure(fresh).equals(table)


CHANGED = {  # a call, what changes its numbers, and where its work is done
    "Hessian": (hessian.of_runs, dict(count=1, samples=20, method="lanczos", tolerance=0.1, most=20, seed=0),
                dict(count=2, samples=21, method="power", tolerance=0.2, most=21, seed=1), hessian, "_sharpest"),
    "surface": (landscape.surfaces, dict(radius=1.0, points=3, samples=20, seed=0),
                dict(radius=0.5, points=5, samples=21, seed=1), landscape, "_around"),
    "CKA": (cka.between_clients, dict(layers="@penultimate", samples=20, seed=0),
            dict(layers="fc1", samples=21, seed=1), cka, "shapes_of"),
    "features": (features.clouds, dict(layer="@penultimate", samples=20, seed=0),
                 dict(layer="fc1", samples=21, seed=1), features, "_by_client_and_class"),
    "t-SNE": (separate.class_points, dict(layer="@penultimate", samples=20), dict(layer="fc1", samples=21),
              separate, "_of"),
    "sensitivity": (sensitivity.of_layers, dict(radii=(0.1,), samples=10), dict(radii=(0.2,), samples=11),
                    sensitivity, "_by_client"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_another_question_is_another_measurement(name, fresh, monkeypatch):
    """Every parameter by itself; the work is not done here, so that only the questions are told apart."""
    measure, base, changes, module, function = CHANGED[name]
    calls = []

    def stop(*args, **how):
        calls.append(function)
        raise KeyboardInterrupt

    measure(fresh, **base, device="cpu")
    monkeypatch.setattr(module, function, stop)
    measure(fresh, **base, device="cpu")
    assert not calls
    for parameter, value in changes.items():
        with pytest.raises(KeyboardInterrupt):
            measure(fresh, **base | {parameter: value}, device="cpu")
            pytest.fail(f"{parameter} does not count")


def test_a_landscape_along_other_directions_is_another(fresh):
    found = {key: hessian.of_runs(fresh, 2, 20, tolerance=0.1, seed=key, device="cpu") for key in (0, 1)}
    how = dict(points=3, samples=20, device="cpu")
    first, second = (landscape.surfaces(fresh, found[key], **how)["value"] for key in (0, 1))
    assert not first.equals(second) and first.equals(landscape.surfaces(fresh, found[0], **how)["value"])
    assert not first.equals(landscape.surfaces(fresh, None, **how)["value"])


def test_what_is_asked_decides_what_is_kept(fresh, monkeypatch):
    """Other samples, another seed, another version, other weights: each is measured; a damaged file is, too."""
    calls = []
    (run, _) = fresh.runs

    def make():
        calls.append(1)
        return {"value": torch.tensor(3.0)}

    def ask(version=1, **asked):
        return once.Question(run, "made", version, {"samples": 20, "device": "cpu", **asked}).answer(make)

    assert ask() == ask() == {"value": torch.tensor(3.0)} and len(calls) == 1
    for changed in (dict(samples=21), dict(seed=1), dict(version=2), dict(d=torch.ones(2)), dict(d=torch.zeros(2))):
        ask(**changed), ask(**changed)
    assert len(calls) == 6
    monkeypatch.setattr(experiment.Run, "weights_sha256", "other")
    ask()
    assert len(calls) == 7
    for file in (run.entry.folder / "measured").glob("made-*"):
        file.write_bytes(file.read_bytes()[:20])
    assert ask() == {"value": torch.tensor(3.0)} and len(calls) == 8
    assert ask() and len(calls) == 8 and not list(run.entry.folder.glob("measured/.new-*"))


def test_of_a_run_that_is_not_finished_nothing_is_kept(fresh):
    run = SimpleNamespace(status="running")
    answers = iter([1.0, 2.0])
    asked = once.Question(run, "made", 1, {})
    assert [float(asked.answer(lambda: {"x": torch.tensor(next(answers))})["x"]) for _ in range(2)] == [1.0, 2.0]


def test_a_measurement_tells_its_own_function_how_far_it_is(fresh):
    heard = []
    landscape.lines(fresh, points=3, samples=20, device="cpu", progress=lambda *how: heard.append(how))
    counts = [done for done, _, _ in heard]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 6 and set(counts) == set(range(7))
    assert {total for _, total, _ in heard} == {6} and heard[-1][2] == 0.0


def test_the_hessian_counts_the_products_that_it_made(fresh):
    """At most 200 for each run; after the first run it expects as many of the second, and it ends where it ends."""
    heard = []
    found = hessian.of_runs(fresh, 1, 20, tolerance=0.1, device="cpu", progress=lambda *how: heard.append(how))
    made = sum(e.products for e in found.values())
    counts = [done for done, _, _ in heard]
    assert counts == sorted(counts) and heard[0][:2] == (0, 400) and heard[-1] == (made, made, 0.0)
    hessian.of_runs(fresh, 1, 20, tolerance=0.1, device="cpu", progress=lambda *how: heard.append(how))
    assert heard[-1][:2] == (0, 0), "nothing was left to do"


# t-SNE


def test_tsne_is_the_same_with_a_bar_and_leaves_the_output_alone(capsys):
    from sklearn.manifold import TSNE

    x = torch.from_numpy(np.random.default_rng(0).standard_normal((30, 5)))
    heard, out = [], sys.stdout
    seen = embed.tsne(x, progress=lambda *how: heard.append(how[:2]))
    assert np.array_equal(seen, embed.tsne(x, progress=False))
    counts = [done for done, _ in heard]
    assert counts == sorted(counts) and counts[-1] == embed.ITERATIONS and len(set(counts)) > 5
    assert sys.stdout is out and capsys.readouterr().out == ""
    points = embed.principal(x - x.mean(0), axes=30)
    start = (embed._upright(points[:, :2]) / points[:, 0].std() * 1e-4).astype(np.float32)
    plain = TSNE(method="exact", random_state=0, perplexity=29 / 3, init=start).fit_transform(points)
    np.testing.assert_array_equal(seen, plain.astype(np.float64))


def test_what_others_print_goes_through_and_an_interrupt_gives_the_output_back(capsys):
    out = sys.stdout
    with pytest.raises(KeyboardInterrupt), bar_of(embed.ITERATIONS, "t-SNE", show=False) as bar, embed._heard_by(bar):
        print("[t-SNE] Iteration 250: error = 1.0\nhello", end=" ")
        print("there")
        print("no end", end="")
        assert bar.n == 250
        raise KeyboardInterrupt
    assert sys.stdout is out and capsys.readouterr().out == "hello there\nno end"


# Downloads


class Answer(io.BytesIO):
    """A server's answer that is interrupted after so many reads."""

    headers = {"Content-Length": str(3 << 20)}
    stops = 0

    def read(self, size=-1):
        Answer.stops -= 1
        if Answer.stops == 0:
            raise KeyboardInterrupt
        return super().read(size)


def test_an_interrupted_download_leaves_nothing_and_the_next_is_whole(folder, monkeypatch):
    data = bytes(3 << 20)
    total, heard = hashlib.md5(data).hexdigest(), []
    monkeypatch.delenv("FEDNB_OFFLINE")
    monkeypatch.setattr(files, "urlopen", lambda url, timeout: Answer(data))

    def fetch():
        files.download("made", folder, ".", ["made.npz"], lambda part: files.fetched("u", total, part / "made.npz"))

    Answer.stops = 2
    with pytest.raises(KeyboardInterrupt):
        fetch()
    assert list(folder.iterdir()) == []
    with reporting_to(lambda *how: heard.append(how[:2])):
        fetch()
    assert [p.name for p in folder.iterdir()] == ["made.npz"] and (folder / "made.npz").read_bytes() == data
    assert heard == [(n << 20, 3 << 20) for n in range(4)]


def test_torchvision_downloads_with_our_bar():
    utils, heard = SimpleNamespace(tqdm="theirs"), []
    with (
        reporting_to(lambda *how: heard.append(how[:2])),
        pytest.raises(DataNotFound),
        pictures.bars_of(utils, "cifar10"),
    ):
        with utils.tqdm(total=10, unit="B", unit_scale=True) as bar:
            bar.update(10)
        raise DataNotFound
    assert heard == [(0, 10), (10, 10)] and utils.tqdm == "theirs"
