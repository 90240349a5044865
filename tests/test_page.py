"""The folder of a page, what it shows without a GPU, ours beside the paper's, and grids before anything is trained."""

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from math import isnan, nan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from fednb.algorithms.catalogue import UnknownMethod
from fednb.base.files import Contents, DamagedFile
from fednb.engines.setting import BadSetting, Setting
from fednb.runs.grid import BadGrid, Grid, NeedsGpu, Results
from fednb.study.claims import Claim
from fednb.study.folders import page_folder, read_runs, read_table
from fednb.study.measured import precisions, read_measured
from fednb.study.measurements.registry import UnknownEvidence
from fednb.study.page import (
    NoStoredTable,
    Page,
    StoredResults,
    as_text,
    compare,
    gains,
    provenance,
)
from fednb.study.paper import papers, shelf
from fednb.study.protocol import protocol_differences


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.delenv("FEDNB_PAGE", raising=False)
    return tmp_path


def test_a_page_keeps_figures_and_tables_in_its_folder(store):
    page, figure, table = Page("made/01_x", "smoke"), Figure(figsize=(4, 3)), pd.DataFrame({"a": [1, 2]})
    figure.subplots().plot([1, 2])
    assert page.keep("fig", figure) is figure and page.keep("tab", table) is table
    assert page.folder == store / "notebooks" / "made/01_x" / "smoke" == page_folder("made/01_x", "smoke")
    assert sorted(p.name for p in page.folder.iterdir()) == ["contents.json", "fig.png", "tab.csv", "tab.txt"]
    with Image.open(page.folder / "fig.png") as kept:
        assert (kept.format, kept.mode, kept.size) == ("PNG", "P", (600, 450))
    assert pd.read_csv(page.folder / "tab.csv", index_col=0).equals(table)
    assert (page.folder / "tab.txt").read_text().split() == ["a", "0", "1", "1", "2"]


def test_a_kept_figure_looks_as_it_was_drawn(store):
    """Few colours, but those that it has."""
    page, figure, whole = Page("made/01_x", "smoke"), Figure(figsize=(4, 3)), io.BytesIO()
    axes = figure.subplots(1, 2)
    axes[0].imshow([[0, 1, 2], [3, 4, 5]], cmap="viridis")
    axes[1].plot([1, 3, 2], color="#c44e52")
    page.keep("fig", figure)
    figure.savefig(whole, dpi=150, format="png")
    drawn, kept = (np.asarray(Image.open(each).convert("RGB"), int) for each in (whole, page.folder / "fig.png"))
    assert abs(kept - drawn).mean() < 0.5 and (abs(kept - drawn) > 16).mean() < 0.005  # some at the edges of letters
    assert (page.folder / "fig.png").stat().st_size < len(whole.getvalue()) / 2


def test_shades_keep_more_colours_than_lines(store):
    """Lines, dots and ranges do with 64; a surface, a map and its bar of colours have up to 256."""
    page, x = Page("made/01_x", "smoke"), np.linspace(0, 1, 40)
    lines, surface, cells = (Figure(figsize=(4, 3)) for _ in range(3))
    (ax,) = lines.subplots(1, 1, squeeze=False).flat
    ax.plot(x, x**2)
    ax.fill_between(x, x, x**2, alpha=0.2)
    ax.scatter(x, 1 - x)
    height = np.outer(x, np.cos(3 * x))
    surface.add_subplot(projection="3d").plot_surface(*np.meshgrid(x, x), height, cmap="cividis")
    cells.subplots().pcolormesh(height, cmap="cividis")
    for name, figure, most in (("lines", lines, 64), ("surface", surface, 256), ("cells", cells, 256)):
        page.keep(name, figure)
        with Image.open(page.folder / f"{name}.png") as kept:
            assert most / 4 < len(kept.getcolors()) <= most


def test_a_picture_without_axes_keeps_its_shades(store):
    class Own:
        """What a page asks of a figure, and no more."""

        def savefig(self, file, **how):
            Image.linear_gradient("L").save(file, format=how["format"])

        def get_figwidth(self):
            return 4

        def supxlabel(self, said, **how):
            pass

    page = Page("made/01_x", "smoke")
    page.keep("own", Own())
    with Image.open(page.folder / "own.png") as own:
        assert len(own.getcolors()) > 64


def test_a_page_goes_where_the_one_who_executes_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_PAGE", str(tmp_path / "there"))
    Page("made/01_x", "smoke").keep("tab", pd.DataFrame({"a": [1]}))
    assert (tmp_path / "there" / "tab.csv").exists() and not (tmp_path / "notebooks").exists()


def test_captions_name_seeds_device_and_runs():
    """Eight runs of two seeds: six keys by their first eight letters, and two more."""
    abouts = [{"device_name": "made CPU", "seed": i % 2} for i in range(8)]
    runs = [SimpleNamespace(key=f"{i}" * 16, about=about) for i, about in enumerate(abouts)]
    assert provenance(runs).startswith("n = 2 seeds, made CPU, runs 00000000, 11111111, ")
    assert provenance(runs).endswith("55555555 and 2 more") and provenance([]) == ""
    assert provenance(runs[:1]) == "n = 1 seed, made CPU, runs 00000000"


def test_captions_do_not_give_all_methods_the_seeds_of_one():
    """Three seeds of one method and two of the other: both numbers stand there."""
    made = [("FedAvg", 0), ("FedAvg", 1), ("FedAvg", 2), ("FedDyn", 1), ("FedDyn", 2)]
    abouts = [{"device_name": "made CPU", "method": method, "seed": seed} for method, seed in made]
    runs = [SimpleNamespace(key=f"{i}" * 16, about=about) for i, about in enumerate(abouts)]
    assert provenance(runs).startswith("n = 2 to 3 seeds, made CPU, runs ")
    assert provenance(runs[1:]).startswith("n = 2 seeds, ")


def test_captions_count_seeds_of_runs_whose_versions_say_more_or_less():
    """A field that a later version added splits nothing; another rate does."""
    settings = [{"lr": 0.1}, {"lr": 0.1, "held_out": 0.0}, {"lr": 0.1}, {"lr": 0.2}]
    abouts = [{"device_name": "made CPU", "seed": i % 3, "setting": each} for i, each in enumerate(settings)]
    runs = [SimpleNamespace(key=f"{i}" * 16, about=about) for i, about in enumerate(abouts)]
    assert provenance(runs[:3]).startswith("n = 3 seeds, ") and provenance(runs).startswith("n = 1 to 3 seeds, ")


def test_captions_name_every_precision():
    """Two seeds in bf16 and one in fp32: numbers of different precisions are never shown as one."""
    settings = [{"precision": each} for each in ("bf16", "bf16", "fp32")]
    abouts = [{"device_name": "made GPU", "seed": i, "setting": setting} for i, setting in enumerate(settings)]
    runs = [SimpleNamespace(key=f"{i}" * 16, about=about) for i, about in enumerate(abouts)]
    assert provenance(runs).startswith("n = 3 seeds, bf16, fp32, made GPU, runs ")
    assert provenance(runs[:2]).startswith("n = 2 seeds, bf16, made GPU, runs ")


def test_wide_tables_become_lists():
    assert as_text(pd.DataFrame({"says": ["word " * 60]})).startswith("index: 0\nsays: word word")
    wide = as_text(pd.DataFrame({f"a column {i}": [1.23456] for i in range(11)}))
    assert max(map(len, wide.splitlines())) <= 100 and wide.count("1.235") == 11


def test_a_grid_is_a_product():
    """Two partitions x three rates x two methods x two seeds: 24 cells, each once, tagged by what varies."""
    vary = {"partition": ["dirichlet(alpha=0.6)", "iid"], "lr": [0.1, 0.2, 0.3]}
    grid = Grid.of("g", "smoke", dict(methods=["FedAvg", {"name": "FedSAM", "rho": 0.2}], vary=vary, seeds=[3, 4]))
    assert len(grid.cells) == 24 == len({(str(c.setting), c.method, c.seed) for c in grid.cells})
    assert {c.tags["partition"] for c in grid.cells} == {"dirichlet(alpha=0.6, minimum=10)", "iid"}
    assert all(c.tags["lr"] == c.setting.lr and c.setting.partition.name in ("dirichlet", "iid") for c in grid.cells)
    assert {c.method.parameters().get("rho") for c in grid.cells} == {None, 0.2}


def test_seeds_given_go_before_seeds_described():
    def seeds(*given, **described):
        return [c.seed for c in Grid.of("g", "smoke", {"methods": ["FedAvg"], **described}, *given).cells]

    assert (seeds(), seeds(seeds=[5, 6]), seeds([9], seeds=[5, 6])) == ([0], [5, 6], [9])


@pytest.mark.parametrize(
    "described, error, said",
    [
        (dict(methods=["FedAvg"], method="x"), BadGrid, "grid g, smoke: unknown entry 'method'"),
        (dict(methods=["FedAgv"]), UnknownMethod, "no method 'FedAgv'; closest: FedAvg"),
        (dict(methods=["FedAvg"], vary={"rate": [1]}), BadSetting, "no setting 'rate'"),
        (dict(methods=["FedAvg"], setting={"lr": -1}), BadSetting, "lr = -1: must be above 0"),
        (dict(methods=["FedAvg"], probe={"what": ["loss"]}), ValueError, "probe 'loss': must be one of gradient, "),
    ],
)
def test_bad_grids_are_refused(described, error, said):
    with pytest.raises(error, match=said):
        Grid.of("g", "smoke", described)


def test_paper_scale_without_a_gpu_is_refused_before_anything_is_written(store, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    grid = Grid.of("g", "paper", dict(methods=["FedAvg"], setting={"rounds": 800}, seeds=[0, 1]))
    with pytest.raises(NeedsGpu, match=r"g at paper scale is 2 runs of 800 rounds.*scale='laptop', or device='cpu'"):
        grid.run()
    assert list(store.iterdir()) == []
    assert list(grid.status()["status"]) == ["absent"] * 2 and list(grid.status()["rounds"]) == ["0/800"] * 2


def test_the_finished_part_of_a_grid_is_what_the_store_has():
    """One of two seeds is run; a page of what is finished has that one alone, and can be asked for it."""
    setting = dict(samples=60, clients=2, participation=1.0, rounds=1, epochs=1, batch=30)
    grid = Grid.of("g", "smoke", dict(methods=["FedAvg"], setting=setting, seeds=[0, 1]))
    assert grid.finished().cells == ()
    first = replace(grid, cells=grid.cells[:1])
    first.run(device="cpu", engine="loop")
    assert grid.finished() == first
    nothing = papers("fedfft").page("table1", only="finished")
    assert nothing.grid.cells == ()
    with pytest.raises(BadGrid, match="fedfft table1 at smoke scale: nothing of it is run yet"):
        nothing.run("table1")
    with pytest.raises(BadGrid, match="only = 'done': must be 'finished', or a table such as"):
        papers("fedfft").page("table1", only="done")


def test_a_page_without_runs_measures_on_the_data_sets_that_are_asked_for():
    """One of three, whose images are not at hand; at other scales and in other sections all is as it was."""
    whole, part = (papers("fedfft").page("fig5", scale="paper", only=o) for o in (None, {"dataset": ["CIFAR-10"]}))
    how = whole.evidence["fig5"]["class_skew"]
    assert [case["dataset"] for case in how["paper"]] == ["CIFAR-10", "CIFAR-100", "Tiny-ImageNet"]
    assert part.evidence["fig5"]["class_skew"] == how | {"paper": how["paper"][:1]}
    assert papers("fedfft").page("fig5", scale="paper", only={"alpha": [0.1]}).evidence == whole.evidence
    with pytest.raises(BadGrid, match=r"no data set is called.*CIFAR-1'.*there are CIFAR-10, CIFAR-100, Tiny-ImageNet"):
        papers("fedfft").page("fig5", scale="paper", only={"dataset": ["CIFAR-1"]})


def test_beside_sections_with_runs_one_without_may_lack_the_data_set_that_is_asked_for():
    """Figure 7 of FedFSA has CIFAR-100 alone, Table 2 Tiny-ImageNet too; the composition matrix names no data sets."""
    both = papers("fedfsa").page("table2b", "fig7", scale="paper", only={"dataset": ["Tiny-ImageNet"]})
    assert both.evidence["fig7"] == papers("fedfsa").evidence("fig7")
    assert {cell.tags["dataset"] for cell in both.grid.cells} == {"Tiny-ImageNet"}
    matrix = papers("across").page("matrix", "trained", scale="laptop", only={"dataset": ["Fashion-MNIST"]})
    assert matrix.evidence["matrix"] == papers("across").evidence("matrix")


def test_results_without_a_probe_say_so():
    with pytest.raises(BadGrid, match="grid g keeps nothing from its rounds; give it a probe"):
        _ = Results(Grid.of("g", "smoke", dict(methods=["FedAvg"])), ()).probe


def test_cases_have_tags_and_settings_of_their_own():
    """Two cases, one with other methods; a label stands for the method's name, its own settings for its cells alone."""
    described = dict(
        setting={"rounds": 4},
        methods=["FedAvg", {"name": "FedDyn", "label": "Ours", "setting": {"lr_decay": 0.5}}],
        cases=[{"dataset": "A"}, {"dataset": "B", "setting": {"rounds": 2}, "methods": ["FedSAM"]}],
    )
    cells = Grid.of("g", "smoke", described).cells
    assert [(c.tags["dataset"], c.label, c.setting.rounds) for c in cells] == [
        ("A", "FedAvg", 4), ("A", "Ours", 4), ("B", "FedSAM", 2),
    ]  # fmt: skip
    assert [c.setting.lr_decay for c in cells] == [0.998, 0.5, 0.998]
    assert cells[1].method.name == "FedDyn"


def test_a_sweep_is_for_methods_that_have_the_parameter():
    """FedAvg has no radius and runs once; a radius that is given stays."""
    methods = ["FedAvg", "FedSAM", {"name": "FedSAM", "label": "fixed", "rho": 0.3}]
    cells = Grid.of("g", "smoke", dict(methods=methods, sweep={"rho": [0.1, 0.2]})).cells
    seen = [(c.label, c.tags.get("rho"), c.method.parameters().get("rho")) for c in cells]
    assert seen == [("FedAvg", None, None), ("FedSAM", 0.1, 0.1), ("FedSAM", 0.2, 0.2), ("fixed", None, 0.3)]


def rows(seen, **more):
    """Tidy rows from {(method, alpha): [a value per seed]}."""
    return pd.DataFrame(
        {"alpha": alpha, "method": method, "seed": seed, "measure": "accuracy", "value": value, **more}
        for (method, alpha), values in seen.items()
        for seed, value in enumerate(values)
    )


def test_compare_puts_ours_beside_the_papers():
    """Ours 70 and 74: mean 72, std 2√2, 2 above the paper's 70. What one side lacks stays empty; the paper's order."""
    ours = rows({("FedSAM", 0.1): [70.0, 74.0], ("New", 0.1): [60.0]})
    printed = rows({("FedAvg", 0.1): [65.0], ("FedSAM", 0.1): [70.0]}, note="so", dataset="CIFAR-10")
    table = compare(ours, printed)
    assert list(table.index) == [(0.1, "FedAvg"), (0.1, "FedSAM"), (0.1, "New")]
    assert table.loc[(0.1, "FedSAM")].tolist() == pytest.approx([70, 72, 8**0.5, 2, 2])
    assert isnan(table.loc[(0.1, "FedAvg"), "ours"]) and isnan(table.loc[(0.1, "New"), "paper"])


def test_compare_keeps_settings_that_lack_a_value():
    """SpecGradFilter's Table V: centralised training has no alpha, in print as here."""
    ours = rows({("SGD", nan): [90.0], ("FedAvg", 0.1): [50.0], ("New", nan): [1.0]})
    table = compare(ours, rows({("SGD", nan): [92.0], ("FedAvg", 0.1): [57.0]}))
    assert table["paper"].tolist()[:2] == [92, 57] and table["ours"].tolist() == [90, 50, 1]
    assert table.index.get_level_values("method").tolist() == ["SGD", "FedAvg", "New"]


def test_gains_are_differences_with_the_same_seed_in_the_same_setting():
    """FedSAM has 70 and 74, FedFFT 71 and 78: +1 and +4, not the difference to a mean. No base, no gain."""
    ours = rows({("FedSAM", 0.1): [70.0, 74.0], ("FedFFT", 0.1): [71.0, 78.0], ("FedFFT", 0.6): [90.0]})
    found = gains(ours, {"FedFFT": "FedSAM"})
    assert found[["alpha", "method", "seed", "measure", "value"]].to_numpy().tolist() == [
        [0.1, "FedFFT", 0, "gain", 1.0], [0.1, "FedFFT", 1, "gain", 4.0],
    ]  # fmt: skip


def test_a_base_beside_a_sweep_counts_for_all_of_it():
    swept = rows({("FedFFT", 0.1): [71.0], ("FedFFT", 0.6): [73.0], ("FedSAM", nan): [70.0]})
    assert gains(swept, {"FedFFT": "FedSAM"})[["alpha", "value"]].to_numpy().tolist() == [[0.1, 1.0], [0.6, 3.0]]


ABOUT = {"k" * 16: {"seed": 3, "device_name": "made GPU"}}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A page at paper scale on a machine without a GPU, whose results were kept from another."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = tmp_path / "results" / "01_x_paper"
    folder.mkdir(parents=True)
    (folder / "runs.json").write_text(json.dumps(ABOUT))
    rows({("FedAvg", 0.1): [50.0]}).to_csv(folder / "table1_accuracy.csv")
    grid = Grid.of("made table1", "paper", dict(methods=["FedAvg"]))
    return Page("made/01_x", "paper", {"table1": grid}, (), folder)


def test_without_a_gpu_a_page_shows_what_was_kept(kept, capsys):
    """Tables come from the kept files, captions name the kept runs, and the reader is told."""
    results = kept.run()
    assert isinstance(results, StoredResults)
    assert "no GPU" in (said := capsys.readouterr().out) and "results/01_x_paper, n = 1 seed, made GPU" in said
    assert "; unchecked: it has no list of its files" in said
    assert kept.measure("accuracy", results)["value"].tolist() == [50.0]
    assert provenance(results) == "n = 1 seed, made GPU, runs kkkkkkkk"
    assert json.loads((kept.folder / "runs.json").read_text()) == ABOUT
    with pytest.raises(NoStoredTable, match=r"table1_curves\.csv was not kept in 01_x_paper"):
        kept.measure("curves", results)


def test_without_a_gpu_and_nothing_kept_a_page_says_so(kept):
    (kept.kept_folder / "runs.json").unlink()
    with pytest.raises(NeedsGpu):
        kept.run()


def test_a_page_tells_which_of_its_grids_have_something_to_show(kept, capsys):
    """Of two grids one is kept; the other is said to be missing. On a CPU that is asked for both run."""
    tuned = Grid.of("made table1-tuned", "paper", dict(methods=["FedAvg"]))
    page = replace(kept, grids=kept.grids | {"table1-tuned": tuned, "none": replace(tuned, cells=())})
    assert page.shows("table1") and capsys.readouterr().out == ""
    assert not page.shows("table1-tuned")
    assert capsys.readouterr().out == "made table1-tuned at paper scale: nothing of it is run yet.\n"
    assert page.shows("table1-tuned", device="cpu") and not page.shows("none", device="cpu")
    runs = kept.kept_folder.parent.parent / "runs"
    runs.mkdir()
    with pytest.raises(BadGrid, match=f"nothing of it is run yet; `fednb store import {runs}` brings the runs"):
        page.run("none")
    elsewhere = kept.kept_folder.parent.parent.parent / "another" / "runs"
    elsewhere.mkdir(parents=True)
    elsewhere.with_name("paper.toml").touch()
    runs.rmdir()  # as with a notebook of papers/across
    with pytest.raises(BadGrid, match=f"nothing of it is run yet; `fednb store import {elsewhere}` brings"):
        page.run("none")


def test_a_page_tells_which_runs_came_without_their_models(kept, capsys):
    """Two runs of which one is numbers alone; of what was kept, a table is there or it is not."""

    class Made(list):
        grid = SimpleNamespace(name="made table1")

    made = Made((None, SimpleNamespace(key=key, entry=SimpleNamespace(bare=key == "b"))) for key in "ab")
    assert not kept.can_measure("by_client", made)
    assert capsys.readouterr().out == "made table1: not measured, since 1 of the runs came without their models.\n"
    assert kept.can_measure("by_client", Made(made[:1])) and capsys.readouterr().out == ""
    stored = kept.run()
    capsys.readouterr()
    assert kept.can_measure("accuracy", stored) and capsys.readouterr().out == ""
    assert not kept.can_measure("by_client", stored) and "by_client was not kept" in capsys.readouterr().out


def test_unknown_evidence_is_refused(kept):
    with pytest.raises(UnknownEvidence, match="no evidence 'acuracy'; there is accuracy, "):
        kept.measure("acuracy", kept.run())


def test_a_part_of_a_grid():
    """By tag and by label; what fits nothing is refused."""
    described = dict(methods=["FedAvg", "FedSAM"], cases=[{"dataset": "A"}, {"dataset": "B"}])
    grid = Grid.of("g", "smoke", described)
    assert [c.label for c in grid.only({"dataset": ["B"]}).cells] == ["FedAvg", "FedSAM"]
    assert [c.tags["dataset"] for c in grid.only({"method": ["FedSAM"], "dataset": ["A"]}).cells] == ["A"]
    assert grid.only(None) is grid
    with pytest.raises(BadGrid, match="no run fits"):
        grid.only({"model": ["x"]})


def test_a_stand_in_is_beside_the_papers_first_data_set_and_says_so():
    """Digits for CIFAR-10, of which the paper has two: the first is beside it; two of ours are told apart as usual."""
    ours = rows({("FedSAM", 0.1): [70.0]}, dataset="digits")
    printed = pd.concat(rows({("FedSAM", 0.1): [v]}, dataset=d) for d, v in (("CIFAR-10", 60.0), ("CIFAR-100", 30.0)))
    table = compare(ours, printed)
    assert table.index.names == ["alpha", "dataset", "method"]
    assert table.loc[(0.1, "CIFAR-10", "FedSAM"), ["paper", "ours"]].tolist() == [60, 70]
    assert table[["paper on", "ours on"]].to_numpy().tolist() == [["CIFAR-10", "digits"]]
    assert "difference" not in table
    nets = compare(ours.assign(dataset="CIFAR-10", model="A"), printed.assign(model="B"))
    assert nets[["paper on", "ours on"]].iloc[0].tolist() == ["B", "A"] and "difference" not in nets
    both = pd.concat([ours, ours.assign(dataset="Fashion-MNIST")])
    assert len(compare(both, printed)) == 4 and "ours on" not in compare(both, printed)


def test_of_a_base_alone_no_gain_of_ours_is_left():
    """A grid of which only the base has been run: the paper's gain stands there without ours."""
    ours, printed = rows({("B", 0.1): [70.0, 50.0]}), rows({("A", 0.1): [75.0], ("B", 0.1): [70.0]})
    (row,) = compare(ours, printed, base="B").reset_index().to_dict("records")
    assert (row["method"], row["paper"]) == ("A", 5.0) and isnan(row["ours"])
    assert compare(ours, printed[printed["method"] == "B"], base="B").empty


def test_gains_are_compared_seed_by_seed():
    """A gains 1 and 3 over B on the two seeds: mean 2, std √2, however far apart the seeds are; the paper has +5."""
    ours = rows({("A", 0.1): [71.0, 53.0], ("B", 0.1): [70.0, 50.0]})
    printed = rows({("A", 0.1): [75.0], ("B", 0.1): [70.0]}).assign(seed="printed")
    table = compare(ours, printed, base="B")
    assert list(table.index) == [(0.1, "A")]
    assert table.iloc[0].tolist() == pytest.approx([5, 2, 2**0.5, 2, -3])


# What a page writes is listed; what is damaged is not read


def test_a_live_page_lists_what_it_writes(store):
    """With digests that fit, also when it is written again; a file of somebody else's is set aside, not lost."""
    page = Page("made/01_x", "smoke")
    page.keep("tab", pd.DataFrame({"a": [1]}))
    page.keep("tab", pd.DataFrame({"a": [2]}))
    assert set(Contents.of(page.folder).files) == {"tab.csv", "tab.txt"}
    Contents.of(page.folder).check()
    (page.folder / "other.csv").write_text("mine")
    page.keep("other", pd.DataFrame({"a": [3]}))
    Contents.of(page.folder).check()
    assert (store / "set-aside" / "01_x-smoke-other.csv-1" / "other.csv").read_text() == "mine"
    assert read_table(page.folder / "other.csv", index_col=0)["a"].tolist() == [3]


def test_leftovers_of_a_killed_page_are_swept(store):
    page = Page("made/01_x", "smoke")
    page.keep("tab", pd.DataFrame({"a": [1]}))
    (page.folder / ".tab.csv.123-0123abcd.new").write_text("half")
    page.keep("tab", pd.DataFrame({"a": [1]}))
    assert not list(page.folder.glob(".*"))


def test_a_file_that_was_being_replaced_at_a_kill_is_not_called_damaged(store, monkeypatch):
    """It has left the list by then."""
    page = Page("made/01_x", "smoke")
    page.keep("tab", pd.DataFrame({"a": [1]}))
    with monkeypatch.context() as killed:
        killed.setattr(Contents, "add", lambda *a: pytest.fail("killed here"))
        with pytest.raises(pytest.fail.Exception):
            page.keep("tab", pd.DataFrame({"a": [2]}))
    Contents.of(page.folder).check()
    assert pd.read_csv(page.folder / "tab.csv")["a"].tolist() == [2]


def test_runs_of_two_processes_are_all_noted(store):
    """Both hold the page's lock when they add to runs.json."""
    code = (
        "import sys, pandas as pd, fednb as fn\nfrom types import SimpleNamespace\n"
        "for i in range(5):\n"
        "    about = {'seed': i, 'device_name': 'a CPU'}\n"
        "    run = SimpleNamespace(key=f'{sys.argv[1]} {i}', about=about)\n"
        "    fn.page('made/01_x', 'smoke').keep(sys.argv[1], pd.DataFrame({'a': [i]}), [run])\n"
    )
    environment = os.environ | {"FEDNB_STORE": str(store)}
    started = [subprocess.Popen([sys.executable, "-c", code, name], env=environment) for name in "ab"]
    assert [process.wait() for process in started] == [0, 0]
    folder = page_folder("made/01_x", "smoke")
    assert set(read_runs(folder / "runs.json")) == {f"{name} {i}" for name in "ab" for i in range(5)}
    assert set(Contents.of(folder).files) == {"runs.json", "a.csv", "a.txt", "b.csv", "b.txt"}
    Contents.of(folder).check()


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a":', "\0\0"])
def test_runs_that_cannot_be_read_are_named(kept, text):
    """An older runs.json, without a digest."""
    (kept.kept_folder / "runs.json").write_text(text)
    with pytest.raises(DamagedFile, match=r"01_x_paper/runs\.json: is not .*; execute its notebook again"):
        _ = StoredResults(kept.kept_folder, None).runs


def test_a_kept_table_is_checked_when_it_is_read(kept):
    contents = Contents(kept.kept_folder)
    contents.add("table1_accuracy.csv")
    contents.save()
    (kept.kept_folder / "command.txt").write_text("fednb notebook made/01_x --keep\n\nOn a fast machine.\n")
    path = kept.kept_folder / "table1_accuracy.csv"
    assert len(StoredResults(kept.kept_folder, None).table(path.name)) == 1
    path.write_text(path.read_text().replace("50.0", "90.0"))
    with pytest.raises(DamagedFile, match=r"accuracy\.csv: .*; `fednb notebook made/01_x --keep` makes it again"):
        kept.measure("accuracy", kept.run())
    path.unlink()
    with pytest.raises(DamagedFile, match=r"accuracy\.csv: is missing"):
        kept.measure("accuracy", kept.run())


def test_kept_results_are_put_back_after_a_kill(kept):
    """It fell between taking the old folder away and putting the new one there."""
    kept.kept_folder.rename(kept.kept_folder.with_name(".01_x_paper.99-0123abcd.old"))
    assert isinstance(kept.run(), StoredResults) and kept.kept_folder.is_dir()


# Verdicts


CLAIM = dict(paper="made", section="table1", kind="above", left="FedSAM", right="FedAvg")


@pytest.fixture
def judged_page(tmp_path):
    """A page at paper scale with two claims, one on a table that is in its folder and one on a table that is not."""
    claims = (
        Claim(id="better", says="FedSAM is better", **CLAIM),
        Claim(id="earlier", says="FedSAM is earlier", measure="early", **CLAIM),
    )
    grid = Grid.of("made table1", "paper", dict(methods=["FedAvg", "FedSAM"], setting={"rounds": 9}))
    page = Page("made/01_x", "paper", {"table1": grid}, claims, None, {"table1": {"accuracy": {}, "early": {}}})
    table = rows({("FedAvg", 0.1): [50.0, 51.0, 52.0], ("FedSAM", 0.1): [52.0, 53.1, 53.9]}, grid="table1")
    page.folder.mkdir(parents=True)
    table.assign(key=[f"k{i}" for i in range(6)]).to_csv(page.folder / "table1_accuracy.csv")
    return page


def test_a_page_judges_the_tables_in_its_folder(judged_page):
    """The gain is 2, 2.1 and 1.9: it holds. The table of the other claim is not there: not run, and why."""
    found = judged_page.verdict()
    assert list(found.index) == ["better", "earlier"]
    assert found.loc["better", ["verdict", "n"]].tolist() == ["holds", 3]
    assert found.loc["better", "effect"] == pytest.approx(2.0)
    assert found.loc["earlier", ["verdict", "ours", "n"]].tolist() == ["not run", "table1_early.csv is not there", 0]


def test_a_verdict_tells_how_the_runs_were_made(judged_page):
    """The runs that the table names: their precision, and where they differ from the grid at paper scale."""
    whole = judged_page.grid.cells[0].setting
    small = whole.but(rounds=3, precision="bf16").plain()
    runs = {"k0": {"setting": small, "tuned": "lr 0.1"}, "k1": {"setting": small}, "other": {"setting": whole.plain()}}
    (judged_page.folder / "runs.json").write_text(json.dumps(runs))
    page = replace(judged_page, paper_grid=lambda section: judged_page.grids[section])
    assert page.verdict().loc["better", ["precision", "tuned", "protocol"]].tolist() == [
        "bf16", "tuned", "rounds 3 of 9"
    ]  # fmt: skip
    tuned = replace(page, claims=tuple(replace(claim, tuned=True) for claim in page.claims))
    assert "untuned" not in tuned.verdict().loc["better", "verdict"]
    (judged_page.folder / "runs.json").write_text(json.dumps({"k0": {"setting": small}}))
    assert page.verdict().loc["better", "tuned"] == ""  # the paper did not tune either
    assert tuned.verdict().loc["better", ["tuned", "verdict"]].tolist() == ["untuned", "holds (untuned)"]


def test_verdicts_on_tables_elsewhere_are_the_same(judged_page, tmp_path):
    """Live, or copied as `--keep` does: one table, one verdict; a damaged one is refused."""
    shutil.copytree(judged_page.folder, kept := tmp_path / "results")
    pd.testing.assert_frame_equal(judged_page.verdict(), judged_page.verdict(judged_page.measured(kept)))
    (kept / "table1_accuracy.csv").write_text(",method,seed\n0,A,0\n")
    with pytest.raises(DamagedFile, match="has no column 'measure'"):
        judged_page.verdict(judged_page.measured(kept))


def test_a_method_that_is_called_none_stays_a_text(judged_page):
    path = judged_page.folder / "table1_accuracy.csv"
    path.write_text(path.read_text().replace("FedAvg", "None"))
    assert set(read_measured(path)["method"]) == {"None", "FedSAM"}


def test_protocols_differ_in_what_the_paper_does_not_have():
    """Two of the paper's rounds are ours, its data set is not; what two data sets have in common is no difference."""
    paper = [Setting(data="cifar10", rounds=800, lr=0.1), Setting(data="cifar100", rounds=300, lr=0.05)]
    ours = Setting(data="cifar10", rounds=800, lr=0.1)
    assert protocol_differences([ours.plain(), ours.but(precision="bf16", report="last").plain()], paper) == ""
    assert protocol_differences([ours.but(lr=0.05).plain()], paper) == "lr 0.05 for 0.1"  # 0.05 is of the other set
    small = ours.but(data="digits", rounds=300, clients=4, samples=100)
    assert protocol_differences([small.plain(), small.but(rounds=20).plain()], paper) == (
        "data digits for CIFAR-10 and CIFAR-100, rounds 20 of 800 and 300, 100 of 1,438 samples, clients 4 of 10"
    )
    old = ours.plain() | {"partition": "dirichlet(alpha=0.6)"}  # without the default that is written out now
    assert protocol_differences([{name: old[name] for name in ("data", "partition")}], paper) == ""


def test_a_precision_is_the_one_that_was_computed_in():
    """Early fp32 runs used TF32 convolutions, and their runs.json says so; one that says nothing has none."""
    setting = {"setting": {"precision": "fp32"}}
    assert precisions({"a": setting | {"computed_in": "tf32"}, "b": setting, "c": {}, "d": {"setting": {}}}) == [
        "tf32",
        "fp32",
    ]


def test_kept_gpu_runs_from_before_true_fp32_are_labelled():
    """Until 2026-11-15 09:33 a GPU's convolutions were TF32 whatever the setting said."""
    kept = [
        about for path in sorted(shelf("papers").glob("*/results/*/runs.json")) for about in read_runs(path).values()
    ]
    fp32 = [about for about in kept if about["setting"]["precision"] == "fp32" and about["device"].startswith("cuda")]
    early = [about for about in fp32 if about["started"] < "2026-11-15T09:33:27Z"]
    assert [about["key"] for about in early if about.get("computed_in") != "tf32"] == []
    assert [about["key"] for about in kept if "computed_in" in about and about not in early] == []


@pytest.mark.parametrize("scale", ["tiny", "Smoke", None])
def test_a_page_of_no_scale_is_refused_at_once(scale):
    with pytest.raises(ValueError, match=r"no scale .*; the scales are smoke, laptop, paper"):
        Page("00_start_here", scale)


def test_a_smoke_figure_says_that_it_decides_nothing():
    """Where it shows runs; a picture of a partition is what it is at any scale."""
    said = {}
    about = {"key": "k", "seed": 0, "device_name": "a CPU", "setting": {"precision": "fp32"}}
    for scale in ("smoke", "laptop"):
        for name, runs in (("with", [SimpleNamespace(key="k", about=about)]), ("without", [])):
            figure = Figure()
            Page("mine/01_x", scale).keep(name, figure, runs)
            said[scale, name] = figure.get_supxlabel()
    assert [where for where, text in said.items() if "decides nothing" in text] == [("smoke", "with")]


def test_the_line_of_tuned_classifiers_is_no_round():
    """A personalised run has a row more than rounds; its standing counts rounds."""
    setting = dict(samples=200, clients=2, participation=1.0, rounds=2, epochs=1, batch=30, evaluation="personal")
    grid = Grid.of("g", "smoke", dict(methods=["FedAvg"], setting=setting, seeds=[0]))
    (made,) = grid.run(device="cpu", engine="loop").runs
    assert len(made.rows) == 3 and made.rounds_done == 2
    assert list(grid.status()["rounds"]) == ["2/2"]


def test_a_page_in_a_gpus_precision_shows_what_was_kept_where_the_cpu_was_asked_for(capsys):
    """Table III of SpecGradFilter is kept at paper scale, in bf16, which no CPU has."""
    page = papers("specgradfilter").page("table3", scale="paper", only={"dataset": ["CIFAR-10"]})
    assert isinstance(page.run("table3", device="cpu"), StoredResults)
    assert "precision = 'bf16' is for a GPU" in capsys.readouterr().out
