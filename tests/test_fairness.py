"""One model at many clients: accuracy by class, mixed as each client has the classes."""

from dataclasses import replace
from math import isnan
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_grid import small_results

from fednb.engines.problem import class_counts, problem_of
from fednb.metrics.sample import sample_of
from fednb.study.measurements.fairness import by_class, by_client, mixed


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results(methods=["FedAvg"], what=["move"])


def test_a_clients_accuracy_is_that_of_its_classes():
    """Classes at 90, 60 and 0: half and half of the first two is 75; sizes do not matter, shares do."""
    seen = mixed(np.array([90.0, 60.0, 0.0]), np.array([[1, 1, 0], [500, 500, 0], [0, 0, 7], [1, 1, 2]]))
    assert seen.tolist() == pytest.approx([75, 75, 0, 37.5])


def made_sample(y, answers):
    """A model without a say of its own: it gives the answers that are written in its input."""
    model = torch.nn.Identity()
    model.weight = torch.nn.Parameter(torch.zeros(1))
    objective = SimpleNamespace(model=model, outputs=lambda w, b, x: torch.nn.functional.one_hot(x, 3))
    there = SimpleNamespace(objective=objective, x=torch.tensor(answers), y=torch.tensor(y), b=torch.zeros(0))
    return SimpleNamespace(**vars(there), place=lambda w: w)


def test_accuracy_by_class():
    """Class 0: three of four right; class 1 is not in the sample; class 2: none of two."""
    seen = by_class(made_sample([0, 0, 0, 0, 2, 2], [0, 0, 1, 0, 0, 1]), torch.zeros(1))
    assert seen[[0, 2]].tolist() == [75, 0] and isnan(seen[1])


def test_clients_weighed_by_size_give_the_mix_of_all(results):
    """Σ_k n_k a_k / n = Σ_c share of c · a_c: the whole is the clients together; on all test samples."""
    (cell,), (run,) = results.grid.cells, results.runs
    table = by_client(results, samples=10_000, device="cpu")
    counts = class_counts(cell.setting, 0)
    at = table[table["measure"] == "client accuracy"]
    assert at["client"].tolist() == [0, 1, 2, 3] and set(at["method"]) == {"FedAvg"} and set(at["key"]) == {run.key}
    seen = by_class(sample_of(run, 10_000, device="cpu"), run.w)
    whole = (counts.sum(0) / counts.sum()) @ seen
    assert (at["value"] * counts.sum(1)).sum() / counts.sum() == pytest.approx(whole)
    spread = table[table["measure"] == "spread over clients"]["value"].item()
    assert spread == pytest.approx(np.std(at["value"])) and spread > 0


def test_classes_together_are_the_accuracy_of_the_run(results):
    """Weighed as the test set has them, the classes give what the last round's evaluation gave."""
    (run,) = results.runs
    problem = problem_of(run.setting, run.seed)
    share = np.bincount(problem.test[1].numpy()) / len(problem.test[1])
    assert share @ by_class(sample_of(run, 10_000, device="cpu"), run.w) == pytest.approx(run.accuracy_last)


def test_a_diverged_run_serves_nobody(results):
    lost = SimpleNamespace(setting=results.runs[0].setting, seed=0, key="k", status="diverged")
    table = by_client(replace(results, runs=(lost,)), device="cpu")
    assert len(table) == 5 and table["value"].isna().all()
