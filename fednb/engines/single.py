"""Batches of one sample, which BatchNorm may be unable to normalise: refused before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator

from torch.nn.modules.batchnorm import _BatchNorm

from fednb.engines.own import answer
from fednb.engines.problem import Problem, participants
from fednb.engines.setting import BadSetting, Setting


def refuse_single(problem: Problem, setting: Setting, seed: int) -> None:
    """BadSetting where somebody who takes part has a batch of one sample, and the model cannot be trained on it."""
    sizes, batch = problem.sizes.tolist(), setting.batch
    single = {i for i, n in enumerate(sizes) if n % batch == 1 % batch}
    if not single or _trains_on_one(problem):
        return
    client = next((i for i in _comers(problem, setting, seed) if i in single), None)
    if client is not None:
        larger = range(batch + 1, max(sizes) + 1)
        fitting = (f"batch = {size} or " for size in larger if all(n % size != 1 for n in sizes))
        raise BadSetting(
            f"batch = {batch}: client {client}, which has {sizes[client]} samples, has a batch of one, and BatchNorm "
            f"in {setting.model!r} cannot normalise a single value; take {next(fitting, '')}a model with GroupNorm"
        )


def _trains_on_one(problem: Problem) -> bool:
    """Whether the model answers a single sample in training."""
    if not any(isinstance(m, _BatchNorm) for m in problem.objective.model.modules()):
        return True
    assert problem.samples is not None
    try:
        answer(problem.objective.by_itself(), problem.inputs(problem.samples[0][:1]))
    except ValueError:  # torch's, for one value per channel
        return False
    return True


def _comers(problem: Problem, setting: Setting, seed: int) -> Iterator[int]:
    """Who takes part, round by round; everyone where classifiers are tuned after the last."""
    for t in range(setting.rounds):
        yield from participants(setting, seed, t)
    if setting.evaluation == "personal" and setting.tune_epochs:
        yield from range(problem.clients)
