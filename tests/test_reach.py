"""How far perturbations reach: by hand, and where a formula says so."""

from math import pi, sqrt

import numpy as np
import pytest
from pytest import approx
from small_grid import small_results

from fednb.core.vectors import Layout
from fednb.study.measurements.reach import MEASURE, _draws, flat_index, lengths


def test_one_tensor_is_as_long_as_the_root_of_its_numbers():
    """L = 1: d/|d| = ±1 in each of n numbers, √n whatever d is."""
    assert _draws(Layout(("a",), ((10, 10),)), 5, seed=0) == approx(10.0, rel=1e-4)


def test_two_tensors_of_one_number_by_their_formula():
    """n = (1, 1): √(x² + y²) / (|x| + |y|) = 1 / (|cos φ| + |sin φ|), φ uniform for Gaussian x and y.

    Its mean over a quarter turn is (2/π) ∫ dφ / (cos φ + sin φ) = (2/π) √2 ln(1 + √2) = 0.7935.
    """
    seen = _draws(Layout(("a", "b"), ((1,), (1,))), 20_000, seed=0)
    assert seen.mean() == approx(2 / pi * sqrt(2) * np.log(1 + sqrt(2)), abs=2e-3)
    assert seen.min() >= sqrt(0.5) - 1e-6 and seen.max() <= 1


def test_long_tensors_count_by_their_numbers():
    """n = (100, 1) and d = (x, y): √(100 x² + y²) / (|x| + |y|), from 1 where x is nothing to 10 where y is."""
    seen = _draws(Layout(("a", "b"), ((100,), (1,))), 2000, seed=0)
    assert 0.9 < seen.min() < 2 and 9.5 < seen.max() < 10


def test_the_flat_index_is_65_radii_long_for_resnet_18():
    """62 tensors with 11,181,642 numbers (specs/optimizers.md 2.11: about 65, mostly between 41 and 89)."""
    drawn = flat_index("smoke", ["resnet18-gn"])
    assert set(drawn["seed"]) == {0, 1, 2} and drawn["value"].nunique() == 9
    table = drawn[drawn["seed"] == 0].set_index("measure")["value"]
    assert table[MEASURE] == approx(65, abs=2)
    assert table[f"{MEASURE}, 5%"] == approx(41, abs=3) and 85 < table[f"{MEASURE}, 95%"] < 105


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))


def test_lengths_of_probed_perturbations(store):
    """SAM's are as long as the radius, whichever it is; FedSMOO's too; with a flat index they are not, and in the first
    round, where there is no update to look along, they are nothing.
    """
    methods = [{"name": "fedsam", "rho": 0.3, "label": "a"}, {"name": "fedsmoo", "label": "b"},
               {"name": "fedavg + lesamflat(0.1)", "label": "c"}]  # fmt: skip
    table = lengths(small_results(methods, what=["perturbation"]))
    seen = table.set_index(["method", "round"])["value"]
    assert [seen[m, t] for m in "ab" for t in (0, 1)] == approx([1.0] * 4, abs=1e-5)
    assert seen["c", 0] == 0 and seen["c", 1] > 2
    assert set(table["measure"]) == {MEASURE}
