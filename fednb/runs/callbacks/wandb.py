"""Runs for Weights & Biases, in a folder of one's own: nothing is sent anywhere. Needs the package wandb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fednb.base.files import new_folder
from fednb.base.imports import installed
from fednb.runs.callbacks.callback import Callback, numbers, title
from fednb.runs.result import Run


class WandB(Callback):
    """Write every number of every round to FOLDER/wandb, offline; `wandb sync FOLDER/wandb/offline-run-*` sends it.

    >>> log = fn.callbacks.WandB("logs", project="mine")      # fn.run(setting, "FedAvg", on_round=log)
    >>> log.project
    'mine'
    """

    def __init__(self, folder: str | Path = "wandb-logs", project: str = "fednb") -> None:
        self.folder, self.project = Path(folder).absolute(), project
        self.log: Any = None

    def start(self, run: Run) -> None:
        """Begin an offline run, with the setting and the method's parameters as its configuration."""
        package = installed("wandb", "fn.callbacks.WandB")
        told = {"method": run.method.name, "seed": run.seed, "key": run.key, **run.setting.plain()}
        config = told | {f"method.{k}": str(v) for k, v in run.method.parameters().items()}
        self.log = package.init(
            project=self.project, name=title(run), config=config, dir=str(new_folder(self.folder)), mode="offline"
        )

    def __call__(self, row: dict[str, Any]) -> None:
        """A round: all of its numbers as one step."""
        self.log.log(numbers(row), step=int(row["round"]) + 1)

    def end(self, run: Run) -> None:
        """End the run; one that diverged or was interrupted has failed."""
        self.log.finish(exit_code=0 if run.status == "finished" else 1)
