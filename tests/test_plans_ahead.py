"""Batches that are drawn ahead of time are those that would be drawn in time."""

import threading

import torch

import fednb as fn
from fednb.engines import ahead
from fednb.engines.ahead import PlansAhead
from fednb.engines.problem import participants, problem_of

SMALL = fn.Setting(samples=120, clients=6, participation=0.5, rounds=4, epochs=2, batch=7)


def plans(seed=0, setting=SMALL):
    """Plans ahead, those in time, and a list of (round, thread) for each drawing."""
    home, drawings = problem_of(setting, seed).plan(0, [0]).home, []

    def draw(t, ids):
        drawings.append((t, threading.current_thread() is not threading.main_thread()))
        return home.drawn(seed, t, ids, setting.epochs, setting.batch)

    def in_time(t, ids):
        return home.plan(seed, t, list(ids), setting.epochs, setting.batch)

    return PlansAhead(home, draw, lambda t: participants(setting, seed, t), setting.rounds), in_time, drawings


def same(x, y):
    both = x.how is None or torch.equal(x.how, y.how)
    return torch.equal(x.index, y.index) and (x.how is None) == (y.how is None) and both


def test_the_batches_are_the_same_and_drawn_once_a_thread_ahead():
    made, in_time, drawings = plans()
    for t in range(SMALL.rounds):
        ids = participants(SMALL, 0, t)
        assert same(made(t, ids), in_time(t, ids))
    assert drawings == [(0, False), (1, True), (2, True), (3, True)]


def test_some_of_a_cohort_and_rounds_out_of_turn_are_drawn_when_they_are_asked_for():
    made, in_time, drawings = plans(seed=1)
    ids = participants(SMALL, 1, 0)
    assert same(made(0, ids[:1]), in_time(0, ids[:1])) and drawings == [(0, False)]
    made(0, ids)
    made.coming[1].result()
    late = participants(SMALL, 1, 3)
    assert same(made(3, late), in_time(3, late)) and drawings == [(0, False), (0, False), (1, True), (3, False)]
    assert made.coming is None


def test_a_gpu_has_its_batches_drawn_ahead_and_a_cpu_has_not(monkeypatch):
    assert not isinstance(problem_of(SMALL, 0).plan, PlansAhead)
    monkeypatch.setattr("fednb.engines.problem.waits_for_the_host", lambda device: True)
    made = problem_of(SMALL, 0)
    assert isinstance(made.plan, PlansAhead) and ahead.THREADS >= 1
    assert same(made.plan(0, participants(SMALL, 0, 0)), problem_of(SMALL, 0).plan(0, participants(SMALL, 0, 0)))
