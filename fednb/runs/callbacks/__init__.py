"""Callbacks: what is told of every round of a run while it is made. Logs for TensorBoard, MLflow and Weights & Biases.

>>> setting = fn.Setting(samples=100, clients=4, rounds=2, epochs=1, batch=25)
>>> run = fn.run(setting, "FedSAM", progress=False, on_round=lambda row: print(row["round"], row["clients"]))
0 2
1 2
"""

from fednb.base.imports import NotInstalled
from fednb.runs.callbacks.callback import Callback
from fednb.runs.callbacks.mlflow import MLflow
from fednb.runs.callbacks.tensorboard import TensorBoard
from fednb.runs.callbacks.wandb import WandB

__all__ = ["Callback", "MLflow", "NotInstalled", "TensorBoard", "WandB"]
