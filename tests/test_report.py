"""Verdicts by hand-made numbers, the folder of a page, and grids before anything is trained."""

from math import nan
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from fednb.grid import BadGrid, Grid, NeedsGpu, Results
from fednb.methods import UnknownMethod
from fednb.report import KINDS, Claim, Page, as_text, page_folder, provenance, verdict
from fednb.setting import BadSetting

FALLING, RISING = [4, 3, 2, 1], [1, 2, 3, 4]


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.delenv("FEDNB_PAGE", raising=False)
    return tmp_path


def claim(kind, tolerance=0.0, measure="variance"):
    described = dict(id="c", section="fig1", says="so", kind=kind, measure=measure, tolerance=tolerance)
    return Claim.of("made", described)


def tidy(seen, measure="variance", t=0):
    """Rows from {(alpha, seed): [values of the bands]}."""
    return pd.DataFrame(
        {"alpha": alpha, "seed": seed, "round": t, "measure": measure, "band": band, "value": value}
        for (alpha, seed), values in seen.items()
        for band, value in enumerate(values, 1)
    )


def outcome(seen, made, scale="laptop"):
    return verdict(tidy(seen), (made,), scale).loc["c", "verdict"]


@pytest.mark.parametrize(
    "kind, tolerance, curve, true, said",
    [
        ("lowest_band_largest", 0.0, [4, 3, 2, 1], True, "1.33x"),
        ("lowest_band_largest", 0.0, [3, 1, 3, 2], True, "1.00x"),  # at least, not above
        ("lowest_band_largest", 0.0, [3, 1, 3.1, 2], False, "0.97x"),
        ("lowest_band_largest", 0.5, [3, 1, 2, 1], True, "1.50x"),
        ("lowest_band_largest", 0.5, [2.9, 1, 2, 1], False, "1.45x"),
        ("falls_with_band", 0.7, [9, 5, 2, 1], True, "-1.00"),
        ("falls_with_band", 0.7, [4, 3, 1, 2], True, "-0.80"),  # 1 − 6 (9 + 1 + 4 + 4) / (4 · 15)
        ("falls_with_band", 0.9, [4, 3, 1, 2], False, "-0.80"),
        ("falls_with_band", 0.7, [1, 2, 3, 9], False, "+1.00"),
    ],
)
def test_claims_about_one_curve(kind, tolerance, curve, true, said):
    """Compared with the largest of the other bands; Spearman's rank correlation 1 − 6 Σd² / (n (n² − 1))."""
    judged = claim(kind, tolerance).judge(pd.DataFrame([curve], index=[0.1], columns=[1, 2, 3, 4]))
    assert judged["0.1"][0] is true and said in judged["0.1"][1]


@pytest.mark.parametrize(
    "skewed, true",
    [([3, 2], True), ([2.4, 2], True), ([2.3, 2], False), ([2, 2], False), ([0.9, 0.5], False)],
)
def test_claims_about_growing_skew(skewed, true):
    """Alpha 0.6 has (1, 1): the first band must grow, and 1.2 times as much as the last: 2.4 against 2, not 2.3."""
    curves = pd.DataFrame([skewed, [1, 1]], index=[0.1, 0.6], columns=[1, 2])
    ((where, (found, said)),) = claim("low_band_grows_with_skew", 0.2).judge(curves).items()
    assert found is true and where == "0.6 to 0.1" and said.startswith(f"first band x{skewed[0]:.2f}")


def test_every_kind_says_its_rule_with_the_tolerance():
    for kind in KINDS:
        rule = claim(kind, 0.25).rule
        assert "0.25" in rule and "{" not in rule


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"claim c: kind = 'highest', must be one of lowest_band_largest, "):
        claim("highest")


@pytest.mark.parametrize(
    "seen, wanted",
    [
        ({(0.1, 0): FALLING, (0.1, 1): FALLING, (0.6, 0): FALLING, (0.6, 1): FALLING}, "holds"),
        ({(0.1, 0): FALLING, (0.1, 1): FALLING, (0.6, 0): RISING, (0.6, 1): RISING}, "does not hold"),
        ({(0.1, 0): FALLING, (0.1, 1): FALLING, (0.6, 0): FALLING, (0.6, 1): RISING}, "not decided"),
        ({(0.1, 0): FALLING, (0.1, 1): RISING, (0.6, 0): RISING, (0.6, 1): FALLING}, "not decided"),
        ({(0.1, 0): RISING, (0.1, 1): RISING, (0.6, 0): FALLING, (0.6, 1): RISING}, "does not hold"),
        ({(0.1, 0): RISING}, "does not hold"),
    ],
)
def test_three_outcomes(seen, wanted):
    """True for all settings and seeds; false in one setting for every seed; seeds that disagree decide nothing."""
    for kind in ("falls_with_band", "lowest_band_largest"):
        assert outcome(seen, claim(kind, 0.1)) == wanted


def test_smoke_scale_decides_nothing():
    for curve, rule in ((FALLING, "holds"), (RISING, "does not hold")):
        said = outcome({(0.1, 0): curve}, claim("falls_with_band", 0.7), scale="smoke")
        assert said == f"it ran (smoke scale decides nothing; by the rule: {rule})"


def test_rounds_are_averaged_and_other_measures_left_aside():
    """Round 0 has (5, 1), round 1 (1, 2): the mean (3, 1.5) falls, as 2 to 1; Std rises and is not asked."""
    parts = [tidy({(0.1, 0): [5, 1]}), tidy({(0.1, 0): [1, 2]}, t=1), tidy({(0.1, 0): [1, 9]}, measure="Std")]
    rows = verdict(pd.concat(parts), (claim("lowest_band_largest"),), "laptop").loc["c"]
    assert (rows["verdict"], rows["n"], rows["seen"]) == ("holds", 1, "0.1: 2.00x the next largest")


@pytest.mark.parametrize("broken", [[nan] * 4, [4, nan, 2, 1]])
def test_numbers_that_are_not_there_cannot_make_a_claim_hold(broken):
    """A run that overflowed at alpha 0.1 has not shown that the claim is true "for every alpha"."""
    assert outcome({(0.6, 0): FALLING, (0.1, 0): broken}, claim("lowest_band_largest")) != "holds"


def test_a_page_keeps_figures_and_tables_in_its_folder(store):
    page, figure, table = Page("made/01_x", "smoke"), Figure(figsize=(4, 3)), pd.DataFrame({"a": [1, 2]})
    figure.subplots().plot([1, 2])
    assert page.keep("fig", figure) is figure and page.keep("tab", table) is table
    assert page.folder == store / "notebooks" / "made/01_x" / "smoke" == page_folder("made/01_x", "smoke")
    assert sorted(p.name for p in page.folder.iterdir()) == ["fig.png", "tab.csv", "tab.txt"]
    assert (page.folder / "fig.png").read_bytes().startswith(b"\x89PNG") and (page.folder / "fig.png").stat().st_size
    assert pd.read_csv(page.folder / "tab.csv", index_col=0).equals(table)
    assert (page.folder / "tab.txt").read_text().split() == ["a", "0", "1", "1", "2"]


def test_a_page_goes_where_the_one_who_executes_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_PAGE", str(tmp_path / "there"))
    Page("made/01_x", "smoke").keep("tab", pd.DataFrame({"a": [1]}))
    assert (tmp_path / "there" / "tab.csv").exists() and not (tmp_path / "notebooks").exists()


def test_captions_name_seeds_device_and_runs():
    """Eight runs of two seeds: six keys by their first eight letters, and two more."""
    runs = [SimpleNamespace(seed=i % 2, key=f"{i}" * 16, about={"device_name": "made CPU"}) for i in range(8)]
    assert provenance(runs).startswith("n = 2 seeds, made CPU, runs 00000000, 11111111, ")
    assert provenance(runs).endswith("55555555 and 2 more") and provenance([]) == ""
    assert provenance(runs[:1]) == "n = 1 seed, made CPU, runs 00000000"


def test_wide_tables_become_lists():
    assert as_text(pd.DataFrame({"says": ["word " * 60]})).startswith("index: 0\nsays: word word")


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


def test_results_without_a_probe_say_so():
    with pytest.raises(BadGrid, match="grid g keeps nothing from its rounds; give it a probe"):
        _ = Results(Grid.of("g", "smoke", dict(methods=["FedAvg"])), ()).probe
