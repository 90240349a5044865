"""Losses, rounds at chance and spread over seeds, from histories that are written out."""

from math import isnan, nan
from types import SimpleNamespace

import pytest

from fednb.study.measurements.accuracy import spread_over_seeds
from fednb.study.measurements.curves import at_chance, final_losses, losses


def made(accuracies, seed=0, status="finished", rounds=None, method="A", alpha=0.1):
    """A cell and its run on digits, of ten classes; the losses of round t are t and 10 t."""
    rows = [{"round": t, "accuracy": a, "test_loss": t, "train_loss": 10 * t} for t, a in enumerate(accuracies)]
    setting = SimpleNamespace(rounds=rounds or len(rows), data="digits")
    cell = SimpleNamespace(tags={"alpha": alpha}, label=method, setting=setting, tuned=f"by seed {seed}")
    reported = accuracies[-1] if status == "finished" else None
    three = {"accuracy_best": seed, "accuracy_last": reported, "accuracy_last_ten": reported}
    return cell, SimpleNamespace(
        seed=seed, key="k", rows=rows, rounds_done=len(rows), status=status, accuracy=reported, **three
    )


def test_losses_of_evaluated_rounds():
    """Rounds 1 and 3 were evaluated: 1 and 3 on test data, 10 and 30 while training."""
    results = [made([None, 20, None, 40])]
    seen = losses(results).groupby("measure")[["round", "value"]].apply(lambda part: part.to_numpy().tolist())
    assert seen["test loss by round"] == [[1, 1], [3, 3]]
    assert seen["training loss by round"] == [[1, 10], [3, 30]]
    assert losses(results, most=1)["round"].tolist() == [3, 3]


def test_the_last_losses_are_those_of_the_last_round():
    assert final_losses([made([10, 20, 30])]).set_index("measure")["value"].to_dict() == {
        "test loss": 2, "training loss": 20,
    }  # fmt: skip
    assert final_losses([made([10, 20], status="diverged")])["value"].isna().all()


@pytest.mark.parametrize(
    "accuracies, wanted",
    [
        ([10, 11, 30, 40], 0),  # where it began does not count
        ([30, 10, 12, 40, 10, 11, 9, 50], 3),  # the longest stretch, 12 is still guessing
        ([30, 12.1, 30], 0),
        ([30, 40, 10], 1),
        ([10, 10, 10], 3),  # never above
        ([None, 30, None, 10, None, 10], 2),  # rounds that were evaluated
    ],
)
def test_rounds_at_chance(accuracies, wanted):
    """Ten classes: 10 percent, and two points more."""
    assert at_chance([made(accuracies)])["value"].tolist() == [wanted]


def test_guessing_needs_a_number_of_classes():
    cell, run = made([30, 10])
    cell.setting.data = "domains"
    with pytest.raises(ValueError, match="how many classes 'domains' has is not known"):
        at_chance([(cell, run)])


def test_a_diverged_run_guesses_to_its_end():
    """Two of eight rounds, the second at chance: seven rounds."""
    assert at_chance([made([30, 10], status="diverged", rounds=8)])["value"].tolist() == [7]
    assert at_chance([made([30, 10], rounds=2)], margin=0)["value"].tolist() == [1]


def test_spread_over_seeds_is_a_standard_deviation_of_each_setting():
    """60 and 64: √8; the other setting has 50, 50; a method of one seed, or with a diverged run, has none."""
    results = [
        *(made([a], seed=s, alpha=0.1) for s, a in enumerate((60, 64))),
        *(made([50], seed=s, alpha=0.5) for s in (0, 1)),
        made([70], method="B"),
        *(made([70], seed=s, method="C", status=how) for s, how in enumerate(("finished", "finished", "diverged"))),
    ]
    table = spread_over_seeds(results)
    assert list(zip(table["method"], table["alpha"], strict=True)) == [("A", 0.1), ("A", 0.5), ("B", 0.1), ("C", 0.1)]
    assert table["value"].tolist() == pytest.approx([8**0.5, 0, nan, nan], nan_ok=True) and isnan(table["value"][3])
    assert set(table["seed"]) == {"all"} and set(table["measure"]) == {"spread over seeds"}
