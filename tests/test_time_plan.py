"""fednb plan: which runs a claim needs, what they cost, and the order that decides the most headline claims soonest."""

import json
import shutil
import tomllib
from math import inf
from pathlib import Path

import pandas as pd
import pytest
import torch

import fednb as fn
from fednb.cli.commands import main
from fednb.runs.grid import BadGrid, Grid
from fednb.study import jobs
from fednb.study.claims import BadClaim, Claim
from fednb.study.paper import Paper
from fednb.study.plan import Need, Task, needed, ordered, planned
from fednb.study.selection import Selection
from fednb.study.verify import verify, verify_within

PAPER = """
title = "Made"
[smoke]
samples = 100
clients = 4
rounds = 2
epochs = 1
[sections.table1]
title = "Table 1"
notebook = "made/01_table1"
[sections.fig2]
title = "Figure 2"
notebook = "made/01_table1"
"""
CLAIMS = """
[[claim]]
id = "sam"
section = "table1"
weight = "headline"
says = "FedSAM beats FedAvg"
kind = "above"
left = "FedSAM"
right = "Base"
[[claim]]
id = "prox"
section = "table1"
says = "FedProx beats FedAvg"
kind = "above"
left = "FedProx"
right = "Base"
[[claim]]
id = "again"
section = "fig2"
weight = "detail"
says = "FedSAM beats FedAvg, seen again"
kind = "above"
left = "FedSAM"
right = "FedAvg"
"""


def write_paper(folder: Path, claims: str = CLAIMS) -> Paper:
    (folder / "grids").mkdir(parents=True)
    (folder / "paper.toml").write_text(PAPER)
    (folder / "claims.toml").write_text(claims)
    (folder / "grids" / "table1.toml").write_text(
        'methods = [{ name = "FedAvg", label = "Base" }, "FedSAM", "FedProx"]\n'
    )
    (folder / "grids" / "fig2.toml").write_text('methods = ["FedAvg", "FedSAM"]\n')
    return Paper(folder)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("FEDNB_PAPERS", str(tmp_path / "papers"))
    (tmp_path / "papers").mkdir()
    return tmp_path


@pytest.fixture
def paper(store):
    return write_paper(store / "papers" / "made")


def claim(id: str, weight: str = "table", section: str = "table1", **fields) -> Claim:
    return Claim.of("made", {"id": id, "section": section, "says": "so", "kind": "above", "left": "A", "right": "B",
                             "weight": weight} | fields)  # fmt: skip


def task(key: str, seconds: float, start: float = 0.0, kind: str = "one", measured: bool = True) -> Task:
    return Task(key, f"run {key}", None, (kind,), seconds, start, measured, f"source of {key}")


def plan_of(claims: list[tuple[Claim, str]], seconds: dict[str, float], limit: float = inf, **how):
    """The plan for claims, each with the letters of its runs, that take so many seconds."""
    needs = [Need(c, "made", frozenset(runs)) for c, runs in claims]
    return ordered("made GPU", needs, {key: task(key, s, **how) for key, s in seconds.items()}, limit)


def decided(plan, within: bool = True) -> list[list[str]]:
    return [[c.id for c in step.claims] for step in plan.steps if step.within == within]


# the order


def test_the_most_headline_claims_per_second_come_first():
    """d1 needs nothing; h3 and h4 share e, 2 in 50 s; then h1, 1 in 30 s, which brings t1; then h2, 1 in 40 s; then t2.

    A table claim that costs 1 s waits for headline claims that cost more.
    """
    plan = plan_of(
        [
            (claim("t2"), "f"), (claim("h1", "headline"), "ab"), (claim("h2", "headline"), "c"), (claim("t1"), "a"),
            (claim("h3", "headline"), "e"), (claim("h4", "headline"), "e"), (claim("d1", "detail"), ""),
        ],
        {"a": 10, "b": 20, "c": 40, "e": 50, "f": 1},
    )  # fmt: skip
    assert decided(plan) == [["d1"], ["h3", "h4"], ["h1", "t1"], ["h2"], ["t2"]]
    assert [task.key for task in plan.tasks] == ["e", "a", "b", "c", "f"]
    assert [step.until for step in plan.steps] == [0, 50, 80, 120, 121]
    assert [(step.done, len(step.tasks)) for step in plan.steps] == [(0, 0), (0, 1), (0, 2), (0, 1), (0, 1)]


def test_what_is_there_costs_nothing_and_is_counted():
    """a is finished: h1 costs 5 s and comes before h2 with 6 s; claims of other sections stand in rows of their own."""
    plan = plan_of(
        [(claim("h2", "headline"), "c"), (claim("h1", "headline"), "ab"), (claim("x", section="fig2"), "b")],
        {"b": 5, "c": 6},
    )
    assert decided(plan) == [["h1"], ["x"], ["h2"]]
    assert [(s.section, s.done, len(s.tasks), s.seconds) for s in plan.steps] == [
        ("table1", 1, 1, 5), ("fig2", 1, 0, 0.0), ("table1", 0, 1, 6),
    ]  # fmt: skip


def test_a_claim_that_does_not_fit_makes_room_for_others():
    """In 45 s: h1 (30 s) fits, then neither h2 (40 s) nor t1 (20 s), but t2 (12 s); the others come later."""
    claims = [(claim("h2", "headline"), "c"), (claim("h1", "headline"), "ab"), (claim("t1"), "d"), (claim("t2"), "f")]
    plan = plan_of(claims, {"a": 10, "b": 20, "c": 40, "d": 20, "f": 12}, limit=45)
    assert decided(plan) == [["h1"], ["t2"]] and decided(plan, within=False) == [["h2"], ["t1"]]
    assert [task.key for task in plan.tasks] == ["a", "b", "f", "c", "d"]
    said = str(plan)
    assert "stays undecided after 45 s: 1 headline, 1 table; 60 s more, next made table1 with 40 s" in said
    assert "h1 (headline)" in said and "h2 (headline)" not in said
    assert list(plan.table()["in_time"]) == [True, True, False, False]


def test_a_kind_of_run_starts_once():
    """Two runs of 10 s behind one start of 7 s take 27 s, and a third run later 10 s more."""
    plan = plan_of([(claim("h", "headline"), "ab"), (claim("t"), "c")], {"a": 10, "b": 10, "c": 10}, start=7.0)
    assert [step.seconds for step in plan.steps] == [27, 10]


def test_the_plan_says_what_is_estimated_and_what_cannot_be():
    needs = [Need(claim("a"), "made", frozenset("ab")), Need(claim("n", "headline"), "made", never="no cifar10 here")]
    plan = ordered("made GPU", needs, {"a": task("a", 60), "b": task("b", 60, measured=False)})
    assert plan.table()["how"].tolist() == ["1 measured, 1 estimated"]
    assert plan.table()[["minutes", "sum"]].to_numpy().tolist() == [[2.0, 2.0]]
    assert "on one made GPU; estimated seconds are scaled from source of b" in str(plan)
    assert str(plan).endswith("cannot be decided here, no cifar10 here: 1 headline")


def test_runs_that_came_with_a_paper_need_not_be_made(tmp_path, monkeypatch):
    """Of three runs two are kept with one paper and none with another; the plan says what brings them."""
    monkeypatch.setenv("FEDNB_PAPERS", str(tmp_path))
    for path in ("made/runs/a", "made/runs/b", "other/runs/z"):
        (tmp_path / path).mkdir(parents=True)
    said = str(plan_of([(claim("h"), "ab"), (claim("t"), "c")], {"a": 10, "b": 20, "c": 5}))
    assert f"kept, 2 of these runs: `fednb store import {tmp_path / 'made' / 'runs'}`" in said
    assert "other" not in said


# what a claim needs


GRID = Grid.of("made table1", "smoke", dict(
    methods=["FedAvg", "FedSAM", "FedProx"], seeds=[0, 1],
    vary=dict(partition=["dirichlet(alpha=0.1)", "dirichlet(alpha=0.6)"]),
))  # fmt: skip


@pytest.mark.parametrize(
    "fields, count",
    [
        (dict(left="FedSAM", right="FedAvg"), 8),  # two methods, two alphas, two seeds
        (dict(left="FedSAM", right="FedAvg", where={"alpha": 0.1}), 4),
        (dict(left="FedSAM", right="FedAvg", where={"alpha": [0.1, 0.6], "model": "any"}), 8),
        (dict(left="FedSAM", kind="first", right=(), where={"alpha": 0.1}), 6),  # of all
        (dict(left="FedSAM", kind="first", right=(), where={"method": ["FedSAM", "FedProx"]}), 8),  # of those
        (dict(left="FedSAM", kind="first", right=(), where={"method": ["FedSAM", "best of three"]}), 12),
        (dict(left="FedSAM", right="FedAvg", where={"alpha": 7}), 0),
        (dict(left="FedSAM", right="best of three"), 12),  # a name that stands for several
        (dict(left="FedSAM", right="FedAvg", measure="rounds"), 12),  # measured against others, perhaps
    ],
)
def test_the_runs_that_a_claim_needs(fields, count):
    found = needed(claim("c", **fields), GRID, ["accuracy", "to_target"])
    assert len(found) == count
    if count in (4, 8) and "kind" not in fields:
        assert {GRID.cells[i].label for i in found} == {"FedSAM", "FedAvg"}
    assert len(needed(claim("c", **fields), GRID, ["to_target"])) == 12


def test_runs_of_another_kind_of_split_do_not_decide_a_claim_about_one_kind():
    """Two cases with a beta, two with a gamma: at beta 0.1 only one of them is meant, as where a table is judged."""
    cases = [dict(beta=0.1), dict(beta=0.6), dict(gamma=3), dict(gamma=6)]
    grid = Grid.of("made table1", "smoke", dict(methods=["FedAvg", "FedSAM"], cases=cases))
    found = needed(claim("c", left="FedSAM", kind="first", right=(), where={"beta": 0.1}), grid, ["accuracy"])
    assert [grid.cells[i].tags.get("beta") for i in found] == [0.1, 0.1]


def test_a_weight_is_one_of_three():
    assert claim("c").weight == "table"
    with pytest.raises(BadClaim, match=r"weight = 'huge', must be headline \| table \| detail"):
        claim("c", "huge")


def test_every_paper_has_headlines(monkeypatch):
    monkeypatch.delenv("FEDNB_PAPERS")
    for id in fn.papers().index:
        described = tomllib.loads((fn.papers(id).folder / "claims.toml").read_text())["claim"]
        weights = pd.Series([each.get("weight", "table") for each in described]).value_counts()
        assert 4 <= weights["headline"] <= 12 and set(weights.index) == {"headline", "table", "detail"}


# a part of the grids


def test_a_part_of_a_grid(paper):
    """Labels and names in any letter case, another precision is another run, other seeds count."""
    whole = paper.grid("table1")
    part = Selection(seeds=[5], methods=("base", "FEDPROX"), precision="fp64").grid(paper, "table1", "smoke")
    assert [(c.label, c.seed, c.setting.precision) for c in part.cells] == [("Base", 5, "fp64"), ("FedProx", 5, "fp64")]
    fp64 = Selection(precision="fp64").grid(paper, "table1", "smoke")
    assert not {r.key for r in fp64.runs()} & {r.key for r in whole.runs()}
    assert [c.label for c in Selection(only={"method": ["FedSAM"]}).grid(paper, "table1", "smoke").cells] == ["FedSAM"]
    with pytest.raises(BadGrid, match="no run fits only"):
        Selection(only={"dataset": ["CIFAR-10"]}).grid(paper, "table1", "smoke")
    with pytest.raises(ValueError, match="precision = 'fp8'"):
        Selection(precision="fp8")


def test_runs_come_in_the_order_in_which_methods_are_named(paper):
    """Seeds of a method stay together; whoever names none gets the grid's order; a name said twice counts once."""

    def labels(*methods):
        return [c.label for c in Selection(methods=methods).grid(paper, "table1", "smoke").cells]

    assert labels() == ["Base", "FedSAM", "FedProx"]
    assert labels("FedProx", "base", "FedProx") == ["FedProx", "Base"]
    assert labels("FedSAM", "FedProx", "Base") == ["FedSAM", "FedProx", "Base"]


def test_jobs_of_a_part(paper):
    """They name cells of the whole grid, and their precision, so that another process finds them again."""
    found = jobs.jobs_of("made", "table1", "smoke", chosen=Selection(methods=("fedprox",), precision="fp64"))
    assert [(job.cell, job.precision) for job in found] == [(2, "fp64")]
    assert jobs.done(found[0], "cpu").setting.precision == "fp64"
    assert jobs.jobs_of("made", "table1", "smoke", chosen=Selection(methods=("fedprox",), precision="fp64")) == []
    assert len(jobs.jobs_of("made", "table1", "smoke")) == 3


# making it


def test_the_plan_of_a_paper_and_what_runs_make_of_it(paper):
    """table1's headline needs Base and FedSAM, which is what fig2 needs too: the same runs under other labels."""
    plan = planned([paper], "smoke", device="cpu")
    assert decided(plan) == [["sam"], ["again"], ["prox"]]
    assert [len(step.tasks) for step in plan.steps] == [2, 0, 1]
    assert plan.tasks[0].name == "made table1 Base, dataset digits, seed 0"
    paper.grid("fig2").run(device="cpu")
    after = planned([paper], "smoke", device="cpu")
    assert [(step.done, len(step.tasks)) for step in after.steps] == [(2, 0), (2, 0), (1, 1)]
    assert after.table()["how"].tolist()[-1] == "measured"


def test_data_that_are_not_here_are_said_before(paper, monkeypatch, tmp_path):
    (paper.folder / "paper.toml").write_text(PAPER.replace("samples = 100", 'samples = 100\ndata = "cifar10"'))
    monkeypatch.setenv("FEDNB_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("FEDNB_OFFLINE", "1")
    plan = planned([paper], "smoke", device="cpu")
    assert not plan.steps and "cannot be decided here, cifar10 not here: 1 headline, 1 table, 1 detail" in str(plan)
    monkeypatch.setenv("FEDNB_OFFLINE", "")  # it could be downloaded
    assert len(planned([paper], "smoke", device="cpu").steps) == 3


def ending_after(monkeypatch, count: int) -> list[list[str]]:
    """Let the time end after so many runs; gives the names of the methods that were wanted, call by call."""
    asked, real = [], jobs.together.run_all

    def run_all(wanted, **how):
        asked.append([each.method.name for each in wanted])
        yield from real(wanted[:count], **how)

    monkeypatch.setattr(jobs.together, "run_all", run_all)
    return asked


def test_verify_in_a_time_goes_on_where_it_stopped(paper, monkeypatch):
    """Time for two runs: the headline is judged, and fig2 with it; the next time only FedProx is wanted."""
    asked, ran = ending_after(monkeypatch, 2), "ran (smoke scale decides nothing)"
    found = verify_within(60, paper, device="cpu")
    assert asked == [["FedAvg", "FedSAM", "FedProx"]]
    assert found["verdict"].tolist() == [ran, "not run", ran]
    assert found.loc["prox", "ours"] == "1 of 2 runs are missing" and set(found["failed"]) == {""}
    found = verify_within(60, paper, device="cpu")
    assert asked[1] == ["FedProx"] and found.loc["prox", "verdict"].startswith("ran")
    assert found.drop(columns="scale").equals(verify(paper, device="cpu").drop(columns="scale"))


def test_a_run_that_fails_is_told_with_its_claims(paper, capsys):
    """One claim lacks its run, which is damaged, and says why; the others are judged without it; exit status 1."""
    (broken,) = Selection(methods=("FedProx",)).grid(paper, "table1", "smoke").runs()
    broken.entry.folder.mkdir(parents=True)
    (broken.entry.folder / "run.json").write_text("{")
    assert main(["verify", "made", "--for", "60s", "--device", "cpu"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("fednb: made table1: 1 of 2 runs are missing: ") and str(broken.entry.folder) in said.err
    assert said.out.count("ran (smoke") == 2 and "made table1 FedProx, dataset digits, seed 0: failed, " in said.out


def test_no_time_is_no_run(paper):
    found = verify_within(0.0, paper, device="cpu")
    assert set(found["verdict"]) == {"not run"} and "2 of 2 runs are missing" in set(found["ours"])


def test_paper_scale_in_a_time_needs_a_gpu(paper, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["verify", "made", "--for", "1m", "--scale", "paper"]) == 2
    assert "3 runs are missing at paper scale and this machine has no GPU" in capsys.readouterr().err


# the command line


def test_the_plan_as_a_command(paper, store, capsys):
    assert main(["plan", "made", "--for", "1h30m", "--device", "cpu", "--csv", str(store / "plan.csv")]) == 0
    said = capsys.readouterr().out
    assert "sam (headline)" in said and "nothing stays undecided" in said and "CPU" in said
    table = pd.read_csv(store / "plan.csv")
    assert table["missing"].tolist() == [2, 0, 1] and table["in_time"].all()
    assert not (store / "store" / "runs").exists()  # a plan runs nothing


def test_several_papers_and_parts_of_them(paper, store, capsys):
    """Papers one after another; only FedSAM's claims fit, the other says so; the selection is that of notebooks."""
    shutil.copytree(paper.folder, store / "papers" / "other")
    csv = store / "out.csv"
    assert main(["verify", "made", "other", "made", "--methods", "base,fedsam", "--seeds", "3", "--csv", str(csv)]) == 0
    table = pd.read_csv(csv)
    assert table["paper_id"].tolist() == ["made"] * 3 + ["other"] * 3
    assert table["n"].tolist() == [1, 0, 0] * 2  # fig2 has no Base, and without FedAvg it decides nothing
    assert {r["seed"] for r in map(json.loads, (p.read_text() for p in store.glob("store/runs/*/run.json")))} == {3}
    capsys.readouterr()
    assert main(["verify", "made", "--only", "dataset=CIFAR-10"]) == 2
    assert main(["verify", "made", "--only", "alpha=0.1"]) == 2
    assert main(["plan", "made", "--methods", "FedSM"]) == 2
    assert main(["verify", "made", "other", "--section", "table1"]) == 2
    said = capsys.readouterr().err
    assert "no run fits only = {'dataset': ['CIFAR-10']}" in said and "no run has a 'alpha'" in said
    assert (
        "no method 'FedSM' in what was asked for; closest: FedSAM" in said and "--section belongs to one paper" in said
    )


def test_a_grid_in_this_process_tells_each_run(paper, capsys):
    """One line for each run in a pipe, with what is left; then the table; a second time there is nothing to do."""
    assert main(["grid", "run", "made", "table1", "--device", "cpu", "--precision", "fp64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1 of 3 made table1 Base, dataset digits, seed 0: finished, accuracy ")
    assert lines[0].endswith(" left") and not lines[2].endswith(" left")
    assert sum("finished" in line for line in lines[3:]) == 3
    assert main(["grid", "run", "made", "table1", "--device", "cpu", "--precision", "bf16"]) == 2
    assert "is for a GPU" in capsys.readouterr().err
    assert main(["grid", "run", "made", "table1", "--device", "cpu", "--precision", "fp64"]) == 0
    assert " of 3 " not in capsys.readouterr().out


class Picture:
    """A bar that remembers its words."""

    def __init__(self):
        self.total, self.n, self.left, self.said = 6, 0, None, []

    def update(self, count=1, before=False):
        self.n += count

    def expect(self, total):
        self.total = total

    def say(self, words):
        self.said.append(words)


def test_the_progress_of_a_table(paper):
    """Three runs of two rounds: the first diverges after one, so five rounds are all there is to do."""
    wanted = [task.wanted for task in planned([paper], "smoke", device="cpu").tasks]
    bar = Picture()
    table = jobs.Progress(bar, wanted)
    for i, t in ((0, 0), (1, 0)):
        table.round(i, {"round": t})
    table.ended(0)
    assert bar.said[-1] == "runs: 1 done, 1 running, 1 missing" and (bar.n, bar.total) == (2, 5)
    for t in (1, 0):  # told again, as a run that is resumed does
        table.round(1, {"round": t})
    assert bar.n == 3
