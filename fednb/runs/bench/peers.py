"""Other simulators on the same workload, where they are installed: pfl-research. Flower gets a hint and no more.

Flower's simulation starts Ray, which listens on all interfaces and looks for addresses outside the machine; it would
have to run in a network namespace of its own, and that is not done here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednb.algorithms.catalogue import method
from fednb.engines.objective import arithmetic, wait_for
from fednb.engines.problem import participants
from fednb.models import build
from fednb.runs.bench.engines import Timed, batches, compared, spread
from fednb.runs.bench.workload import SEED, Say, Workload

HINTS = {
    "pfl": "pfl-research is not installed: pip install 'fednb[peers]', best in an environment of its own",
    "flwr": "Flower is not timed: its simulation starts Ray, which listens on all interfaces and looks for addresses "
    "outside the machine",
}


def hints() -> list[str]:
    """What is not timed here, and why."""
    return ([] if find_spec("pfl") else [HINTS["pfl"]]) + [HINTS["flwr"]]


def rows(
    work: Workload, names: Sequence[str], rounds: int, workers: int | None = None, say: Say = lambda text: None
) -> list[dict[str, Any]]:
    """FedAvg with our engines and with pfl-research, which take turns; nothing where it is not installed."""
    if not find_spec("pfl"):
        return []
    if work.precision == "fp64":
        raise ValueError("precision = 'fp64': pfl-research sums in 32 bits; use fp32, tf32 or bf16")
    fedavg = method("fedavg")
    ours = []
    for name in names:
        say(f"first round of {name}")
        ours.append(Timed(name, work, fedavg, workers))
    clock = Clock(work, ours, say)
    with arithmetic(work.precision):
        train_with_pfl(work, rounds, clock)
    return [*compared(ours), clock.row()]


class Client:
    """One user of pfl-research in one round. Its own data sets neither shuffle nor augment; this hands out ours."""

    raw_data: tuple[Tensor, ...] = ()
    metadata: dict[str, Any] = {}
    train_kwargs: dict[str, Any] = {}
    eval_kwargs: dict[str, Any] = {}

    def __init__(self, work: Workload, t: int, client: int) -> None:
        self.work, self.t, self.client, self.user_id = work, t, client, str(client)

    def __len__(self) -> int:
        return self.work.samples

    def iter(self, batch_size: int | None) -> Iterator[list[Tensor]]:
        """The batches of all epochs."""
        return ([x, y] for x, y in batches(self.work, self.t, self.client))


class Clients:
    """The participants of round after round."""

    def __init__(self, work: Workload) -> None:
        self.work, self.t = work, -1

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Client, int]]:
        """The clients of the next round, each with the seed that pfl-research asks for and does not use here."""
        self.t += 1
        return ((Client(self.work, self.t, i), 0) for i in participants(self.work.setting, SEED, self.t))


class Scored(nn.Module):
    """A model with the two methods that pfl-research asks for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x).float(), y.long())

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Clock:
    """A callback of pfl-research: times a round of its own, and then gives our engines their turn."""

    def __init__(self, work: Workload, ours: Sequence[Timed], say: Say) -> None:
        self.work, self.ours, self.say = work, ours, say
        self.seconds: list[float] = []
        self.first_round, self.first_weights = 0.0, torch.zeros(0)
        self.began = 0.0

    def on_train_begin(self, *, model: Any) -> Any:
        from pfl.metrics import Metrics

        self.began = time.perf_counter()
        return Metrics()

    def after_central_iteration(self, _: Any, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
        from pfl.metrics import Metrics

        wait_for(self.work.device)
        spent = time.perf_counter() - self.began
        if central_iteration:
            self.say(f"turn {central_iteration}")
            self.seconds.append(spent)
            for each in self.ours:
                each.turn()
        else:  # it also evaluates in its round 0, and no setting prevents that
            weights = [p.detach().reshape(-1) for p in model.pytorch_model.parameters()]
            self.first_round, self.first_weights = spent, torch.cat(weights).clone()
        self.began = time.perf_counter()
        return False, Metrics()

    def on_train_end(self, *, model: Any) -> None:
        pass

    def row(self) -> dict[str, Any]:
        """Its times, and what the loop and the bare loop are to it."""
        known = {each.name: each for each in self.ours if each.name in ("loop", "bare")}
        row = {"engine": "pfl-research", "mode": version("pfl"), "method": "FedAvg", **spread(self.seconds)}
        row |= {"first_round": self.first_round}
        for name, each in known.items():
            row[f"faster_than_{name}"] = median(a / b for a, b in zip(each.seconds, self.seconds, strict=True))
        if "loop" in known:
            row["difference"] = float((self.first_weights - known["loop"].first_weights).abs().max())
        return row


def train_with_pfl(work: Workload, rounds: int, clock: Clock) -> None:
    """Its FedAvg on our clients and batches: one round that is not counted, and then so many. Written for pfl 0.6."""
    os.environ["PFL_PYTORCH_DEVICE"] = work.device
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    setting, data, clients = work.setting, work.dataset, Clients(work)
    net = Scored(build(setting.model, data.classes, data.input, seed=SEED).to(work.device))
    local = partial(torch.optim.SGD, weight_decay=setting.weight_decay)
    central = torch.optim.SGD(net.parameters(), lr=setting.server_lr)
    half = {"amp_dtype": torch.bfloat16} if work.precision == "bf16" else {}
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds + 1, evaluation_frequency=rounds + 1, train_cohort_size=work.participants,
            val_cohort_size=0,
        ),
        SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(net, local, central, **half),
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=setting.lr, local_batch_size=work.batch,
            local_max_grad_norm=setting.clip_norm,
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )  # fmt: skip
