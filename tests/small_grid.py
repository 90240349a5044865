"""A grid that runs in seconds: two methods on a few digits, with everything kept from both rounds."""

from fednb.runs.grid import Grid, Results

EVERYTHING = ["gradient", "perturbation", "move", "model"]
SETTING = dict(
    data="digits", samples=200, clients=4, participation=1.0, rounds=2, epochs=1, batch=25, precision="fp64",
    partition="dirichlet(alpha=0.5, minimum=10)",
)  # fmt: skip


def small_results(methods=("FedAvg", "FedSAM"), what=EVERYTHING, **changes) -> Results:
    """The finished runs; they land in the store that FEDNB_STORE names."""
    described = dict(setting=SETTING | changes, methods=list(methods), seeds=[0], probe=dict(what=what, rounds=[0, 1]))
    return Grid.of("small", "smoke", described).run(device="cpu", engine="loop")
