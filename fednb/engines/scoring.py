"""The test set's judgement of a model, captured once and launched again: on a GPU launches cost more than answers."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from fednb.engines.captured import FIXED, Buffers, Launched
from fednb.engines.problem import Problem


class CapturedScore:
    """Right answers and summed loss on a problem's test set, of whatever model is put in; runs may share it."""

    def __init__(self, problem: Problem, w: Tensor, b: Tensor, mode: str) -> None:
        assert problem.test is not None
        self.problem, self.one_at_a_time = problem, threading.Lock()
        objective = problem.objective.by_itself()
        x, y = problem.test
        self.buffers: Buffers = {"w": torch.zeros_like(w), "b": torch.zeros_like(b), f"{FIXED}x": x, f"{FIXED}y": y}
        self.buffers |= {"right": y.new_zeros(()), "loss": w.new_zeros((), dtype=torch.float64)}

        def score(own: Buffers) -> None:
            pieces = zip(own[f"{FIXED}x"].split(problem.chunk), own[f"{FIXED}y"].split(problem.chunk), strict=True)
            scores = [objective.score(own["w"], own["b"], problem.inputs(x), y) for x, y in pieces]
            own["right"].copy_(torch.stack([right for right, _ in scores]).sum())
            own["loss"].copy_(torch.stack([loss for _, loss in scores]).sum())

        what = f"a test of {len(y)} samples"
        self.launch = Launched(score, self.buffers, mode, what, problem.objective.precision, can_wait=True)

    def fits(self, problem: Problem) -> bool:
        """True if another problem's models can be judged here too: of one form, on the same samples."""
        mine = self.problem
        return (
            problem.test is not None
            and mine.test is not None
            and all(x is y for x, y in zip(mine.test, problem.test, strict=True))
            and (mine.chunk, mine.objective.form) == (problem.chunk, problem.objective.form)
        )

    def __call__(self, w: Tensor, b: Tensor) -> tuple[int, float]:
        with self.one_at_a_time:
            self.buffers["w"].copy_(w)
            self.buffers["b"].copy_(b)
            self.launch.renew()
            self.launch()
            return int(self.buffers["right"]), float(self.buffers["loss"])
