"""What a round costs, and what it takes to reach an accuracy: rounds, traffic, gradients, seconds."""

from fednb.metrics import cost
from fednb.study.measurements.registry import measurement

measurement("to_target")(cost.to_target)  # FedFFT Tables 4 and 5, SpecGradFilter Tables I and VII
measurement("to_targets")(cost.to_targets)  # FedWMSAM Table 3
measurement("per_round")(cost.per_round)  # FedSCAM Fig. 4
