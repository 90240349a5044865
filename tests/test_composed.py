"""Sums of ideas: which make methods, what they cost, and gains that add up, on a network small enough to check."""

from math import isnan, nan
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import torch.nn.functional as F

import fednb as fn
from fednb.algorithms.catalogue import sums
from fednb.core.rounds import BadMethod, Method
from fednb.engines.setting import Setting
from fednb.runs.grid import Grid
from fednb.study.measurements.compositions import (
    AXES,
    Network,
    UnequalClients,
    called,
    composed,
    contributions,
    costs,
    network,
    of_runs,
    trained,
)

TERMS = {
    "ascent": {"no ascent": "", "SAM": "sam(0.1)"},
    "filter": {"no filter": "", "perturbation": "perturbation(highpass(0.5))"},
    "correction": {"no correction": "", "SCAFFOLD": "scaffold()"},
}
SMALL = {"data": "digits", "samples": 40, "clients": 4, "partition": "dirichlet-client(alpha=0.1)", "rounds": 2,
         "epochs": 2, "lr": 0.2}  # fmt: skip


@pytest.fixture(scope="module")
def problem():
    return network(Setting(**SMALL), seed=0)


def test_gradients_are_those_of_the_loss(problem):
    """The chain rule by hand and autograd's, at different weights for every client."""
    w = torch.stack([problem.start(seed) for seed in range(4)]).requires_grad_()
    out = problem.answers(w, problem.x)[1]
    loss = sum(F.cross_entropy(out[k], problem.y[k]) for k in range(4))
    assert torch.allclose(problem.gradients(w.detach()), torch.autograd.grad(loss, w)[0], atol=1e-12)


def test_a_round_of_one_step_is_a_step_on_all_samples(problem):
    """FedAvg, everyone there, one step: w − η mean ∇L_k(w), the gradient of the loss on all samples together."""
    setting, w = (
        Setting(**SMALL | {"rounds": 1, "epochs": 1, "weight_decay": 0.0, "clip_norm": "none"}),
        problem.start(0),
    )
    together = Network(problem.x.reshape(1, -1, 64), problem.y.reshape(1, -1), problem.test)
    stepped = w - setting.lr * together.gradients(w[None])[0]
    assert (
        trained(fn.method("fedavg"), problem, w, setting).accuracy == problem.accuracy(stepped) != problem.accuracy(w)
    )


def test_accuracy_is_a_share_of_the_test_images(problem):
    """A model of zeros answers the first class; one that is not finite answers nothing."""
    zeros = torch.zeros(problem.layout.total, dtype=torch.float64)
    share = (problem.test[1] == 0).double().mean().item()
    assert problem.accuracy(zeros) == pytest.approx(100 * share) and 5 < 100 * share < 15
    assert isnan(problem.accuracy(zeros.fill_(nan)))


def test_clients_of_unequal_size_are_refused():
    with pytest.raises(UnequalClients, match=r"dirichlet\(alpha=0.1.*clients differ in size; use dirichlet-client"):
        network(Setting(**SMALL | {"partition": "dirichlet(alpha=0.1, minimum=1)"}), seed=0)


@pytest.mark.parametrize(
    "text", ["fedavg", "fedsam", "scaffold", "fedavg + smoodual(0.1) + dyn(10)", "fedlesam", "fedcm"]
)
def test_what_a_run_takes_is_what_the_catalogue_says(problem, text):
    seen, wanted = trained(fn.method(text), problem, problem.start(0), Setting(**SMALL)), fn.cost(fn.method(text))
    assert (seen.passes, seen.traffic) == (wanted.passes, wanted.traffic)


def test_sums_are_all_with_all_and_say_why_not():
    """2 x 2 x 2, of which the two that filter a perturbation without an ascent are no methods."""
    made = [(called(names), m) for names, m in sums(TERMS)]
    assert [name for name, m in made if isinstance(m, BadMethod)] == ["perturbation", "perturbation + SCAFFOLD"]
    assert all("needs an ascent" in str(m) for _, m in made if isinstance(m, BadMethod))
    good = {name: m for name, m in made if isinstance(m, Method)}
    assert list(good) == [
        "FedAvg",
        "SCAFFOLD",
        "SAM",
        "SAM + SCAFFOLD",
        "SAM + perturbation",
        "SAM + perturbation + SCAFFOLD",
    ]
    assert good["FedAvg"] == fn.method("fedavg") and good["SAM + SCAFFOLD"].parts == fn.method("fedgamma").parts


def test_a_grid_of_sums_has_a_run_for_every_method():
    """Told apart by the names of the ideas; what makes no method is no run."""
    grid = Grid.of("made", "smoke", {"sums": TERMS, "setting": SMALL}, seeds=[3, 5])
    assert len(grid.cells) == 2 * 6 and {c.seed for c in grid.cells} == {3, 5}
    assert {c.label: tuple(c.tags[a] for a in AXES) for c in grid.cells}["fedavg + sam(0.1) + scaffold()"] == (
        "SAM", "no filter", "SCAFFOLD")  # fmt: skip


def test_every_sum_has_its_rows_and_costs_are_counted_once():
    table = composed("smoke", TERMS, smoke=SMALL | {"seeds": [0, 1]})
    count = table.groupby("measure").size()
    assert count["accuracy"] == 12 and count["gradients per step"] == count["traffic"] == 6 and count["no method"] == 2
    assert table[table["measure"] == "accuracy"]["value"].between(0, 100).all()
    by_ascent = table[table["measure"] == "gradients per step"].groupby("ascent")["value"].agg(set)
    assert by_ascent.to_dict() == {"no ascent": {1.0}, "SAM": {2.0}}
    assert set(table[table["measure"] == "gradients per step by filter"]["value"]) == {0.0}
    assert table[table["measure"] == "no method"]["note"].tolist() == [
        "FilterPerturbation needs an ascent such as Sam before it"] * 2  # fmt: skip


def test_seeds_can_be_given_and_ideas_left_out():
    table = composed("smoke", TERMS, seeds=[7], smoke=SMALL | {"seeds": [0, 1], "without": ["SAM", "perturbation"]})
    assert set(table["seed"]) == {7} and set(table["method"]) == {"FedAvg", "SCAFFOLD"}


def scores(numbers, measure="accuracy", seed=0):
    """Rows from {(ascent, filter, correction): value}."""
    return pd.DataFrame(
        {**dict(zip(AXES, names, strict=True)), "method": called(dict(zip(AXES, names, strict=True))), "seed": seed,
         "measure": measure, "value": value}
        for names, value in numbers.items()
    )  # fmt: skip


NONE = ("no ascent", "no filter", "no correction")


def test_gains_alone_and_together():
    """Neither 50, the filter 53, the correction 60, both 70: the filter gains 3 and 10, together 7 more than 3 + 10."""
    seen = contributions(scores({
        NONE: 50.0, ("no ascent", "gradient", "no correction"): 53.0, ("no ascent", "no filter", "dual"): 60.0,
        ("no ascent", "gradient", "dual"): 70.0,
    }))  # fmt: skip
    alone = seen[seen["measure"] == "accuracy by filter"].set_index("correction")["value"].to_dict()
    assert alone == {"no correction": 3.0, "dual": 10.0}
    together = seen[seen["measure"] == "accuracy by filter and correction"]
    assert together["value"].tolist() == [7.0] and together["method"].tolist() == ["gradient + dual"]


def test_gains_are_taken_seed_by_seed_and_ascent_by_ascent():
    """SAM with the filter is compared with SAM, never with FedAvg; what has no base is left out; nan stays."""
    numbers = {NONE: 10.0, ("SAM", "no filter", "no correction"): 20.0, ("SAM", "both", "no correction"): 25.0,
               ("FSA", "both", "no correction"): 99.0}  # fmt: skip
    other = {**numbers, ("SAM", "both", "no correction"): nan}
    seen = contributions(pd.concat([scores(numbers), scores(other, seed=1)]))
    assert seen["ascent"].tolist() == ["SAM", "SAM"] and seen["seed"].tolist() == [0, 1]
    assert seen["value"].tolist()[0] == 5.0 and isnan(seen["value"].tolist()[1])


def test_runs_of_a_grid_are_told_by_their_tags():
    """A diverged run has no accuracy, and neither a gain."""
    cells = [SimpleNamespace(tags={"dataset": "d", **dict(zip(AXES, names, strict=True))})
             for names in (NONE, ("no ascent", "gradient", "no correction"))]  # fmt: skip
    runs = [SimpleNamespace(seed=0, key=k, accuracy=a) for k, a in (("k1", 40.0), ("k2", None))]
    table = of_runs(zip(cells, runs, strict=True))
    assert table["method"].tolist() == ["FedAvg", "gradient", "gradient"]
    assert table["measure"].tolist() == ["accuracy", "accuracy", "accuracy by filter"]
    assert table["value"].isna().tolist() == [False, True, True]


def test_costs_in_words():
    assert costs(TERMS, "correction") == {"no correction": "1 gradient, traffic 1", "SCAFFOLD": "1 gradient, traffic 2"}
    pilot = costs({"ascent": {"FedSCAM's": "scampilot() + scamradius()"}}, "ascent")
    assert pilot["FedSCAM's"].startswith("2 gradients + 5 a round, traffic 1")
