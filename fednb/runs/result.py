"""A run as the store has it: its history, its accuracy, its model and its clients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from fednb import models
from fednb.base.files import save_tensors
from fednb.core.rounds import Method
from fednb.data import identity
from fednb.data.partition import counts
from fednb.engines.objective import Objective
from fednb.engines.problem import clients_of, data_of, participants
from fednb.engines.setting import Setting
from fednb.runs import probes
from fednb.runs.keys import own_model
from fednb.runs.store import Entry

if TYPE_CHECKING:
    import pandas as pd


class OtherModel(ValueError):
    """A run whose model's name is now another model's."""


class NotProbed(RuntimeError):
    """A round that a run did not reach."""


def export_path(file: str | Path) -> Path:
    """The file to which a model is exported; refused where its name does not end with .safetensors."""
    path = Path(file)
    if path.suffix != ".safetensors":
        raise ValueError(f"export: {path} must end with .safetensors")
    return path


@dataclass(frozen=True)
class Run:
    """A run as the store has it."""

    entry: Entry
    setting: Setting
    method: Method
    seed: int

    @property
    def key(self) -> str:
        return self.entry.key

    @cached_property
    def about(self) -> dict[str, Any]:
        return self.entry.about()

    @property
    def status(self) -> str:
        """finished, diverged, or running (also where it was interrupted)."""
        return self.about.get("status", "absent")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return self.entry.history()

    @property
    def rounds_done(self) -> int:
        """How many rounds are finished. A personalised run has one row more, for tuned classifiers."""
        return sum(not row.get("tuned") for row in self.rows)

    @cached_property
    def history(self):
        """One row per round, as a pandas table."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def accuracies(self) -> list[float]:
        """Test accuracy in percent, of the rounds that were evaluated and finite."""
        return self._finite("accuracy")

    def _finite(self, column: str) -> list[float]:
        """The numbers of one column of the history, of the rounds that have one."""
        return [row[column] for row in self.rows if row.get(column) is not None and isfinite(row[column])]

    @property
    def accuracy_last(self) -> float | None:
        """Test accuracy of the last round; None where the run diverged."""
        return self.accuracies[-1] if self.accuracies and self.status == "finished" else None

    @property
    def accuracy_best(self) -> float | None:
        """The best test accuracy of any round: chosen on the test set, so too high. None where the run diverged."""
        return max(self.accuracies, default=None) if self.status != "diverged" else None

    @property
    def accuracy_last_ten(self) -> float | None:
        """The mean test accuracy of the last ten rounds that were evaluated; None where the run diverged."""
        return float(np.mean(self.accuracies[-10:])) if self.accuracy_last is not None else None

    @property
    def accuracy_by_validation(self) -> float | None:
        """Test accuracy of the round with the best validation accuracy, the first of several.

        None where the run diverged, or has no validation data (see `Setting.validation`).
        """
        there = [row for row in self.rows if row.get("validation_accuracy") is not None]
        if not there or self.status == "diverged":
            return None
        return max(there, key=lambda row: row["validation_accuracy"])["accuracy"]

    @property
    def validation_accuracy(self) -> float | None:
        """The validation accuracy by which parameters are chosen: of the best round, the last, or the last ten.

        Which of them is `Setting.report`. None where the run diverged, or has no validation data.
        """
        seen = self._finite("validation_accuracy")
        if not seen or self.status == "diverged":
            return None
        return {"best": max(seen), "last": seen[-1], "mean_last_10": float(np.mean(seen[-10:]))}[self.setting.report]

    @property
    def accuracy(self) -> float | None:
        """The test accuracy that the setting reports; where it has validation data, the best round is the best there.

        None where the run diverged.
        """
        if self.setting.report == "mean_last_10":
            return self.accuracy_last_ten
        if self.setting.report == "last":
            return self.accuracy_last
        return self.accuracy_by_validation if self.setting.validation else self.accuracy_best

    def measured(self, name: str) -> float | None:
        """The value of one of the setting's metrics after the last round; None where the run diverged."""
        seen = self._finite(name)
        return seen[-1] if seen and self.status == "finished" else None

    @cached_property
    def w(self) -> Tensor:
        """The global model's weights after the last finished round."""
        return self.entry.weights()["w"]

    @property
    def weights_sha256(self) -> str:
        """The digest of the weights and buffers, as recorded when they were written."""
        return self.entry.weights_sha256()

    def state_dict(self) -> dict[str, Tensor]:
        """The global model's weights and buffers after the last finished round, by name, as torch has them.

        >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
        >>> state = fn.run(setting, "FedSAM", progress=False).state_dict()
        >>> sum(x.numel() for x in state.values())
        22602
        """
        return self.model().state_dict()

    def model(self) -> nn.Module:
        """The global model after the last finished round, on the CPU and in evaluation mode.

        OtherModel where another one has been entered under its name since.

        >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
        >>> model = fn.run(setting, "FedSAM", progress=False).model()
        >>> model(torch.zeros(1, 1, 8, 8)).shape
        torch.Size([1, 10])
        """
        saved, data = self.entry.weights(), data_of(self.setting)
        made = models.build(self.setting.model, data.classes, data.input, seed=self.seed).to(saved["w"].dtype)
        form = Objective(made)
        if (form.layout.total, form.buffers.total) != (len(saved["w"]), len(saved["b"])):
            raise OtherModel(f"run {self.key} has {len(saved['w'])} weights, and model {self.setting.model!r} has now "
                             f"{form.layout.total}: another took its name; enter the former again")  # fmt: skip
        refuse_other_model(self)
        made.load_state_dict(form.layout.tensors(saved["w"]) | form.buffers.tensors(saved["b"]), strict=False)
        return made.eval()

    def export(self, file: str | Path) -> Path:
        """Write the global model to a safetensors file, with the run's key, method, setting and round in its metadata.

        >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
        >>> run = fn.run(setting, "FedSAM", progress=False)
        >>> path = run.export(run.entry.folder / "model.safetensors")
        >>> from safetensors.torch import load_file
        >>> load_file(path).keys() == run.state_dict().keys()
        True
        """
        path = export_path(file)
        rounds = self.rounds_done
        words = {"run": self.key, "method": self.method.name, "parts": repr(self.method), "seed": str(self.seed),
                 "rounds": str(rounds), "setting": json.dumps(self.setting.plain())}  # fmt: skip
        state = self.state_dict()
        try:
            save_tensors(path, state, words)
        except OSError as error:
            raise ValueError(f"export: {path} cannot be written ({error.strerror or error})") from error
        return path

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per client: its training samples, how many classes they have, and in how many rounds it took part.

        OtherSamples where other data have been entered under their name, or lie under it, since.

        >>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
        >>> clients = fn.run(setting, "FedSAM", progress=False).clients
        >>> list(clients), int(clients["samples"].sum()), int(clients["rounds"].sum())
        (['samples', 'classes', 'rounds'], 100, 4)
        """
        import pandas as pd

        refuse_other_data(self)
        data = data_of(self.setting)
        held = counts(data.y.numpy(), clients_of(self.setting, self.seed, data), data.classes)
        rounds = range(self.rounds_done)
        came = np.bincount([i for t in rounds for i in participants(self.setting, self.seed, t)], minlength=len(held))
        columns = {"samples": held.sum(1), "classes": (held > 0).sum(1), "rounds": came}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(held), name="client"))

    def probed(self, t: int) -> probes.Probed:
        """What the run's probe kept in round t."""
        return probes.read_probe(self.entry, t)

    def all_probed(self, probe: probes.Probe) -> list[probes.Probed]:
        """What was kept in all rounds of a probe."""
        if missing := [t for t in probe.rounds if t >= len(self.rows)]:
            raise NotProbed(f"run {self.key} ({self.method}) is {self.status} after {len(self.rows)} rounds; "
                            f"its probe of round {missing[0]} was never taken")  # fmt: skip
        return [self.probed(t) for t in probe.rounds]

    def summary(self) -> dict[str, Any]:
        """The run in one line of JSON; DamagedRun where the weights that it names are not there any more."""
        if not self.entry.bare:
            self.entry.load_state()
        seconds = [row["seconds"] for row in self.rows]
        return {
            "key": self.key,
            "status": self.status,
            "method": self.method.name,
            "rounds": self.rounds_done,
            "accuracy_last": self.accuracy_last,
            "accuracy_best": self.accuracy_best,
            "seconds_per_round": float(np.mean(seconds)) if seconds else None,
            "weights_sha256": self.weights_sha256,
            "engine": self.about["engine"],
            "device": self.about["device"],
        }


def refuse_others(run: Run) -> None:
    """OtherModel or OtherSamples where a run's model or data have another's name now, before they are measured."""
    refuse_other_model(run)
    refuse_other_data(run)


def refuse_other_model(run: Run) -> None:
    """OtherModel where another model of the user's has been entered under the name of the run's."""
    known = run.entry.about().get("model")
    if known and known != own_model(run.setting):
        raise OtherModel(f"run {run.entry.key} was made with another model {run.setting.model!r} than has that name "
                         "now; enter the former again with fn.add_model")  # fmt: skip


def refuse_other_data(run: Run) -> None:
    """OtherSamples where other data than the run's have been entered under their name, or lie under it."""
    identity.check(run.entry.about().get("data"), run.setting.data, run.entry.key, thoroughly=True)
