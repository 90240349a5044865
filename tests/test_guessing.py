"""Runs that learned nothing: which are told, and which are not."""

import torch

import fednb as fn
from fednb.runs.cells import Cell
from fednb.runs.grid import Grid, Results
from fednb.runs.guessing import FEW, only_guesses, told

SETTING = fn.Setting(samples=100, clients=4, rounds=FEW + 1, epochs=1, batch=25)


def made(method="FedAvg", seed=0, **changed):
    return fn.run(SETTING.but(**changed), method, seed=seed, progress=False)


def test_who_hardly_moves_guesses_and_who_trains_does_not():
    still = made(lr=1e-7)
    assert only_guesses(still) and not only_guesses(made(lr=0.1))
    assert not only_guesses(made(lr=1e-7, rounds=FEW))  # too early to say


def test_the_method_the_setting_and_the_seeds_are_told():
    rates = {0: 0.1, 1: 1e-7, 2: 1e-7}
    cells = tuple(Cell(SETTING.but(lr=lr), fn.method("FedAvg"), seed, {"alpha": 0.1}) for seed, lr in rates.items())
    runs = tuple(made(seed=seed, lr=lr) for seed, lr in rates.items())
    (line,) = told(Results(Grid("made", "laptop", cells), runs))
    assert line.startswith("FedAvg, alpha 0.1: 2 of 3 seeds (1, 2) learned nothing")
    assert told(Results(Grid("made", "laptop", cells[:1]), runs[:1])) == []


def test_another_loss_has_no_such_bound():
    """Ten times the cross-entropy is far above that of guessing, whatever is learned."""
    fn.add_loss("ten-times", lambda output, target: 10 * torch.nn.functional.cross_entropy(output, target))
    assert not only_guesses(made(lr=1e-7, loss="ten-times"))
