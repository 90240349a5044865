"""What is timed is the same mathematics everywhere, and what is printed has the promised form. No times are judged."""

import json
import runpy
import sys

import pytest
import torch

from fednb import filters as catalogue
from fednb.algorithms.catalogue import method
from fednb.cli.commands import main
from fednb.engines import BadEngine
from fednb.engines.loop import Loop
from fednb.engines.problem import participants
from fednb.engines.setting import BadSetting
from fednb.runs.bench import command, engines, filters, floor, kept, peers, precision, scale
from fednb.runs.bench.engines import Bare, EngineRun, Timed, beside_first, compared, mode_taken, raced, radius, runner
from fednb.runs.bench.kept import in_table
from fednb.runs.bench.report import machine, table
from fednb.runs.bench.workload import BadWorkload, Workload, made, shape, usual

TINY = ["--data", "1x4x4", "--clients", "3", "--participants", "2", "--samples", "7", "--batch", "4", "--epochs", "1",
        "--test", "5", "--device", "cpu"]  # fmt: skip


def tiny(**changes):
    """Short last batches (7 = 4 + 3), and one of three clients stays away."""
    sizes = dict(data="1x4x4", model="cnn-small", clients=3, participants=2, samples=7, batch=4, epochs=2, test=5)
    return Workload(**(sizes | changes))


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("precision, near", [("fp32", 1e-5), ("fp64", 1e-10)])
@pytest.mark.parametrize("name", ["fedavg", "fedsam"])
def test_the_bare_loop_gives_the_weights_of_the_loop(name, precision, near):
    """Clip, decay behind it, short batches, mean by size; FedSAM's two gradients: after two rounds as after one."""
    work, chosen = tiny(precision=precision), method(name)
    bare, loop = Bare(work, chosen), EngineRun(Loop(work.problem), work, chosen)
    start = loop.weights().clone()
    for _ in range(2):
        assert bare.round() == pytest.approx(loop.round(), abs=near)
        assert (bare.weights() - loop.weights()).abs().max() < near
        assert (loop.weights() - start).abs().max() > 1e-3
    assert bare.evaluate() == loop.evaluate()


def test_the_bare_loop_clips_and_averages_batchnorm():
    """A clip that bites (0.01) and statistics that travel: resnet20-bn on one batch a client."""
    work = tiny(model="resnet20-bn", samples=4, epochs=1, precision="fp64")
    work.__dict__["setting"] = work.setting.but(clip_norm=0.01)
    bare, loop = Bare(work, method("fedavg")), EngineRun(Loop(work.problem), work, method("fedavg"))
    bare.round(), loop.round()
    assert (bare.weights() - loop.weights()).abs().max() < 1e-10
    buffers = {n: x for n, x in bare.loop.state.items() if "running" in n}
    assert torch.allclose(work.problem.objective.buffers.flat(buffers), loop.s.values(["b"])["b"], atol=1e-10)


def test_the_bare_loop_knows_two_methods():
    assert radius(method("fedavg")) == 0.0 and radius(method("fedsam", rho=0.05)) == 0.05
    assert radius(method("fedfft")) is None and radius(method("scaffold")) is None


def test_every_engine_computes_the_same():
    rows = raced(tiny(precision="fp64"), method("fedavg"), ["bare", "bare:threads", "loop", "stacked"], rounds=2)
    assert [(row["engine"], row["mode"]) for row in rows] == [("bare", ""), ("bare", "threads"), ("loop", ""),
                                                             ("stacked", "eager")]  # fmt: skip
    assert (
        all(row["difference"] < 1e-10 for row in rows) and len({round(row["loss_first_round"], 8) for row in rows}) == 1
    )
    for row in rows:
        assert row["n"] == 2 and 0 < row["min"] <= row["seconds_per_round"] <= row["max"]
        assert min(row["first_round"], row["seconds_evaluation"], row["faster_than_loop"], row["faster_than_bare"]) > 0


def test_a_ratio_is_the_median_over_turns():
    """Loop 4, 6, 150 s beside 2, 2, 30 s: ratios 2, 3, 5; the slow minute of the machine cancels."""
    work = tiny()
    loop, other = (Timed(name, work, method("fedavg")) for name in ("loop", "stacked"))
    loop.seconds, other.seconds = [4.0, 6.0, 150.0], [2.0, 2.0, 30.0]
    loop.evaluations = other.evaluations = [1.0]
    rows = compared([loop, other])
    assert [row["faster_than_loop"] for row in rows] == [1.0, 3.0]
    assert [row["faster_than_bare"] for row in rows] == [None, None]
    assert (rows[1]["seconds_per_round"], rows[1]["min"], rows[1]["max"]) == (2.0, 2.0, 30.0)


def test_methods_beside_the_first_on_the_same_engine():
    """FedAvg 2 s and 1 s on two engines, FedSAM 5 s and 2 s: 2.5 and 2 times; on one that it lacks, nothing."""
    took = [("FedAvg", "loop", 2.0), ("FedAvg", "pool", 1.0), ("FedSAM", "loop", 5.0), ("FedSAM", "pool", 2.0),
            ("FedSAM", "bare", 3.0)]  # fmt: skip
    rows = beside_first([{"method": m, "engine": e, "mode": "", "seconds_per_round": s} for m, e, s in took])
    assert [row["times_first"] for row in rows] == [1.0, 1.0, 2.5, 2.0, None]


def test_engines_take_turns(monkeypatch):
    """Each once per turn, and another one begins the next."""
    order = []
    monkeypatch.setattr(Timed, "turn", lambda self: (order.append(self.name), self.seconds.append(1.0)))
    monkeypatch.setattr(Timed, "row", lambda self: {})
    raced(tiny(), method("fedavg"), ["bare", "loop", "stacked"], rounds=2)
    assert order == ["bare", "loop", "stacked", "loop", "stacked", "bare"]


def test_bench_engines_ends_with_one_line_of_json(capsys, tmp_path):
    asked = ["bench", "engines", *TINY, "--rounds", "1", "--methods", "fedavg,fedavg + highpass(0.05)"]
    assert main([*asked, "--workers", "1", "--json", "--out", str(tmp_path / "bench.json")]) == 0
    out = capsys.readouterr()
    seen = json.loads(out.out.splitlines()[-1])
    first, second = seen["rows"][:4], seen["rows"][4:]
    assert [row["engine"] for row in first] == ["bare", "loop", "pool", "stacked"]
    assert [row["engine"] for row in second] == ["loop", "pool", "stacked"]  # the bare loop has no filters
    assert "the bare loop knows FedAvg and FedSAM" in out.err and "speed / loop" in out.out
    assert all(row["difference"] < 1e-5 for row in seen["rows"])
    assert {"cpu", "cores", "torch", "fednb", "commit", "date"} <= seen["machine"].keys()
    assert seen["workload"]["samples"] == 7 and seen["command"].startswith("python -m fednb ")
    assert json.loads((tmp_path / "bench.json").read_text()) == seen


def test_every_filter_of_the_catalogue_is_timed(capsys):
    def public(kind):
        below = [each for sub in kind.__subclasses__() for each in public(sub)]
        return [sub for sub in kind.__subclasses__() if not sub.__name__.startswith("_")] + below

    known = {kind for kind in public(catalogue.Filter) if kind.__module__.startswith(f"{catalogue.__name__}.")}
    assert {type(each) for each in filters.FILTERS} == known
    assert main(["bench", "filters", "--model", "cnn-small,vit-nano", *TINY, "--rounds", "1", "--json"]) == 0
    rows = last_line(capsys)["rows"]
    assert [row["filter"] for row in rows] == 2 * [each.short for each in filters.FILTERS]
    assert {row["model"] for row in rows} == {"cnn-small", "vit-nano"} and rows[0]["weights"] == 10_314
    assert all(row["milliseconds"] > 0 and row["share"] > 0 for row in rows)


def test_peers_that_are_absent_are_a_hint(capsys, monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert main(["bench", "peers", *TINY, "--json"]) == 0
    out = capsys.readouterr().out
    assert "pip install 'fednb[peers]'" in out and "Flower is not timed" in out
    assert json.loads(out.splitlines()[-1])["rows"] == []


def test_a_peer_is_handed_the_same_clients_and_batches():
    """One user of a cohort: its length, and the batches of all epochs, the last of each cut."""
    work = tiny()
    cohorts = peers.Clients(work)
    for t in range(6):
        users = [user for user, _ in cohorts.get_cohort(2)]
        assert [int(user.user_id) for user in users] == participants(work.setting, 0, t)
        assert [len(y) for _, y in users[0].iter(4)] == [4, 3, 4, 3] and len(users[0]) == 7


def test_the_way_is_the_one_that_was_taken():
    """A step that could not be captured was launched piece by piece, whatever was asked for."""
    engine = runner("stacked", tiny(), method("fedavg")).engine
    assert mode_taken(engine) == "eager" and mode_taken(Loop(tiny().problem)) == mode_taken(None) == ""
    engine.mode = "graph"
    assert mode_taken(engine) == "eager"
    engine.shared.known.append(object())
    assert mode_taken(engine) == "graph"
    engine.shared.refused.add((method("fedavg"), "fp32"))
    assert mode_taken(engine) == "eager"


def test_scale_runs_every_point_apart(capsys):
    """Two sizes in processes of their own; a point that needs more participants than clients is no point."""
    asked = ["bench", "scale", *TINY, "--clients", "1,3", "--participants", "2", "--rounds", "1", "--json"]
    assert main(asked) == 0
    (row,) = last_line(capsys)["rows"]
    assert (row["clients"], row["participants"], row["weights"], row["engine"]) == (3, 2, 10_314, "loop")
    assert row["times_first"] == 1.0 and row["memory"] >= row["memory_before"] > 0 and row["memory_gpu"] is None


def test_scale_goes_on_when_a_point_fails_and_stops_in_time():
    work = tiny(model="resnet20-bn")  # cannot be stacked
    (failed,) = scale.rows([work], ["stacked"], ["fedavg"], rounds=1)
    assert failed["status"].startswith("failed: ") and "BatchNorm" in failed["status"]
    (late,) = scale.rows([work], ["stacked"], ["fedavg"], rounds=1, limit=0.0)
    assert late["status"] == "not run: out of time" and late["times_first"] is None


def test_the_usual_points_grow_one_thing_at_a_time():
    points = scale.sweep(quick=True)
    assert {p[2] for p in points if p[:2] == scale.MIDDLE and p[3] == 10} == {10, 100, 1000}
    assert {p[:2] for p in points if p[2:] == (100, 10)} == set(scale.MODELS)
    sizes = [usual("cpu", data=data, model=model, samples=1, test=1).weights for data, model in scale.MODELS]
    assert sizes == sorted(sizes) and sizes[0] < 11_000 and sizes[-1] > 11_000_000
    assert len(scale.sweep(quick=False)) == len(points) + 1  # all of a thousand clients at once


def test_made_data_have_the_shapes_of_the_real_ones():
    for name in ("cifar10", "shakespeare", "2x5x6"):
        data, source = made(shape(name), train=30, test=4), shape(name)
        assert data.input == source.shape and (len(data.y), len(data.y_test)) == (30, 4)
        assert 0 <= int(data.y.min()) <= int(data.y.max()) < data.classes


@pytest.mark.parametrize("clients", [1, 7, 100])
def test_as_many_take_part_as_were_asked_for(clients):
    """Shares of clients are not exact numbers: int(29 / 100 · 100) = 28."""
    for some in range(1, clients + 1):
        work = tiny(clients=clients, participants=some)
        assert len(participants(work.setting, 0, 0)) == some


def test_the_usual_workload():
    on_cpu, on_gpu = usual("cpu"), usual("cuda")
    assert (on_cpu.model, on_cpu.data, on_cpu.weights) == ("cnn-small", "fashion-mnist", 206_922)
    assert (on_gpu.model, on_gpu.data, on_gpu.clients, on_gpu.participants) == ("resnet20-gn", "cifar10", 100, 10)
    assert (on_gpu.samples, on_gpu.batch, on_gpu.epochs, on_gpu.steps) == (500, 50, 5, 50)
    assert usual("cpu", clients=3).participants == 3 and usual("cpu", model="lstm").data == "shakespeare"
    assert engines.usual_engines("cuda") == ["bare", "loop", "stacked:eager", "stacked:graph", "stacked:compiled"]


@pytest.mark.parametrize(
    "argv, says",
    [
        (["engines", "--engines", "lop"], "engine = 'lop': must be one of bare"),
        (["engines", "--engines", "stacked:graph"], "steps are captured on a GPU"),
        (["engines", "--participants", "4"], "participants = 4: must lie between 1 and clients = 3"),
        (["engines", "--rounds", "0"], "rounds = 0: must be at least 1"),
        (["engines", "--precision", "fp8"], "precision = 'fp8'"),
        (["engines", "--model", "cnn-small,lenet"], "one at a time here"),
        (["engines", "--methods", "fedftt"], "no method 'fedftt'"),
        (["engines", "--data", "cifar11"], "no data set 'cifar11'"),
        (["engines", "--workers", "0"], "workers = 0: must be at least 1"),
        (["scale", "--methods", "fedftt"], "no method 'fedftt'"),
        (["filters", "--engines", "loop"], "filters are timed by themselves"),
        (["peers", "--methods", "fedsam"], "only FedAvg is the same everywhere"),
    ],
)
def test_mistakes_get_one_line(argv, says, capsys):
    what, *rest = argv
    assert main(["bench", what, *TINY, *rest]) == 2
    assert says in capsys.readouterr().err


def test_commas_inside_brackets_part_no_names():
    assert command._names("fedavg, fedavg + sam(0.1, 2),fedsam") == ["fedavg", "fedavg + sam(0.1, 2)", "fedsam"]


def test_a_workload_says_what_is_wrong():
    with pytest.raises(BadWorkload, match="samples = 0"):
        tiny(samples=0)
    with pytest.raises(BadSetting, match="batch = 0"):
        tiny(batch=0).setting  # noqa: B018
    with pytest.raises(BadEngine, match="runs on the CPU"):
        runner("pool", tiny(device="cuda"), method("fedavg"))


def test_a_table_leaves_out_what_nobody_fills():
    rows = [{"a": "x", "b": 0.12345, "c": None, "d": 1234}, {"a": "long", "b": None, "c": None, "d": 5}]
    assert table(rows, {"a": "A", "b": "B", "c": "C", "d": "D"}).splitlines() == [
        "A         B      D", "x     0.123  1,234", "long      -      5",
    ]  # fmt: skip


def test_the_machine_is_named(monkeypatch):
    monkeypatch.setenv("FEDNB_COMMIT", "abc")
    about = machine("cpu")
    assert about["commit"] == "abc" and about["torch"] == torch.__version__ and about["cpu"] and about["gpu"] is None


def test_python_m_fednb_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fednb", "bench", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("fednb", run_name="__main__")
    out = capsys.readouterr().out
    assert out.startswith("usage: fednb bench") and "scale" in out


def test_figures_that_came_along_are_shown_with_machine_and_command(capsys):
    """Every file has its command, and every row that was timed its engine, method and spread."""
    assert main(["bench", "kept"]) == 0
    out = capsys.readouterr().out
    for name, result in kept.results().items():
        assert f"{name}.json" in out and result["machine"]["commit"] in out
        assert f"{name}.json\n    {result.get('command', 'python -m fednb bench')}" in out
        for row in result["rows"] if result["bench"] == "table" else ():
            assert row["command"].startswith("fednb ") and row["seconds"] > row.get("seconds_rounds", 0) >= 0
        for row in result["rows"] if result["bench"] not in ("floor", "precision", "table") else ():
            assert row["engine"] in (*engines.NAMES, "pfl-research") and row["n"] >= 3
            assert row["min"] <= row["seconds_per_round"] <= row["max"]


def test_the_command_that_is_kept_leaves_out_where_it_was_written(monkeypatch, capsys, tmp_path):
    out = tmp_path / "x.json"
    for words in (["--out", str(out)], [f"--out={out}"]):
        monkeypatch.setattr(sys, "argv", ["fednb", "bench", "engines", *words, "--rounds", "1"])
        assert main(["bench", "engines", *TINY, "--engines", "loop", "--rounds", "1", "--out", str(out)]) == 0
        assert json.loads(out.read_text())["command"] == "python -m fednb bench engines --rounds 1"


def test_products_are_counted_with_what_they_read_and_write():
    """[2, 3] times [3, 4] makes [2, 4]: 6 + 12 + 8 numbers; a 3x3 kernel on 4x4 makes 2x2; relu is free."""
    with floor.Traffic() as seen:
        (torch.ones(2, 3) @ torch.ones(3, 4)).relu().sum()
    assert seen.bytes == 4 * (6 + 12 + 8)
    with floor.Traffic() as seen:
        torch.conv2d(torch.ones(1, 1, 4, 4, dtype=torch.bfloat16), torch.ones(1, 1, 3, 3, dtype=torch.bfloat16))
    assert seen.bytes == 2 * (16 + 9 + 4)


def test_a_batch_twice_as_large_moves_the_same_weights_and_twice_the_rest():
    moved = [floor.of_gradient(tiny(samples=n, batch=n)) for n in (2, 4, 8)]
    assert moved[2] - moved[1] == 2 * (moved[1] - moved[0]) > 0


def test_bench_floor(capsys):
    assert main(["bench", "floor", "--model", "cnn-small", *TINY, "--rounds", "1", "--json"]) == 0
    (row,) = last_line(capsys)["rows"]
    work = tiny(epochs=1)
    assert row["gigabytes_per_round"] == pytest.approx(floor.of_gradient(work) * 2 * 2 / 1e9)  # 2 clients, 2 steps
    assert row["seconds_per_round"] > row["gigabytes_per_round"] / row["gigabytes_per_second"] > 0
    assert main(["bench", "floor", *TINY, "--methods", "fedsam"]) == 2


PRECISE = ["bench", "precision", "--data", "digits", "--model", "cnn-small", "--samples", "100", "--clients", "4",
           "--participation", "1.0", "--rounds", "2", "--epochs", "1", "--batch", "20"]  # fmt: skip


def test_precisions_are_compared_seed_by_seed(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    assert main([*PRECISE, "--seeds", "2", "--json"]) == 0
    fine, single = (seen := json.loads(capsys.readouterr().out.splitlines()[-1]))["rows"]
    assert [fine["precision"], single["precision"], fine["n"]] == ["fp64", "fp32", 2]
    assert fine["difference"] is None and fine["accuracy"] == pytest.approx(sum(fine["accuracies"]) / 2)
    apart = [x - y for x, y in zip(single["accuracies"], fine["accuracies"], strict=True)]
    assert single["difference"] == pytest.approx(sum(apart) / 2)
    assert abs(single["loss"] - fine["loss"]) < 1e-5 and single["loss"] != fine["loss"]
    assert seen["workload"]["rounds"] == 2 and "digits" in in_table(seen)


def test_a_precision_that_diverged_has_no_accuracy():
    class Gone:
        accuracy_last, accuracies, status, rows = None, [50.0], "diverged", [{"train_loss": float("nan")}]

        def summary(self):
            return {"seconds_per_round": 1.0}

    seen = precision.row("bf16", [Gone(), Gone()], [80.0, 81.0])
    assert (seen["n"], seen["accuracy"], seen["difference"], seen["status"]) == (0, None, None, "diverged")


@pytest.mark.parametrize(
    "more, says",
    [(["--seeds", "0"], "seeds = 0: must be at least 1"), (["--precisions", "bf16"], "is for a GPU"),
     (["--method", "fedftt"], "no method 'fedftt'"), (["--rounds", "0"], "rounds = 0")],
)  # fmt: skip
def test_precision_says_what_is_wrong_before_anything_runs(more, says, capsys):
    assert main([*PRECISE, *more]) == 2
    assert says in capsys.readouterr().err
