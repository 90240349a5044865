"""Grids on several processes: the same runs as one after another, what is finished is left alone."""

import pytest

from fednb.cli import grids
from fednb.cli.commands import main
from fednb.runs import together
from fednb.runs.grid import BadGrid
from fednb.study.columns import WIDTH
from fednb.study.jobs import JobsFailed, jobs_of, run_all
from fednb.study.paper import papers
from fednb.study.selection import Selection


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "many"))
    return tmp_path


def test_two_at_a_time_give_the_bits_of_one_after_another(store, monkeypatch):
    """A finished run is no job; the others are made, and the same numbers come out of one process."""
    jobs = jobs_of("fedfft", "table8", "smoke")
    assert [job.cell for job in jobs] == list(range(len(jobs)))
    some = jobs[:3]
    assert {(job.cell, status) for job, status in run_all(some, 2, "cpu")} == {(i, "finished") for i in range(3)}
    assert [job.cell for job in jobs_of("fedfft", "table8", "smoke")] == [job.cell for job in jobs[3:]]
    several = [r.weights_sha256 for r in papers("fedfft").grid("table8").runs()[:3]]
    monkeypatch.setenv("FEDNB_STORE", str(store / "one"))
    grid = papers("fedfft").grid("table8")
    alone = type(grid)(grid.name, grid.scale, grid.cells[:3])
    assert [r.weights_sha256 for r in alone.run(device="cpu").runs] == several


def test_status_from_the_command_line(capsys):
    assert main(["grid", "status", "fedfft", "table3", "table8", "--seeds", "3"]) == 0
    said = capsys.readouterr().out
    assert said.count("absent") == 16 and "None (FedSAM)" in said


def test_a_table_for_another_command_has_a_run_in_a_line(capsys):
    """Settings, a long name, the status and the key, which a terminal of 100 columns would wrap."""
    assert main(["grid", "status", "fedfft", "table1", "--scale", "paper", "--seeds", "3"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    keys = papers("fedfft").grid("table1", "paper", seeds=[3]).status()["key"]
    assert max(map(len, lines)) > WIDTH
    assert [line for key, line in zip(keys, lines, strict=True) if key in line and "absent" in line] == lines


def test_bad_asks_are_refused(capsys):
    assert main(["grid", "run", "fedfft", "table3", "--jobs", "0"]) == 2
    assert main(["grid", "run", "fedfft", "table3", "--together", "0"]) == 2
    assert main(["grid", "run", "fedfft", "tabel3"]) == 2
    said = capsys.readouterr().err
    assert "jobs = 0: must be at least 1" in said and "together = 0: must be at least 1" in said
    assert "no grid of fedfft 'tabel3'; closest: table3" in said


def test_failed_runs_are_told_at_the_end_and_exit_1(monkeypatch, capsys):
    """The table of all runs comes first; then a line for each reason, however many failed for it."""
    one, two, three, four, *_ = jobs_of("fedfft", "table8", "smoke")

    def run_all(jobs, processes, device):
        yield one, "finished"
        missing = "DataNotFound: 'fashion-mnist' is not here:\n  no network"
        raise JobsFailed({two: "DamagedFile: state: other bytes than were written", three: missing, four: missing})

    monkeypatch.setattr(grids, "run_all", run_all)
    assert main(["grid", "run", "fedfft", "table8", "--jobs", "2"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("table8 0: finished\n") and said.out.count("absent") == 4
    assert said.err.splitlines() == [
        "fednb: table8 1: DamagedFile: state: other bytes than were written",
        "fednb: table8 2 and 1 more: DataNotFound: 'fashion-mnist' is not here: no network",
    ]


@pytest.mark.parametrize("typed, wanted", [([], 1), (["--together", "2"], 2)])
def test_as_many_runs_train_at_the_same_time_as_were_asked_for(typed, wanted, monkeypatch):
    """On a CPU one after the other, unless said otherwise; what is begun and not ended is counted."""
    make, working, most = together._Work.make, [], []

    def counted(self, at, beside):
        working.append(at)
        most.append(len(working))
        try:
            return make(self, at, beside)
        finally:
            working.remove(at)

    monkeypatch.setattr(together._Work, "make", counted)
    asked = ["grid", "run", "fedfft", "table8", "--methods", "fedsam-d,fedfft-d", "--device", "cpu"]
    assert main([*asked, *typed]) == 0
    assert max(most) == wanted and len(most) == 2


def test_a_methods_other_name_counts_where_no_run_is_called_so():
    """FedSAM-D is FedSpeed: a label of Table 1, where our control is another row of it, and none of Table 8."""

    def labels(name, grid, scale="smoke"):
        cells = Selection(seeds=[0], methods=(name,)).grid(papers("fedfft"), grid, scale).cells
        return list(dict.fromkeys(cell.label for cell in cells))

    assert labels("fedsam-d", "table8") == ["FedDyn + SAM"]
    assert labels("FedSAM-D", "table1", "paper") == ["FedSAM-D"]
    assert labels("FedSpeed", "table1", "paper") == ["FedSAM-D", "FedSAM-D, decay 0.9995 (our control)"]
    for name in ("fedspid", "fedsam + highpass(nonsense=1)"):
        with pytest.raises(BadGrid, match="no method"):
            Selection(methods=(name,)).check([papers("fedfft").grid("table8")])
