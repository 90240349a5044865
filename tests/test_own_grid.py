"""A grid of one's own: its methods, its tables with intervals, LaTeX with ties, its tuning, and its TOML file."""

from math import nan

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import fednb as fn
from fednb.cli.commands import main
from fednb.engines.setting import Setting
from fednb.runs.own_grid import grid_of_file, method_of
from fednb.show.grids import NotRun, Tuning
from fednb.study.standings import as_latex, best_of, interval, standings

SMALL = Setting(samples=100, clients=4, participation=1.0, rounds=1, epochs=1, batch=25)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))


def scores(values: dict[str, list[float]], **tags) -> pd.DataFrame:
    """Made scores: one list of values, by seed, for each method."""
    rows = [{**tags, "method": m, "seed": i, "measure": "accuracy", "value": v}
            for m, each in values.items() for i, v in enumerate(each)]  # fmt: skip
    return pd.DataFrame(rows)


# Which runs it is


def mine():
    return fn.parts.Sam(rho=0.2)


def test_names_methods_parts_functions_and_dictionaries_are_methods():
    made = fn.grid(SMALL, ["FedAvg", fn.method("FedSAM", rho=0.3), fn.parts.Prox(mu=0.5), mine], seeds=1).grid
    assert [c.label for c in made.cells] == ["FedAvg", "FedSAM", "Prox", "mine"]
    assert [c.method.parameters().get("rho") for c in made.cells] == [None, 0.3, None, 0.2]
    named = fn.grid(SMALL, {"ours": mine, "theirs": {"name": "FedSAM", "rho": 0.1, "setting": {"lr": 0.5}}}, seeds=1)
    assert [(c.label, c.setting.lr) for c in named.grid.cells] == [("ours", 0.1), ("theirs", 0.5)]
    assert method_of(fn.parts.Sam).name == "Sam"


def test_the_runs_are_those_that_fn_run_makes():
    """Equal keys: what was run by hand is not run again."""
    one = fn.run(SMALL.but(lr=0.2), "FedSAM", seed=1, progress=False)
    keys = {run.key for run in fn.grid(SMALL, ["FedSAM"], vary={"lr": [0.2]}, seeds=[1]).run().runs()}
    assert keys == {one.key}


def test_what_varies_is_of_the_setting_or_of_methods():
    made = fn.grid(SMALL, ["FedAvg", "FedSAM"], vary={"lr": [0.1, 0.2], "rho": [0.1, 0.2, 0.3]}, seeds=2).grid
    assert len(made.cells) == 2 * (1 + 3) * 2
    assert {c.tags.get("rho") for c in made.cells} == {None, 0.1, 0.2, 0.3}


BAD = [
    (lambda: fn.grid(SMALL, ["FedAvg", "FedAvg"]), r"two methods are called 'FedAvg'; give each a label of"),
    (lambda: fn.grid(SMALL, []), r"methods: name one at least"),
    (lambda: fn.grid(SMALL, [3]), r"no method 3; give a name, a Method, a part, or a function"),
    (lambda: fn.grid(SMALL, [lambda x: x]), r"<lambda>\(\) must make a method without arguments"),
    (lambda: fn.grid(SMALL, [lambda: 3]), r"<lambda>\(\) gave 3, not a Method or a part"),
    (lambda: fn.grid(3, ["FedAvg"]), r"setting = 3: must be a fn.Setting"),
    (lambda: fn.grid(SMALL, ["FedAvg"], vary={"rho": [1]}), r"vary 'rho': neither a field of the setting nor"),
    (lambda: fn.grid(SMALL, ["FedAvg"], vary={"lr": 0.1}), r"vary lr = 0.1: must be a list of values"),
    (lambda: fn.grid(SMALL, ["FedAvg"], tune={"lr": 3}), r"tune lr = 3: must be a list of values to try"),
    (
        lambda: fn.grid(SMALL, ["FedAvg", "FedSAM"], tune={"lr": [1, 2], "rho": [1, 2]}),
        r"FedAvg may try 2 and FedSAM 4",
    ),
    (lambda: fn.grid(SMALL, ["FedAvg"], tune={"FedX": {"lr": [1]}}), r"tune: no method 'FedX'; the methods are FedAvg"),
    (lambda: fn.tune(["FedAvg"], {"rho": [1]}), r"no method has a 'rho' that could be tuned"),
    (lambda: fn.tune(["FedAvg"], {}), r"tuning: nothing to try; say what, such as"),
    (lambda: fn.tune(["FedSAM", "FedAvg"], {"rho": [1, 2]}), r"tuning: nothing to try for FedAvg; leave it out, or"),
    (lambda: fn.tune(["FedSAM", "FedAvg"], {"FedSAM": {"rho": [1, 2]}}), r"tuning: nothing to try for FedAvg"),
    (lambda: fn.grid(SMALL, ["FedAvg"], tune={"nonsense": [1, 2]}), r"no method has a 'nonsense' that could be tuned"),
    (lambda: fn.grid(SMALL, ["FedAvg"], tune={"FedAvg": {"rho": [1, 2]}}), r"FedAvg has no 'rho' to tune, or it is"),
    (
        lambda: fn.grid(SMALL, ["FedAvg"], vary={"lr": [0.1, 0.2]}, tune={"lr": [0.3, 0.4]}),
        r"FedAvg: 'lr' is both varied and tuned; leave it out of one",
    ),
    (
        lambda: fn.grid(SMALL, ["FedSAM"], vary={"rho": [0.1, 0.2]}, tune={"rho": [0.3], "lr": [0.1]}),
        r"FedSAM: 'rho' is both varied and tuned",
    ),
    (
        lambda: fn.grid(SMALL, ["FedSAM"], vary={"rho": [0.1, 0.2]}, tune={"FedSAM": {"rho": [0.3]}}),
        r"FedSAM: 'rho' is both varied and tuned",
    ),
    (lambda: fn.grid(SMALL, ["FedAvg"], vary={"batch": [20, 25], "lr": [0.1, 0.2, 0.1]}), r"grid: lr has 0.1 twice"),
    (lambda: fn.grid(SMALL, ["FedSAM"], vary={"rho": [0.1, 1, 1.0]}), r"rho has 1.0 twice; leave one of them out"),
    (lambda: fn.grid(SMALL, ["FedAvg"], tune={"lr": [0.1, 0.1]}), r"tune lr has 0.1 twice"),
    (
        lambda: fn.grid(SMALL, ["FedAvg"], vary={"partition": ["dirichlet(0.1)", "Dirichlet(alpha=0.1)"]}),
        r"partition has Dirichlet\(alpha=0.1, minimum=10\) twice",
    ),
    (lambda: standings(scores({"A": [1.0, 2.0]}), level=95), r"level = 95: must be above 0 and below 1, such as 0.95"),
    (lambda: fn.tune(["FedAvg"], {"lr": [1, 2]}, by="luck"), r"by = 'luck': must be one of test, held-out, validation"),
]


def test_partitions_are_told_apart_by_alpha_or_by_their_texts():
    """Equal texts, as lambdas have them, by their place in the list too."""

    def tags(*partitions):
        return [c.tags for c in fn.grid(SMALL, ["FedAvg"], vary={"partition": list(partitions)}, seeds=1).grid.cells]

    one, fewer, other = (f"dirichlet(alpha={alpha}, minimum={n})" for alpha, n in ((0.6, 5), (0.6, 9), (0.1, 5)))
    assert tags(one, other) == [{"dataset": "digits", "alpha": 0.6}, {"dataset": "digits", "alpha": 0.1}]
    assert [t.get("partition") for t in tags(one, fewer, other)] == [one, fewer, other]
    dealt = [lambda labels, clients, seed, by=by: np.arange(len(labels)) // by % clients for by in (1, 2)]
    text = f"{__name__}:{dealt[0].__qualname__}"
    assert [t["partition"] for t in tags(dealt[0], "iid", dealt[1])] == [f"{text} (1)", "iid", f"{text} (3)"]


@pytest.mark.parametrize("make, said", BAD)
def test_what_makes_no_grid_is_refused_in_one_line(make, said):
    with pytest.raises((ValueError, KeyError), match=said) as refused:
        make()
    assert "\n" not in str(refused.value)


# What it shows


def test_an_interval_is_students():
    """1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.3027, so 2 ± 4.3027 / √3."""
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)
    assert np.isnan(interval([5.0])).all() and interval([4.0, 4.0]) == (4.0, 4.0)


def test_gains_are_paired_by_seed():
    """Seeds differ by 10 points, the methods by exactly 1: the gain has no spread, the means have."""
    table = standings(scores({"A": [50.0, 60.0, 70.0], "B": [51.0, 61.0, 71.0]}), base="A")
    assert table.loc["B", ["gain", "gain_low", "gain_high"]].tolist() == pytest.approx([1.0] * 3)
    assert table.loc["B", "high"] - table.loc["B", "low"] > 40 and np.isnan(table.loc["A", "gain"])


def test_a_diverged_run_leaves_no_mean_and_is_counted():
    table = standings(scores({"A": [50.0, nan], "B": [40.0, 41.0]}))
    assert np.isnan(table.loc["A", "mean"]) and table["diverged"].tolist() == [1, 0] and table["n"].tolist() == [2, 2]
    assert best_of(scores({"A": [50.0, nan], "B": [40.0, 41.0]})) == {("B",)}
    assert "A & diverged (1 of 2)" in as_latex(scores({"A": [50.0, nan], "B": [40.0, 41.0]}))


def test_ties_are_told_by_the_interval_of_differences():
    """B is 1 below A with every seed: told apart. C is 1 below on average, from 3 above to 5 below: not."""
    seen = scores({"A": [50.0, 60.0, 70.0], "B": [49.0, 59.0, 69.0], "C": [53.0, 59.0, 65.0]})
    assert best_of(seen) == {("A",), ("C",)}
    assert best_of(seen, lowest=True) == {("B",), ("C",)}


def test_latex_has_settings_across_and_the_best_in_bold():
    both = [scores({"A_1": [50.0, 50.2], "B": [40.0, 40.2]}, lr=0.1), scores({"A_1": [50.0], "B": [60.0]}, lr=0.2)]
    lines = as_latex(pd.concat(both)).splitlines()
    assert lines[0].startswith("% accuracy, mean and standard deviation over n = 1 or 2 seeds; bold: the best")
    assert lines[3] == r"method & lr 0.1 & lr 0.2 \\"
    assert lines[5] == r"A\_1 & \textbf{50.10} $\pm$ 0.14 & 50.00 \\"
    assert lines[6] == r"B & 40.10 $\pm$ 0.14 & \textbf{60.00} \\"


def test_a_table_needs_finished_runs_and_then_has_all_of_them(tmp_path, monkeypatch):
    made = fn.grid(SMALL, ["FedAvg", "FedSAM"], vary={"lr": [0.05, 0.1]}, seeds=2, name="mine")
    with pytest.raises(NotRun, match=r"mine: 8 of 8 runs are missing; `.run\(\)` makes them"):
        made.table()
    made.run()
    table = made.table(base="FedAvg")
    assert table.index.names == ["lr", "method"] and len(table) == 4 and set(table["n"]) == {2}
    assert list(table) == ["mean", "std", "low", "high", "n", "diverged", "gain", "gain_low", "gain_high"]
    by_hand = [r.accuracy for r in made.runs()]
    assert table["mean"].iloc[0] == pytest.approx(np.mean(by_hand[:2]))
    assert len(pd.read_csv(made.to_csv(tmp_path / "t.csv", base="FedAvg"))) == 4
    assert (tmp_path / "t.tex").write_text(made.to_latex(tmp_path / "t.tex")) and "toprule" in made.to_latex()
    asked = []
    monkeypatch.setattr("fednb.show.grids.as_latex", lambda scores, *how: asked.append(how) or "")
    made.to_latex(lowest=True)
    assert asked == [(0.95, True, 2)]
    for what in ("scores", "curves"):
        assert isinstance(made.plot(what), Figure)
    figure = made.plot("gains", base="FedAvg")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["FedSAM"]
    assert figure.axes[0].get_xlabel() == "gain over FedAvg, points"
    with pytest.raises(ValueError, match=r"cannot be written"):
        made.to_csv(tmp_path / "no" / "t.csv")
    with pytest.raises(ValueError, match=r"measure = 'speed': must be one of accuracy, best on test, last"):
        made.table(measure="speed")


# Tuning


def test_a_tuning_curve_names_its_parameter_and_is_logarithmic_where_values_are_far_apart():
    for tried, scale in (([0.01, 0.1], "log"), ([0.05, 0.1], "linear")):
        axes = fn.tune(["FedAvg"], {"lr": tried}, SMALL).run().plot().axes[0]
        assert (axes.get_xlabel(), axes.get_xscale()) == ("lr", scale)


def test_a_method_with_values_of_its_own_is_tuned_by_these():
    methods = ["FedAvg", {"name": "FedSAM", "tune": {"rho": [0.1, 0.2]}}]
    made = fn.grid(SMALL, methods, tune={"lr": [0.05, 0.1]}, seeds=1).grid
    assert {c.label: c.tune for c in made.cells} == {"FedAvg": {"lr": [0.05, 0.1]}, "FedSAM": {"rho": [0.1, 0.2]}}


@pytest.mark.usefixtures("own_names")
def test_arrays_are_lists_of_values():
    made = fn.grid(
        SMALL, ["FedAvg"], vary={"lr": np.array([0.05, 0.1])}, tune={"batch": torch.tensor([20, 25])}, seeds=1
    )
    assert [c.tags["lr"] for c in made.grid.cells] == [0.05, 0.1] and len(made.grid.trials) == 4
    dealt = [np.arange(100) % 4, np.arange(100) // 25]
    for how in ({"vary": {"partition": dealt}}, {"tune": {"partition": dealt}}):
        made = fn.grid(SMALL, ["FedAvg"], **how, seeds=1).grid
        parts = {str(c.setting.partition) for c in (*made.cells, *(trial.cell for trial in made.trials))}
        assert len({text for text in parts if text.startswith("listed-")}) == 2


def test_where_all_values_diverge_nothing_is_at_an_edge_and_that_is_said(capsys):
    made = fn.tune(["FedAvg"], {"lr": [1e30, 1e31]}, SMALL.but(clip_norm=1e30)).run()
    said = capsys.readouterr().err
    assert "FedAvg: every run diverged that tried lr [1e+30, 1e+31]" in said and "at the end" not in said
    assert made.at_edge() == {} and made.choices["FedAvg"].words.endswith("by validation; all diverged")


def test_tuning_is_by_validation_and_gives_methods_for_a_grid(capsys):
    made = fn.tune({"A": "FedAvg", "B": "FedSAM"}, {"A": {"lr": [0.05, 0.1]}, "B": {"rho": [0.1, 0.2]}}, SMALL, seeds=2)
    assert isinstance(made, Tuning) and len(made.grid.tuning.cells) == 2 * 2 * 2
    assert {c.setting.validation for c in made.grid.tuning.cells} == {0.1}
    with pytest.raises(NotRun, match=r"the tuning of A, B is not finished"):
        made.methods  # noqa: B018
    made.run()
    choice = made.choices["A"]
    runs = [fn.run(SMALL.but(lr=lr, validation=0.1), "FedAvg", seed, progress=False).validation_accuracy
            for lr in (0.05, 0.1) for seed in (0, 1)]  # fmt: skip
    assert list(choice.reached.values()) == pytest.approx([np.mean(runs[:2]), np.mean(runs[2:])])
    assert made.at_edge() == {"A": ["lr"], "B": ["rho"]}  # of two values both are ends
    assert "fednb: A: lr = " in (said := capsys.readouterr().err) and "the best may lie beyond" in said
    cells = fn.grid(SMALL, made.methods, seeds=1).grid.cells
    assert [c.setting.lr for c in cells] == [made.best["A"]["lr"], SMALL.lr]
    assert cells[1].method.parameters()["rho"] == made.best["B"]["rho"] and {c.setting.validation for c in cells} == {0}
    assert isinstance(made.plot(), Figure) and len(made.table()) == 4


def test_a_setting_with_validation_data_is_tuned_with_its_own_share():
    cells = fn.tune(["FedAvg"], {"lr": [0.1, 0.2]}, SMALL.but(validation=0.3)).grid.tuning.cells
    assert {c.setting.validation for c in cells} == {0.3}
    assert {c.setting.validation for c in fn.tune(["FedAvg"], {"lr": [1, 2]}, SMALL, by="test").grid.tuning.cells} == {
        0
    }


# From a file

FILE = """
methods = ["FedAvg", { name = "FedSAM", rho = 0.05, label = "SAM" }]
seeds = [0, 1]
vary = { lr = [0.05, 0.1] }
setting = { samples = 100, clients = 4, participation = 1.0, rounds = 1, epochs = 1, batch = 25 }
"""


def test_a_file_describes_a_grid_with_or_without_scales(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    assert len(grid_of_file(path).cells) == 8 and len(grid_of_file(path, seeds=[5]).cells) == 4
    path.write_text(FILE + "[smoke]\nsetting = { rounds = 2 }\n")
    assert {c.setting.rounds for c in grid_of_file(path, "smoke").cells} == {2}
    with pytest.raises(ValueError, match=r"mine.toml: is for the scales smoke; name one with --scale"):
        grid_of_file(path, "paper")
    assert grid_of_file(path).scale == "smoke"
    path.write_text(FILE + "[laptop]\nsetting = { rounds = 2 }\n")
    with pytest.raises(ValueError, match=r"mine.toml: is for the scales laptop; name one with --scale"):
        grid_of_file(path)
    path.write_text(FILE.replace("FedAvg", "FedAvgg"))
    with pytest.raises(ValueError, match=r"mine.toml: no method 'FedAvgg'; closest: FedAvg"):
        grid_of_file(path)
    path.write_text("setting = 3\nmethods = ['FedAvg']")
    with pytest.raises(ValueError, match=r"mine.toml: `setting` must be a table of settings"):
        grid_of_file(path)


@pytest.mark.parametrize(
    "more, said",
    [
        ("tune = { lr = [0.2, 0.3] }", r"FedAvg: 'lr' is both varied and tuned"),
        ("sweep = { rho = [0.2, 0.3] }\ntune = { rho = [0.4] }", r"FedAvg: 'rho' is both varied and tuned"),
        ("tune = { batch = [20, 20] }", r"tune batch has 20 twice"),
        ("sweep = { rho = [0.2, 0.2] }", r"rho has 0.2 twice"),
        ("cases = [{ vary = { batch = [20, 25, 20] } }]", r"batch has 20 twice"),
        ("tune_seeds = [1, 1]", r"`tune_seeds` must be a list .* of at least 0, none twice, not \[1, 1\]"),
        ("cases = [{ setting = { batch = 20 } }, {}]", r"two methods are called .*, or each case an entry of its own$"),
    ],
)
def test_a_file_in_which_two_things_are_one_is_refused(more, said, tmp_path):
    (tmp_path / "mine.toml").write_text(FILE + more)
    with pytest.raises(ValueError, match=said):
        grid_of_file(tmp_path / "mine.toml")


def test_a_file_names_methods_by_import_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        FILE.replace('"FedAvg"', f'"{__name__}:mine", {{ name = "{__name__}:mine", rho = 0.5, label = "x" }}')
    )
    seen = {c.label: c.method.parameters().get("rho") for c in grid_of_file(path).cells}
    assert seen == {"mine": 0.2, "x": 0.5, "SAM": 0.05}
    path.write_text(FILE.replace("FedAvg", f"{__name__}:nothing"))
    with pytest.raises(ValueError, match=r"mine.toml: .*nothing.* has no 'nothing'"):
        grid_of_file(path)


def test_the_command_runs_a_file_and_prints_its_table(tmp_path, capsys):
    path, csv, tex = (tmp_path / name for name in ("mine.toml", "t.csv", "t.tex"))
    path.write_text(FILE)
    assert main(["grid", "status", str(path)]) == 0
    assert capsys.readouterr().out.count("absent") == 8
    asked = ["grid", "run", str(path), "--device", "cpu", "--base", "FedAvg", "--csv", str(csv), "--latex", str(tex)]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "gain" in out and max(map(len, out.splitlines())) <= 100
    assert len(pd.read_csv(csv)) == 4 and "bottomrule" in tex.read_text()
    assert main(["grid", "run", str(path), "--only", "lr=0.05", "--methods", "SAM"]) == 0
    assert "FedAvg" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "more, said",
    [
        (["table1"], "is a grid by itself; name no others"),
        (["--base", "FedX"], "base = 'FedX': no such method"),
        (["--scale", "smoke"], "mine.toml: has no table [smoke], it is the same at every scale; leave out --scale"),
        (["--methods", "FedX"], "no method 'FedX'"),
    ],
)
def test_the_command_refuses_in_one_line_before_anything_is_run(more, said, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    assert main(["grid", "run", str(path), *more]) == 2
    assert said in (err := capsys.readouterr().err) and err.count("\n") == 1
    assert not (tmp_path / "store" / "runs").exists()


def test_a_papers_grid_needs_a_name_and_has_no_files(capsys):
    assert main(["grid", "status", "fedfft"]) == 2
    assert "name a grid of it, such as table1" in capsys.readouterr().err
    assert main(["grid", "status", "fedfft", "table1", "--csv", "x.csv"]) == 2
    assert "--csv, --latex and --base are for a file" in capsys.readouterr().err
