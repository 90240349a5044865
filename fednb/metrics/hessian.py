"""The sharpest directions of a loss: eigenpairs of its Hessian, from products with vectors alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fednb.base.progress import OnProgress, bar_of
from fednb.base.streams import stream
from fednb.engines.objective import one_thread
from fednb.metrics.cache import Measured, Question
from fednb.metrics.sample import Loss, arithmetic_of, sample_of
from fednb.metrics.tidy import about

if TYPE_CHECKING:
    import pandas as pd

    from fednb.runs.experiment import Run
    from fednb.runs.grid import Results

VERSION = 1  # of what is stored; see `fednb.metrics.cache`
NOISE = 1e-10  # what is left of a vector after orthogonalisation, relative to it, below which nothing is left
METHODS = ("lanczos", "power")

Product = Callable[[Tensor], Tensor]
Watch = Callable[[int, float], None]  # products so far, the worst residual relative to the largest eigenvalue


@dataclass(frozen=True, eq=False)
class Eigen:
    """The eigenpairs of largest magnitude, largest first: values `[k]`, unit vectors `[k, P]`, in double precision.

    >>> found = fn.hessian.top(lambda v: torch.tensor([3.0, 1.0]) * v, torch.zeros(2), count=1)
    >>> isinstance(found, fn.hessian.Eigen), found.converged, found.values.round(decimals=4)
    (True, True, tensor([3.], dtype=torch.float64))
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor  # ‖H v − λ v‖
    products: int
    converged: bool


def product_of(loss: Loss, w: Tensor) -> Product:
    """v ↦ H v, H being the Hessian of the loss at w `[P]`; takes and gives double precision, works in that of w.

    H v is the gradient of ⟨∇L(w), v⟩. A loss that is a sum of `pieces` is taken piece by piece.

    >>> product = fn.hessian.product_of(lambda w: (w**2).sum(), torch.ones(2))
    >>> product(torch.tensor([1.0, 0.0]))
    tensor([2., 0.], dtype=torch.float64)
    """

    def product(v: Tensor) -> Tensor:
        out = torch.zeros_like(w, dtype=torch.float64)
        with arithmetic_of(loss):
            for piece in getattr(loss, "pieces", [loss]):
                out += _one_product(piece, w, v.to(w))
        return out

    return product


def _one_product(loss: Loss, w: Tensor, v: Tensor) -> Tensor:
    leaf = w.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    if not g.requires_grad:  # a linear loss: its gradient does not know w
        return torch.zeros_like(v)
    (hv,) = torch.autograd.grad(g, leaf, v)
    return hv.detach()


def top(
    product: Product, like: Tensor, count: int = 2, method: str = "lanczos", tolerance: float = 1e-3, most: int = 200,
    seed: int = 0, watch: Watch | None = None,
) -> Eigen:  # fmt: skip
    """The `count` eigenpairs of largest magnitude of the symmetric operator `product` on vectors like `like` `[P]`.

    method: "lanczos" (few products, keeps a vector of each) or "power" (the papers'; more products, keeps `count`
    vectors). Both start from vectors drawn from `seed` and stop when ‖H v − λ v‖ ≤ tolerance · |λ_1| for every pair, or
    after `most` products. An eigenvalue's error is then at most the residual, and its square over the gap to the next.

    >>> H = torch.diag(torch.tensor([4.0, -5.0, 1.0], dtype=torch.float64))
    >>> fn.hessian.top(lambda v: H @ v, torch.zeros(3), count=2).values.round(decimals=3)
    tensor([-5.,  4.], dtype=torch.float64)
    """
    if method not in METHODS:
        raise ValueError(f"method = {method!r}: must be one of {', '.join(METHODS)}")
    if not 1 <= count <= like.numel() or most < count:
        raise ValueError(f"count = {count}, most = {most}: wanted is 1 ≤ count ≤ {like.numel()} and most ≥ count")
    starts = orthonormal(_drawn(like, count, seed))
    return (lanczos if method == "lanczos" else power)(product, starts, tolerance, most, watch or _silent)


def lanczos(product: Product, starts: Tensor, tolerance: float, most: int, watch: Watch) -> Eigen:
    """Lanczos with a block of start vectors `[k, P]` and full reorthogonalisation.

    The basis Q grows by what H q_j adds to it. T = Qᵀ H Q is known for the vectors that H was applied to, and so is the
    residual of a Ritz pair (θ, Q s): the rows of T below them, times s. As many starts as pairs are wanted, so that
    an eigenvalue of that multiplicity is found as often as it is there.

    >>> H = torch.diag(torch.tensor([4.0, -5.0, 1.0], dtype=torch.float64))
    >>> starts = fn.hessian.orthonormal(torch.ones(1, 3, dtype=torch.float64))
    >>> fn.hessian.lanczos(lambda v: H @ v, starts, tolerance=1e-3, most=10, watch=lambda n, left: None).products
    3
    """
    count, P = starts.shape
    size = min(most + count, P)
    basis, T = list(starts), torch.zeros(size, size, dtype=torch.float64)
    for j in range(most):
        z = product(basis[j]).double()
        rest, along = _outside(z, basis)
        T[: len(basis), j] = along.cpu()
        if len(basis) < P and rest.norm() > NOISE * z.norm():
            T[len(basis), j] = rest.norm().cpu()
            basis.append(rest / rest.norm())
        if j + 1 < count:
            continue
        values, s = _ritz(T[: j + 1, : j + 1], count)
        residuals = (T[j + 1 : len(basis), : j + 1] @ s).norm(dim=0)
        watch(j + 1, _worst(residuals, values))
        if _worst(residuals, values) <= tolerance or j + 1 == len(basis):
            break
    return _eigen(values, torch.stack([_combined(c, basis) for c in s.T]), residuals, j + 1, tolerance)


def power(product: Product, starts: Tensor, tolerance: float, most: int, watch: Watch) -> Eigen:
    """Power iteration, one pair after another, each orthogonal to those before (deflation).

    What one pair misses, later ones miss too: each is asked for tolerance / √k, so that all k keep the tolerance.

    >>> H = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    >>> starts = fn.hessian.orthonormal(torch.ones(1, 2, dtype=torch.float64))
    >>> found = fn.hessian.power(lambda v: H @ v, starts, tolerance=1e-3, most=50, watch=lambda n, left: None)
    >>> found.values.round(decimals=3)
    tensor([4.], dtype=torch.float64)
    """
    pairs: list[tuple[float, Tensor, float]] = []
    products, share = 0, tolerance / len(starts) ** 0.5
    for start in starts:
        scale = max((abs(value) for value, _, _ in pairs), default=0.0)
        found = [v for _, v, _ in pairs]
        pair, used = _climb(product, start, found, scale, share, most // len(starts), products, watch)
        pairs.append(pair)
        products += used
    pairs.sort(key=lambda pair: -abs(pair[0]))
    values, vectors, residuals = zip(*pairs, strict=True)
    return _eigen(_double(values), torch.stack(vectors), _double(residuals), products, tolerance)


def _climb(
    product: Product, v: Tensor, found: list[Tensor], scale: float, tolerance: float, most: int, before: int,
    watch: Watch,
) -> tuple[tuple[float, Tensor, float], int]:  # fmt: skip
    """v ← H v / ‖H v‖ outside what was found before, until H v is along v; returns λ, v, residual, and products."""
    for used in range(1, most + 1):
        v = _outside(v, found)[0]
        v = v / v.norm()
        whole = product(v).double()
        z = _outside(whole, found)[0]
        value = float(v @ z)
        left = float((z - value * v).norm())
        sharpest = max(scale, abs(value))
        watch(before + used, left / sharpest if sharpest else 0.0)
        if left <= tolerance * sharpest or used == most:
            break
        v = z
    return (value, v, float((whole - value * v).norm())), used


def _outside(z: Tensor, basis: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The part of z orthogonal to a basis, and its coordinates along it; twice, since once leaves rounding behind."""
    along = z.new_zeros(len(basis))
    for _ in range(2):
        for i, q in enumerate(basis):
            inner = q @ z
            z = z - inner * q
            along[i] += inner
    return z, along


def _ritz(T: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The eigenpairs of largest magnitude of a small symmetric matrix."""
    values, s = torch.linalg.eigh((T + T.T) / 2)
    order = values.abs().argsort(descending=True, stable=True)[:count]
    return values[order], s[:, order]


def _worst(residuals: Tensor, values: Tensor) -> float:
    scale = float(values.abs().max())
    return float(residuals.max()) / scale if scale else 0.0


def _combined(coordinates: Tensor, basis: list[Tensor]) -> Tensor:
    out = torch.zeros_like(basis[0])
    for a, q in zip(coordinates.tolist(), basis, strict=False):
        out += a * q
    return out


def _eigen(values: Tensor, vectors: Tensor, residuals: Tensor, products: int, tolerance: float) -> Eigen:
    """With a sign for each vector that does not hang on the start: its largest number is positive."""
    vectors = vectors / vectors.norm(dim=-1, keepdim=True)
    largest = vectors.gather(-1, vectors.abs().argmax(-1, keepdim=True))
    vectors = vectors * torch.where(largest < 0, -1.0, 1.0)
    return Eigen(values, vectors, residuals, products, converged=_worst(residuals, values) <= tolerance)


def orthonormal(x: Tensor) -> Tensor:
    """Rows `[k, P]` made orthogonal to each other and of length 1.

    >>> fn.hessian.orthonormal(torch.tensor([[2.0, 0.0], [1.0, 1.0]]))
    tensor([[1., 0.],
            [0., 1.]])
    """
    out: list[Tensor] = []
    for row in x:
        rest = _outside(row, out)[0]
        out.append(rest / rest.norm())
    return torch.stack(out)


def _drawn(like: Tensor, count: int, seed: int) -> Tensor:
    numbers = stream(seed, "hessian").standard_normal((count, like.numel()))
    return torch.from_numpy(numbers).to(like.device)


def _double(x: tuple[float, ...]) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _silent(products: int, residual: float) -> None:
    pass


@one_thread()
def of_runs(
    results: Results, count: int = 2, samples: int = 500, method: str = "lanczos", tolerance: float = 1e-3,
    most: int = 200, seed: int = 0, device: str = "auto", progress: bool | OnProgress = True,
) -> dict[str, Eigen]:  # fmt: skip
    """The sharpest directions of every run's last global model, by run key, on the same test samples (FedFFT App. D.2).

    The paper takes the best checkpoint; a run keeps its last. Vectors are on the CPU, as precise as the model. What was
    found is kept beside the run.

    >>> found = fn.hessian.of_runs(results, count=1, samples=10, most=2, progress=False)
    >>> len(found), found[results.runs[0].key].vectors.shape[0]
    (2, 1)
    """
    how: dict[str, Any] = dict(count=count, method=method, tolerance=tolerance, most=most, seed=seed)
    runs = {run.key: run for run in results.runs}
    found, made = {}, 0
    with bar_of(most * len(runs), "Hessian", progress, unit="product") as bar:
        for end, (key, run) in enumerate(runs.items(), 1):
            start, asked = bar.n, Question(run, "hessian", VERSION, {**how, "samples": samples, "device": device})

            def watch(products: int, residual: float, start: int = start) -> None:
                bar.say(f"residual {residual:.1e}")
                bar.update(start + products - bar.n)

            made += not asked.answered
            found[key] = _as_eigen(asked.answer(partial(_sharpest, run, samples, device, watch, **how)))
            each = bar.n // made if made else most  # few need as many products as they may: expect what others needed
            bar.expect(bar.n + each * (len(runs) - end))
    return found


def _sharpest(run: Run, samples: int, device: str, watch: Watch, seed: int, **how: Any) -> Measured:
    """The eigenpairs of one run, as they are kept."""
    sample = sample_of(run, samples, seed, device)
    w = sample.place(run.w)
    e = top(product_of(sample, w), w, seed=seed, watch=watch, **how)
    counted = {"products": torch.tensor(e.products), "converged": torch.tensor(e.converged)}
    return {"values": e.values, "vectors": e.vectors.to(w.dtype), "residuals": e.residuals, **counted}


def _as_eigen(x: Measured) -> Eigen:
    return Eigen(x["values"], x["vectors"].double(), x["residuals"], int(x["products"]), bool(x["converged"]))


def table(results: Results, found: dict[str, Eigen]) -> pd.DataFrame:
    """Eigenvalues as a tidy table: order 1 is the largest; with the residual that says how far to trust each.

    >>> found = fn.hessian.of_runs(results, count=1, samples=10, most=2, progress=False)
    >>> fn.hessian.table(results, found)[["method", "measure", "order"]]
       method     measure  order
    0  FedAvg  eigenvalue      1
    1  FedSAM  eigenvalue      1
    """
    import pandas as pd

    rows = []
    for cell, run in results:
        e = found[run.key]
        head = {**about(cell, run, run.rounds_done - 1), "measure": "eigenvalue"}
        rows += [
            {**head, "order": i + 1, "value": float(value), "residual": float(residual), "converged": e.converged}
            for i, (value, residual) in enumerate(zip(e.values, e.residuals, strict=True))
        ]
    return pd.DataFrame(rows)
