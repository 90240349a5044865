"""FedWMSAM's α, round by round: from probes that are written out, and from runs whose α is known."""

from types import SimpleNamespace

import pytest
import torch
from pytest import approx
from small_grid import small_results

from fednb.metrics.tidy import NotProbed
from fednb.study.measurements import mixing as of_schedule
from fednb.study.measurements.mixing import followed, mixing


def made(monkeypatch, alphas, lam=0.5, name="s.alpha"):
    """One run in which α was kept after some rounds."""
    monkeypatch.setattr(of_schedule, "finished", lambda results: results.pairs)
    kept = [SimpleNamespace(round=t, vectors={name: torch.tensor([[a]])}) for t, a in alphas.items()]
    run = SimpleNamespace(seed=2, key="k", all_probed=lambda probe: kept)
    cell = SimpleNamespace(
        tags={"beta": 0.1}, label="Ours", method=SimpleNamespace(parameters=lambda: {"lam": lam} if lam else {})
    )
    return SimpleNamespace(pairs=[(cell, run)], probe=None)


def test_the_share_is_the_probed_alpha_and_agreement_what_it_followed(monkeypatch):
    """λ = ½. From 0.2 to 0.5 in one round: α̂ = 0.8. From 0.5 to 0.2 in two: 0.5 / 4 + 0.75 α̂ = 0.2, α̂ = 0.1."""
    table = mixing(made(monkeypatch, {0: 0.2, 1: 0.5, 3: 0.2}))
    share, agreement = (table[table["measure"] == m] for m in ("gradient share", "agreement"))
    assert share["round"].tolist() == [0, 1, 3] and share["value"].tolist() == approx([0.2, 0.5, 0.2])
    assert agreement["round"].tolist() == [1, 3] and agreement["value"].tolist() == approx([0.2, 0.9])
    assert set(table["method"]) == {"Ours"} and set(table["beta"]) == {0.1} and set(table["seed"]) == {2}


def test_without_weighting_there_is_no_agreement_to_read(monkeypatch):
    table = mixing(made(monkeypatch, {0: 0.1, 1: 0.1}, lam=0.0))
    assert set(table["measure"]) == {"gradient share"}


def test_mixing_needs_its_probe(monkeypatch):
    with pytest.raises(NotProbed, match=r"kept s.m, not 's.alpha'"):
        mixing(made(monkeypatch, {0: 0.1}, name="s.m"))


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_followed_undoes_the_schedule(rounds):
    alpha = 0.1
    for _ in range(rounds):
        alpha = 0.9 * alpha + 0.1 * 0.6
    assert followed(0.1, alpha, rounds, 0.1) == approx(0.6)


def test_alpha_of_a_run_is_between_the_bounds_of_its_schedule(tmp_path, monkeypatch):
    """α₁ is the first α, there being no momentum yet; with λ = 1 the next is α̂ itself, from 0.1 to 0.9."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    table = mixing(small_results([{"name": "fedwmsam", "lam": 1.0}], ["s.alpha"]))
    share, agreement = (table[table["measure"] == m]["value"].tolist() for m in ("gradient share", "agreement"))
    assert share[0] == approx(0.1) and 0.1 <= share[1] <= 0.9 and agreement == approx([1 - share[1]])
