"""Tuning a grid's methods: which runs it takes, what is chosen, and that nothing is run before it is chosen."""

from math import nan

import numpy as np
import pandas as pd
import pytest
import torch

from fednb.cli.commands import main
from fednb.core.rounds import Method
from fednb.data.partition import PartitionFailed
from fednb.data.sources import load
from fednb.engines.problem import clients_of, data_of, own_split, problem_of
from fednb.engines.setting import Setting
from fednb.metrics.tidy import is_control
from fednb.runs.cells import Cell
from fednb.runs.experiment import run_of
from fednb.runs.grid import Grid
from fednb.runs.tuning import Choice, settled
from fednb.study import paper as paper_module
from fednb.study.claims import Claim
from fednb.study.jobs import done, jobs_of
from fednb.study.measurements.accuracy import accuracy, accuracy_reports
from fednb.study.measurements.tuning import tuning
from fednb.study.page import compare, provenance
from fednb.study.paper import papers
from fednb.study.plan import needed, planned, sections
from fednb.study.selection import Selection

SETTING = dict(data="digits", samples=100, clients=4, participation=1.0, rounds=1, epochs=1, batch=25)
VARY = {"partition": ["dirichlet(alpha=0.6, minimum=5)", "dirichlet(alpha=0.1, minimum=5)"]}
GRID = dict(setting=SETTING, methods=["FedAvg", {"name": "FedSAM", "tune": {"lr": [0.001, 0.1], "rho": [0.05, 0.1]}}],
            vary=VARY, seeds=[3, 4], tune={"lr": [0.001, 0.01, 0.1]}, tune_where={"alpha": 0.1})  # fmt: skip


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))


def grid(**changes) -> Grid:
    return Grid.of("small", "smoke", GRID | changes)


def choice(reached: dict, by="test", **tried) -> Choice:
    tried = tried or {"lr": [value for (value,) in reached]}
    return Choice("FedAvg", tried, reached, 1, by)


# Which runs it takes


def test_trials_are_all_values_in_the_chosen_setting_with_the_first_seed():
    made = grid().tuning
    assert {(c.label, c.setting.lr, c.method.parameters().get("rho")) for c in made.cells} == {
        ("FedAvg", 0.001, None), ("FedAvg", 0.01, None), ("FedAvg", 0.1, None), ("FedSAM", 0.001, 0.05),
        ("FedSAM", 0.001, 0.1), ("FedSAM", 0.1, 0.05), ("FedSAM", 0.1, 0.1),
    }  # fmt: skip
    assert len(made.cells) == 7 and {(c.seed, c.setting.partition.alpha) for c in made.cells} == {(3, 0.1)}
    assert {c.seed for c in grid(tune_seeds=[7, 8]).tuning.cells} == {7, 8}
    assert len(grid(tune_where={}).tuning.cells) == 14  # both settings


def test_other_seeds_or_settings_are_asked_of_the_table_and_not_of_the_tuning():
    asked = Grid.of("small", "smoke", GRID, [9]).only({"alpha": [0.6], "method": ["FedAvg"]})
    assert {(c.label, c.seed, c.tags["alpha"]) for c in asked.cells} == {("FedAvg", 9, 0.6)}
    assert {(c.label, c.seed, c.tags["alpha"]) for c in asked.tuning.cells} == {("FedAvg", 3, 0.1)}


def test_another_precision_is_tuned_by_itself():
    assert {c.setting.precision for c in grid().at(precision="fp64").tuning.cells} == {"fp64"}


def test_a_parameter_of_methods_is_tuned_where_it_is_not_given():
    rows = ["FedAvg", "FedSAM", {"name": "FedSAM", "rho": 0.3, "label": "given"}, {"name": "FedFFT", "tune": {}}]
    made = grid(methods=rows, tune={"rho": [0.1, 0.2]})
    assert {c.label for c in made.tuning.cells} == {"FedSAM"}
    assert {c.label for c in made.cells if c.waits} == {"FedSAM"}


def test_a_case_that_varies_what_the_grid_tunes_says_so_of_its_methods():
    """The grid's `tune` is not for a method with its own, be it empty."""
    varied = {"case": 2, "vary": {"lr": [0.1, 0.2]}, "methods": [{"name": "FedAvg", "label": "plain", "tune": {}}]}
    made = grid(methods=["FedAvg"], vary={}, tune_where={}, cases=[{"case": 1}, varied])
    assert [(c.label, c.waits) for c in made.cells if c.seed == 3] == [("FedAvg", True)] + [("plain", False)] * 2


def test_a_grid_without_tuning_is_what_it_was():
    plain = Grid.of("small", "smoke", {"setting": SETTING, "methods": ["FedAvg"]})
    assert plain.tuning is None and not plain.waiting and plain.tuned == "" and plain.settled() is plain
    assert [r.key for r in plain.runs()] == [run_of(Setting(**SETTING), Method("FedAvg"), 0).key]


@pytest.mark.parametrize(
    "changes, said",
    [
        (dict(tune={"lr": []}), r"`tune` must be a table of lists, none of them empty"),
        (dict(tune={"speed": [1, 2]}), r"no method has a 'speed' that could be tuned"),
        (dict(methods=[{"name": "FedAvg", "tune": {"rho": [1]}}]), r"FedAvg has no 'rho' to tune, or it is given"),
        (dict(methods=[{"name": "FedSAM", "rho": 1, "tune": {"rho": [1]}}]), r"FedSAM has no 'rho' to tune, or"),
        (dict(vary=VARY | {"lr": [0.1, 0.2]}), r"FedAvg: 'lr' is both varied and tuned; leave it out of one of them"),
        (dict(sweep={"rho": [0.2]}), r"FedSAM: 'rho' is both varied and tuned"),
        (dict(tune={"lr": [0.1, 0.1]}), r"tune lr has 0.1 twice"),
        (dict(tune_by="luck"), r"`tune_by` must be test \| held-out \| validation, not 'luck'"),
        (dict(tune_seeds=[-1]), r"`tune_seeds` must be a list of whole numbers"),
        (dict(seeds=[3, 4, 3]), r"`seeds` must be a list of whole numbers of at least 0, none twice"),
        (dict(tune_where={"alpha": 5}), r"`tune_where` leaves no setting to tune 'FedAvg' in"),
        (dict(tune={"lr": [-1]}), r"lr = -1: must be above 0"),
        (dict(methods=[{"name": "FedAvg", "scales": ["laptopp"]}]), r"`methods` must be a list"),
        (dict(methods=[{"name": "FedAvg", "scales": ["paper"]}]), r"no method has this scale among its `scales`"),
        (dict(methods=["FedAvg", {"name": "FedSAM", "label": "FedAvg", "tune": {"rho": [1]}}]), r"tuned in two ways"),
        (dict(tune={name: list(range(1, 60)) for name in ("lr", "batch", "epochs")}), r"205383 runs to tune it"),
    ],
)  # fmt: skip
def test_bad_tuning_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        grid(**changes)


def test_methods_may_be_of_some_scales_only():
    rows = ["FedAvg", {"name": "FedSAM", "scales": ["laptop", "paper"]}]
    described = dict(setting=SETTING, methods=rows, cases=[{"case": 1}, {"case": 2, "methods": rows[::-1]}])
    seen = {scale: [c.label for c in Grid.of("g", scale, described).cells] for scale in ("smoke", "paper")}
    assert seen == {"smoke": ["FedAvg"] * 2, "paper": ["FedAvg", "FedSAM", "FedSAM", "FedAvg"]}


# What is chosen


def test_the_best_is_chosen_and_one_that_is_no_number_is_behind():
    assert choice({(0.1,): 50.0, (0.2,): nan, (0.3,): 60.0}).values == {"lr": 0.3}
    assert choice({(0.1,): nan, (0.2,): nan}).values == {"lr": 0.1}
    assert choice({(0.1,): 60.0, (0.2,): 60.0}).values == {"lr": 0.1}


@pytest.mark.parametrize("best, edge", [(0.1, True), (0.2, False), (0.3, True)])
def test_a_best_value_at_either_end_of_its_list_is_at_the_edge(best, edge):
    """Whatever the order of the list; and words have no order."""
    found = choice({(value,): 90.0 if value == best else 10.0 for value in (0.2, 0.3, 0.1)})
    assert found.at_edge("lr") is edge
    assert found.words == f"lr {best} of 0.2, 0.3, 0.1 by test" + "; lr at the edge" * edge
    assert not choice({("a",): 1.0, ("b",): 2.0}, scheme=["a", "b"]).at_edge("scheme")


def test_the_curve_of_two_parameters_goes_through_the_chosen_point():
    """(2, 5) is best: along a at b = 5 and along b at a = 2."""
    reached = {(1, 4): 10.0, (1, 5): 20.0, (2, 4): 30.0, (2, 5): 40.0, (3, 4): 50.0 - 20, (3, 5): 25.0}
    found = choice(reached, by="held-out", a=[1, 2, 3], b=[4, 5])
    rows = [(row["parameter"], row["at"], row["value"], row["chosen"], row["edge"]) for row in found.rows()]
    assert rows == [("a", 1, 20.0, False, False), ("a", 2, 40.0, True, False), ("a", 3, 25.0, False, False),
                    ("b", 4, 30.0, False, False), ("b", 5, 40.0, True, True)]  # fmt: skip
    assert found.words == "a 2 of 1, 2, 3, b 5 of 4, 5 by held-out; b at the edge"


def test_what_is_chosen_goes_to_all_seeds_and_settings():
    """Untuned methods stay; a label without a choice waits, with a key of its own, so that no run is taken for it."""
    base = Cell(Setting(**SETTING), Method("FedAvg"), 0, {}, tune={"lr": [0.1]})
    (waiting,), (plain,) = settled((base,), ()), settled((Cell(base.setting, base.method, 0, {}),), ())
    assert waiting.waits and not plain.waits
    made = Grid("g", "smoke", (waiting, plain))
    keys = [run.key for run in made.runs()]
    assert keys[0] != keys[1] == run_of(base.setting, base.method, 0).key
    assert made.status()["status"].tolist() == ["waits for tuning", "absent"]


# From the first run to the table


def test_a_grid_is_tuned_and_then_run():
    """A rate of 0.1 beats 0.001 and 0.01 in one round on digits; the curve, the rows and the caption say so."""
    made = grid()
    assert made.waiting and made.status()["status"].tolist() == ["absent"] * 7 + ["waits for tuning"] * 8
    results = made.run(device="cpu", engine="loop")
    assert not grid().waiting and {c.setting.lr for c in results.grid.cells} == {0.1}
    assert set(results.table()["tuned"]) == set(accuracy(results)["tuned"]) == {c.tuned for c in results.grid.cells}
    assert results.grid.tuned.startswith("FedAvg: lr 0.1 of 0.001, 0.01, 0.1 by test; lr at the edge; FedSAM: lr 0.1")
    curve = tuning(results)
    assert list(curve) == ["method", "parameter", "at", "seed", "measure", "value", "n", "chosen", "edge"]
    assert curve[curve["chosen"]][["method", "parameter", "edge"]].to_numpy().tolist() == [
        ["FedAvg", "lr", True], ["FedSAM", "lr", True], ["FedSAM", "rho", True]
    ]  # fmt: skip
    best = run_of(Setting(**SETTING).but(partition=VARY["partition"][1]), Method("FedAvg"), 3)
    assert curve.set_index(["method", "at"]).loc[("FedAvg", 0.1), "value"] == best.accuracy  # an ordinary run
    assert "; FedAvg tuned: lr 0.1 of 0.001, 0.01, 0.1 by test; lr at the edge; FedSAM tuned: lr" in provenance(results)
    status = grid().status()
    assert status["tuned"].tolist()[:7] == ["is tried"] * 7 and set(status["status"]) == {"finished"}


def test_a_method_is_ready_when_its_own_trials_are():
    grid(methods=["FedAvg"]).tuning.run(device="cpu", engine="loop")
    assert {c.label: c.waits for c in grid().cells} == {"FedAvg": False, "FedSAM": True}


def test_three_readings_of_a_run_stand_beside_one_another():
    results = Grid.of("g", "smoke", {"setting": SETTING | {"rounds": 3}, "methods": ["FedAvg"]}).run("cpu", "loop")
    (run,) = results.runs
    three = [run.accuracy_best, run.accuracy_last, run.accuracy_last_ten]
    assert three == [max(run.accuracies), run.accuracies[-1], np.mean(run.accuracies)]
    assert accuracy(results)[["value", "best", "last", "last_ten"]].to_numpy().tolist() == [[run.accuracy, *three]]
    rows = accuracy_reports(results).set_index("measure")["value"]
    assert rows.to_dict() == dict(zip(["best accuracy", "last accuracy", "last-ten accuracy"], three, strict=True))
    assert results.table()["accuracy_last_ten"].tolist() == three[2:]
    beside = compare(accuracy(results), pd.DataFrame({"method": ["FedAvg"], "measure": ["accuracy"], "value": [50.0]}))
    assert beside[["ours", "best", "last", "last_ten"]].to_numpy().tolist() == [[run.accuracy, *three]]


# Held-out data


def test_held_out_samples_take_the_place_of_the_test_set():
    """A tenth of the training data, the same for every seed, in nobody's hands; the test set is not looked at."""
    whole, data = load("digits"), data_of(Setting(held_out=0.1))
    assert len(data.y_test) == round(0.1 * len(whole.y)) and len(data.y) + len(data.y_test) == len(whole.y)
    both = torch.cat([data.x, data.x_test]).flatten(1)
    assert torch.equal(both.unique(dim=0), whole.x.flatten(1).unique(dim=0))
    problem = problem_of(Setting(held_out=0.1, clients=4), 0)
    assert torch.equal(problem.test[1], data.y_test) and int(problem.sizes.sum()) == len(data.y)


def test_with_splits_of_their_own_clients_hold_out_of_their_training_part():
    setting = Setting(evaluation="personal", clients=4, train_share=0.5)
    parts = clients_of(setting, 0, data_of(setting))
    train, test = own_split(setting, 0, parts)
    less, held = own_split(setting.but(held_out=0.25), 0, parts)
    for i in range(4):
        assert sorted([*less[i], *held[i]]) == sorted(train[i]) and not set(held[i]) & set(test[i])
        assert len(held[i]) == pytest.approx(0.25 * len(train[i]), abs=1)
    with pytest.raises(PartitionFailed, match="client 0 has too few samples"):
        own_split(setting.but(held_out=0.25), 0, [part[:3] for part in parts])


def test_the_key_tells_held_out_data_apart_and_stays_without_them():
    cells = grid(tune_by="held-out").tuning.cells
    assert {c.setting.held_out for c in cells} == {0.1} and {c.setting.held_out for c in grid().cells} == {0.0}
    keys = [
        run_of(c.setting, c.method, c.seed).key
        for made in (grid(), grid(tune_by="held-out"))
        for c in made.tuning.cells
    ]
    assert len(set(keys)) == 14


# Tables, plans and the command line


@pytest.fixture
def small_paper(tmp_path, monkeypatch):
    """A paper with one tuned table of two methods, FedAvg and FedSAM, and a claim about it."""
    folder = tmp_path / "papers" / "made"
    (folder / "grids").mkdir(parents=True)
    (folder / "paper.toml").write_text(
        'title = "Made"\n[smoke]\ndata = "digits"\nsamples = 100\nclients = 4\nparticipation = 1.0\nrounds = 1\n'
        'epochs = 1\nbatch = 25\n[sections.table1]\ntitle = "T"\nnotebook = "made/01_x"\n'
    )
    (folder / "grids" / "table1.toml").write_text(
        'methods = ["FedAvg", "FedSAM"]\nseeds = [0, 1]\ntune = { lr = [0.001, 0.1] }\n'
    )
    (folder / "claims.toml").write_text(
        '[[claim]]\nid = "c"\nsection = "table1"\nsays = "s"\nkind = "above"\nleft = "FedSAM"\nright = "FedAvg"\n'
    )
    monkeypatch.setattr(paper_module, "shelf", lambda name: tmp_path / name)
    return papers("made")


def test_the_command_line_tunes_first_and_says_what_waits(small_paper, tmp_path, capsys):
    assert main(["grid", "status", "made", "table1"]) == 0
    assert capsys.readouterr().out.count("waits for tuning") == 4
    assert main(["grid", "run", "made", "table1", "--device", "cpu", "--methods", "FedAvg"]) == 0
    said = capsys.readouterr().out
    assert "waits" not in said and "FedSAM" not in said
    assert said.count("finished") == 3 + 4  # made and listed: the trial with the chosen rate is a run of the table
    assert "lr 0.1 of 0.001, 0.1 by test" in said
    assert main(["store", "export", str(tmp_path / "out.zip"), "--grid", "made", "table1"]) == 0
    assert "3 runs" in capsys.readouterr().out  # with the trial that was not chosen


def test_a_plan_has_the_tuning_and_what_waits_for_it_but_makes_only_what_is_known(small_paper):
    """4 trials and 4 runs of the table are missing; those of the table are counted and cannot be made yet."""
    plan = planned([small_paper], "smoke", device="cpu")
    assert [step.row()["missing"] for step in plan.steps] == [8] and len(plan.tasks) == 4
    small_paper.grid("table1").tuning.run(device="cpu", engine="loop")
    after = planned([small_paper], "smoke", device="cpu")
    assert len(after.tasks) == 4 - 1 * 2 == sum(step.row()["missing"] for step in after.steps)
    (section,) = sections([small_paper], "smoke", Selection())
    assert section.needs[0].keys == {run.key for run in section.runs}


def test_jobs_of_a_tuning_come_before_those_of_the_table(small_paper):
    assert jobs_of("made", "table1", "smoke") == []
    trials = jobs_of("made", "table1", "smoke", chosen=Selection(methods=("FedSAM",)), tuning=True)
    assert [job.name for job in trials] == ["table1 tuning 2", "table1 tuning 3"]
    assert [done(job, "cpu").status for job in trials] == ["finished"] * 2
    table = jobs_of("made", "table1", "smoke")
    assert {small_paper.grid("table1").cells[job.cell].label for job in table} == {"FedSAM"}


# The papers' own


@pytest.mark.parametrize("id, per_method", [
    ("specgradfilter", {"FedAvg": 6, "SCAFFOLD": 6, "FedProx": 4, "FedDyn": 6, "FedCM": 6}),
    ("fedfsa", {"MoFedSAM": 4, "FedSMOO": 2, "FedSpeed": 2, "FedCR": 3, "FedFSA": 42}),
])  # fmt: skip
def test_papers_search_what_they_say(id, per_method):
    made = papers(id).grid("table1-tuned", "paper")
    counted = {label: sum(c.label == label for c in made.tuning.cells) for label in per_method}
    assert counted == per_method and len({str(c.setting.partition) for c in made.tuning.cells}) == 1
    assert {c.seed for c in made.tuning.cells} == {min(c.seed for c in made.cells)}


LENGTH = "FedSAM, FedFFT's length (our control)"
CONTROLS = [
    ("fedfft", "table1", {"laptop": {LENGTH, "FedSAM-D, decay 0.998 (our control)"},  # the decay that the row has not
                          "paper": {LENGTH, "FedSAM-D, decay 0.9995 (our control)"}}),
    ("fedfft", "table3", {LENGTH}),
    ("fedfft", "table10", {LENGTH}),
    ("fedfft", "table9", {"FedSAM (our control)", "FedFFT (our control)"}),
    ("fedfft", "fig7", {"FedSAM-D (our control)", "FedSAM-D, decay 0.998 (our control)"}),
    ("fedfft", "table13", {"Centralisation (our control)", "FedSAM-D, decay 0.998 (our control)"}),
    *(("specgradfilter", name, {"Centralisation (our control)"}) for name in (
        "table1", "table2", "table3", "table4", "table6", "table7", "table8", "table9", "table10", "fig4a", "fig4b",
        "fig4c", "fig8", "table1-tuned", "table9-text")),
    ("specgradfilter", "table5", {"Centralisation (our control)", "SGD, centralisation (our control)"}),
]  # fmt: skip


@pytest.mark.parametrize("id, name, labels", CONTROLS)
def test_controls_stand_in_every_setting_of_their_table_and_are_marked(id, name, labels):
    """At laptop and paper scale, with all seeds; no printed table has one."""
    both = labels if isinstance(labels, dict) else dict.fromkeys(("laptop", "paper"), labels)
    for scale, labels in both.items():
        cells = papers(id).grid(name, scale).cells
        assert {c.label for c in cells if is_control(c.label)} == labels
        own = [c for c in cells if c.label in labels]
        assert {c.seed for c in own} == {c.seed for c in cells}
        assert {c.tags["dataset"] for c in own} == {c.tags["dataset"] for c in cells}
    known = {p.stem for p in (papers(id).folder / "tables").glob("*.csv")}
    printed = set(papers(id).reported(name)["method"]) if name in known else set()
    assert not any(map(is_control, printed))


def test_the_length_is_matched_and_the_decay_is_the_other():
    """The control differs from FedSAM by its length alone; the two FedSAM-D by their decay alone."""
    cells = {c.label: c for c in papers("fedfft").grid("table1", "paper", [0]).only({"alpha": [0.1]}).cells}
    one, other = cells["FedSAM-D"], cells["FedSAM-D, decay 0.9995 (our control)"]
    assert (one.setting.lr_decay, other.setting.lr_decay) == (0.998, 0.9995)
    assert one.method == other.method and one.setting.but(lr_decay=0.9995) == other.setting
    sam, ours, matched = (cells[n].method for n in ("FedSAM", "FedFFT", "FedSAM, FedFFT's length (our control)"))
    assert matched.parts[0] == sam.parts[0] and matched.parts[1].filter.filter == ours.parts[1].filter


def test_controls_are_no_rivals_in_a_plan():
    """A claim to be first needs the runs of the table's methods, and none of a control."""
    first = Claim.of("specgradfilter", {"id": "x", "section": "table1", "says": "s", "kind": "first",
                                        "left": "SpecGradFilter (FedAvg+FFT)"})  # fmt: skip
    made = papers("specgradfilter").grid("table1", "paper")
    labels = {made.cells[i].label for i in needed(first, made, {"accuracy": {}})}
    assert len(labels) == 10 and not any(map(is_control, labels))
