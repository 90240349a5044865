"""Runs for MLflow, in a database in a folder of one's own: no server is asked. Needs the package mlflow.

By itself the package tells its makers how it is used; here it does not, unless you set MLFLOW_DISABLE_TELEMETRY=false.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fednb.base.files import new_folder
from fednb.base.imports import installed
from fednb.runs.callbacks.callback import Callback, numbers, title
from fednb.runs.result import Run


class MLflow(Callback):
    """Write every number of every round to FOLDER/mlflow.db; `mlflow ui --backend-store-uri sqlite:///...` shows it.

    uri: a tracking store of your own in its place; only then may another machine be asked.

    >>> log = fn.callbacks.MLflow("logs")                     # fn.run(setting, "FedAvg", on_round=log)
    >>> log.uri.startswith("sqlite:///") and log.uri.endswith("logs/mlflow.db")
    True
    """

    def __init__(self, folder: str | Path = "mlflow", experiment: str = "fednb", uri: str = "") -> None:
        self.folder, self.experiment = Path(folder).absolute(), experiment
        self.uri = uri or f"sqlite:///{self.folder / 'mlflow.db'}"
        self.client: Any = None
        self.id = ""

    def start(self, run: Run) -> None:
        """Begin a run in the experiment, with the setting and the method's parameters."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        package = installed("mlflow", "fn.callbacks.MLflow")
        new_folder(self.folder)
        self.client = package.MlflowClient(tracking_uri=self.uri)
        found = self.client.get_experiment_by_name(self.experiment)
        place = (self.folder / "artifacts").as_uri()
        number = found.experiment_id if found else self.client.create_experiment(self.experiment, place)
        self.id = self.client.create_run(number, run_name=title(run)).info.run_id
        told = {"method": run.method.name, "seed": run.seed, "key": run.key, **run.setting.plain()}
        for name, value in (told | {f"method.{k}": v for k, v in run.method.parameters().items()}).items():
            self.client.log_param(self.id, name, str(value)[:500])

    def __call__(self, row: dict[str, Any]) -> None:
        """A round: a metric for each of its numbers."""
        for name, value in numbers(row).items():
            self.client.log_metric(self.id, name, value, step=int(row["round"]) + 1)

    def end(self, run: Run) -> None:
        """End the run; one that diverged or was interrupted has failed."""
        self.client.set_terminated(self.id, "FINISHED" if run.status == "finished" else "FAILED")
