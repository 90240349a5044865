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

from fednb.bench.engines import Timed, batches, compared, spread
from fednb.bench.workload import SEED, Say, Workload, wait_for
from fednb.engines.objective import arithmetic
from fednb.engines.problem import participants
from fednb.methods import method
from fednb.models import build

HINTS = {
    "pfl": "pfl-research is not installed: pip install 'fednb[peers]', best in an environment of its own",
    "flwr": "Flower is not timed: its simulation starts Ray, which listens on all interfaces and looks for addresses "
    "outside the machine; see fednb/bench/peers.py",
}


def hints() -> list[str]:
    """What is missing here, and how to get it."""
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
    theirs = _pfl(work, ours, rounds, say)
    named = {"engine": "pfl-research", "way": version("pfl"), "method": "FedAvg"}
    own = {"first_round": theirs.first_round, "difference": _difference(theirs.first_weights, ours)}
    return [*compared(ours), named | spread(theirs.seconds) | own | _ratios(theirs.seconds, ours)]


def _ratios(seconds: Sequence[float], ours: Sequence[Timed]) -> dict[str, float]:
    """How many times faster than the loop and the bare loop pfl-research is."""
    return {
        f"faster_than_{each.name}": median(a / b for a, b in zip(each.seconds, seconds, strict=True))
        for each in ours
        if each.name in ("loop", "bare")
    }


def _difference(weights: Tensor, ours: Sequence[Timed]) -> float | None:
    loop = [each.first_weights for each in ours if each.name == "loop"]
    return float((weights - loop[0]).abs().max()) if loop else None


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


def _pfl(work: Workload, ours: Sequence[Timed], rounds: int, say: Say) -> Any:
    """Its FedAvg on the same batches, timed between its callbacks; in each of these our engines have their turn.

    Written against pfl 0.6: its own batches are never shuffled nor augmented, so a user's data hand out ours, all
    epochs in one. In round 0, which is not counted, it evaluates as well, and no setting prevents that.
    """
    os.environ["PFL_PYTORCH_DEVICE"] = work.device
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
    from pfl.callback import TrainingProcessCallback
    from pfl.data import FederatedDatasetBase
    from pfl.data.dataset import Dataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Client(Dataset):
        """One user in one round."""

        def __init__(self, t: int, client: int) -> None:
            super().__init__(raw_data=(), user_id=str(client))
            self.t, self.client = t, client

        def __len__(self) -> int:
            return work.samples

        def iter(self, batch_size: int | None) -> Iterator[list[Tensor]]:
            return ([x, y] for x, y in batches(work, self.t, self.client))

    class Clients(FederatedDatasetBase):
        """The participants of round after round."""

        t = -1

        def __next__(self) -> tuple[Client, int]:
            raise NotImplementedError("clients come by the round")

        def get_cohort(self, cohort_size: int) -> Iterator[tuple[Client, int]]:
            self.t += 1
            return ((Client(self.t, i), 0) for i in participants(work.setting, SEED, self.t))

    class Clock(TrainingProcessCallback):
        """Times its rounds from the end of our turn to the beginning of the next."""

        seconds: list[float] = []
        first_round = 0.0
        first_weights = torch.zeros(0)

        def on_train_begin(self, *, model: Any) -> Metrics:
            self.began = time.perf_counter()
            return Metrics()

        def after_central_iteration(self, _: Any, model: Any, *, central_iteration: int) -> tuple[bool, Metrics]:
            wait_for(work.device)
            spent = time.perf_counter() - self.began
            if central_iteration == 0:
                weights = [p.detach().reshape(-1) for p in model.pytorch_model.parameters()]
                self.first_round, self.first_weights = spent, torch.cat(weights).clone()
            else:
                self.seconds.append(spent)
                say(f"turn {central_iteration} of {rounds}")
                for each in ours:
                    each.turn()
            wait_for(work.device)
            self.began = time.perf_counter()
            return False, Metrics()

    setting, data = work.setting, work.dataset
    net = Scored(build(setting.model, data.classes, data.input, seed=SEED).to(work.device))
    model = PyTorchModel(
        net,
        partial(torch.optim.SGD, weight_decay=setting.weight_decay),
        torch.optim.SGD(net.parameters(), lr=setting.server_lr),
        **({"amp_dtype": torch.bfloat16} if work.precision == "bf16" else {}),
    )
    clients, clock = Clients(), Clock()
    with arithmetic(work.precision):
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds + 1, evaluation_frequency=rounds + 1,
                train_cohort_size=work.participants, val_cohort_size=0,
            ),
            SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
            model,
            NNTrainHyperParams(
                local_num_epochs=1, local_learning_rate=setting.lr, local_batch_size=work.batch,
                local_max_grad_norm=setting.clip_norm,
            ),
            callbacks=[clock],
            send_metrics_to_platform=False,
        )  # fmt: skip
    return clock
