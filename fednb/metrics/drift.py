"""How far clients are apart: layer by layer, before and after a filter, and beside a random filter of the same rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednb.base.streams import stream
from fednb.core.vectors import Layout
from fednb.engines.objective import one_thread
from fednb.filters import Filter, HighPass, Shape
from fednb.metrics.spectra import TooFewClients
from fednb.metrics.tidy import probed

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.grid import Results

WHOLE = "all layers"  # the name of the whole model in a column of layers


@dataclass(frozen=True)
class Turned(Filter):
    """A filter in random axes, x ↦ Qᵀ Φ(Q x): Q flips signs and shuffles, drawn from `seed` and the length.

    Q is orthogonal, so a linear filter keeps its rank and its singular values: an orthogonal projection stays one, onto
    a subspace drawn at random, and what it removes has nothing to do with frequency. Of any vector, HighPass in random
    axes removes on average the share that it removes of the dimensions, as a uniformly drawn subspace would.
    A filter that treats coordinates one by one and without regard to sign, such as ClipToMedian, is left as it is.

    >>> x, control = torch.tensor([1.0, 2.0, 3.0, 4.0]), fn.drift.Turned(fn.filters.HighPass(0.5), seed=1)
    >>> control.short, bool(control(x).norm() < x.norm())
    ('HighPass(0.5) in random axes', True)
    """

    filter: Filter = field(default_factory=lambda: HighPass(0.05))
    seed: int = 0
    flat = False

    @classmethod
    def of(cls, filter: Filter, seed: int = 0) -> Turned:
        """The control of a filter, for the same layers."""
        return cls(filter, seed, where=filter.where)

    @property
    def whole(self) -> bool:  # type: ignore[override]
        return self.filter.whole

    @property
    def short(self) -> str:
        return f"{self.filter.short} in random axes"

    def __call__(self, x: Tensor, shape: Shape = None) -> Tensor:
        n = x.shape[-1]
        rng = stream(self.seed, "turned", n)
        order = torch.from_numpy(rng.permutation(n)).to(x.device)
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], n)).to(x)
        return (self.filter((x * signs)[..., order], shape))[..., order.argsort()] * signs


def divergence(x: Tensor, layout: Layout, filter: Filter | None = None) -> dict[str, float]:
    """Δ_l(Φ) = mean over clients of ‖Φ(g_l^k) − Φ(ḡ_l)‖, by layer (SpecGradFilter Eq. 5).

    Without a filter Φ is the identity. For an orthogonal projection Δ_l(Φ) ≤ Δ_l always, so a fall by itself shows
    nothing: `Turned` is what to compare with.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight",), ((1, 2),))
    >>> fn.drift.divergence(torch.tensor([[0.0, 1.0], [0.0, -1.0]]), layout)
    {'fc.weight': 1.0}
    """
    _several(x)
    both = torch.cat([x.double(), x.double().mean(0, keepdim=True)])
    if filter is not None:
        both = layout.map(filter, both)
    return {name: float((z[:-1] - z[-1]).norm(dim=-1).mean()) for name, z in layout.layers(both).items()}


def distances(x: Tensor, layout: Layout, centre: Tensor | None = None) -> dict[str, Tensor]:
    """How far each client is from the centre, `[C]` by layer, and in all layers together.

    x: client models with the global model as centre; or moves, which start at the global model and need none.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("fc.weight",), ((1, 2),))
    >>> fn.drift.distances(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), layout)["fc.weight"]
    tensor([5., 1.], dtype=torch.float64)
    """
    away = x.double() if centre is None else x.double() - centre.double()
    return {name: z.norm(dim=-1) for name, z in _with_whole(away, layout).items()}


def agreement(x: Tensor) -> float:
    """The mean cosine between two clients' vectors `[C, P]`, over all pairs; 1 if all point one way.

    Pairs with a vector of length zero count as 0. With u_k = x_k / ‖x_k‖ the sum over j ≠ k of ⟨u_j, u_k⟩ is
    ‖Σ u_k‖² − Σ ‖u_k‖².

    >>> x = torch.tensor([1.0, 0.0])
    >>> fn.drift.agreement(torch.stack([x, 2 * x])), fn.drift.agreement(torch.stack([x, -x]))
    (1.0, -1.0)
    """
    _several(x)
    u = F.normalize(x.double(), dim=-1, eps=1e-300)
    return float((u.sum(0).square().sum() - u.square().sum()) / (len(u) * (len(u) - 1)))


def agreements(x: Tensor, layout: Layout) -> dict[str, float]:
    """The mean cosine between clients by layer, and of all layers together.

    >>> from fednb.core.vectors import Layout
    >>> layout = Layout(("a", "b"), ((1,), (1,)))
    >>> fn.drift.agreements(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), layout)
    {'a': 1.0, 'b': 0.0, 'all layers': 1.0}
    """
    return {name: agreement(z) for name, z in _with_whole(x, layout).items()}


def drift_by_layer(results: Results) -> pd.DataFrame:
    """Client drift from probed moves: the mean distance of client models from the global one that they received.

    >>> table = fn.drift.drift_by_layer(results)
    >>> list(table["layer"].unique())[-2:], bool((table["value"] > 0).all())
    (['fc2.bias', 'all layers'], True)
    """

    def rows(x: Tensor, layout: Layout) -> list[dict[str, Any]]:
        return [
            {"measure": "drift", "layer": layer, "value": float(z.mean())} for layer, z in distances(x, layout).items()
        ]

    return _tidy(results, "move", rows)


def agreement_by_layer(results: Results, what: str = "gradient") -> pd.DataFrame:
    """The mean cosine between clients from probed runs, by layer and for the whole model.

    >>> table = fn.drift.agreement_by_layer(results, what="gradient")
    >>> list(table["method"].unique()), bool(table["value"].between(-1, 1).all())
    (['FedAvg', 'FedSAM'], True)
    """

    def rows(x: Tensor, layout: Layout) -> list[dict[str, Any]]:
        return [{"measure": "cosine", "layer": name, "value": value} for name, value in agreements(x, layout).items()]

    return _tidy(results, what, rows)


@one_thread()
def _tidy(results: Results, what: str, rows: Any) -> pd.DataFrame:
    import pandas as pd

    found = [{**head, **row} for head, kept in probed(results, what) for row in rows(kept.vectors[what], kept.layout)]
    return pd.DataFrame(found)


def _with_whole(x: Tensor, layout: Layout) -> dict[str, Tensor]:
    return {**layout.layers(x), WHOLE: x}


def _several(x: Tensor) -> None:
    if x.ndim != 2 or len(x) < 2:
        raise TooFewClients(f"vectors of shape {tuple(x.shape)}: at least two clients are needed, [C, P]")
