"""The catalogue: every method is a line. Look one up by the name its paper gives it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fednb.algorithms import parts
from fednb.algorithms.cards import Card, pseudo_code
from fednb.algorithms.sums import added, built, terms
from fednb.base.inputs import shown
from fednb.core.cost import cost
from fednb.core.rounds import BadMethod, Method
from fednb.filters import Filter, GaussianDetrend, HighPass, LocalAverage

if TYPE_CHECKING:
    import pandas as pd


class UnknownMethod(KeyError):
    """A name that is not in the catalogue."""

    def __str__(self) -> str:
        return str(self.args[0])


def spec_grad_filter(base: Method | str, filter: Filter | None = None) -> Method:
    """SpecGradFilter on top of any method: filters the data's gradient, leaves corrections alone (§V-B).

    >>> fn.spec_grad_filter("FedDyn").name
    'FedDyn + HighPass(0.05)'
    """
    base = method(base)
    filter = HighPass(ratio=0.05) if filter is None else filter
    return Method(f"{base.name} + {filter.short}", parts.FilterGradient(filter), *base.parts)


def _named(name: str, made: Method) -> Method:
    return Method(name, *made.parts)


@dataclass(frozen=True)
class Listing:
    """A catalogue line: the method and the paper that it is from."""

    method: Method
    paper: str


CATALOGUE: dict[str, Listing] = {}
ALIASES: dict[str, str] = {}


def _add(made: Method, paper: str, *aliases: str) -> Method:
    CATALOGUE[made.name] = Listing(made, paper)
    ALIASES.update({_simplified(name): made.name for name in (made.name, *aliases)})
    return made


def _simplified(name: str) -> str:
    """Names are compared without case, spaces and punctuation but for "+": "FedFFT-D" is "fedfft_d" is "fedfftd"."""
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def method(name: str | Method, **parameters: Any) -> Method:
    """A method by the name its paper gives it, or a sum of a method and ideas, with other parameters where given.

    >>> fn.method("fedfft-d", rho=0.05, ratio=0.02).parameters()["ratio"]
    0.02
    >>> fn.method("fedsmoo + highpass(0.01)").parts[1]
    FilterPerturbation(filter=HighPass(where='*', ratio=0.01))
    """
    if isinstance(name, Method):
        return name.but(**parameters) if parameters else name
    if not isinstance(name, str):
        raise UnknownMethod(f"no method {shown(name)}; name one by its text. `fednb ls methods` lists all.")
    if _simplified(name) not in ALIASES and "+" in name and len(terms(name)) > 1:
        return _sum(name).but(**parameters)
    if _simplified(name) not in ALIASES:
        near = difflib.get_close_matches(_simplified(name)[:100], ALIASES, n=3, cutoff=0.3)
        closest = ", ".join(dict.fromkeys(ALIASES[n] for n in near)) or "none"
        listed = f"`fednb ls methods` lists all {len(CATALOGUE)}."
        raise UnknownMethod(f"no method {shown(name)}; closest: {closest}. {listed}")
    return CATALOGUE[ALIASES[_simplified(name)]].method.but(**parameters)


def _sum(text: str) -> Method:
    """A method and what is added to it, term by term: methods, parts or filters."""
    first, *others = terms(text)
    made = method(first)
    for term in others:
        made = added(made, method(term) if _simplified(term) in ALIASES else built(term))
    return Method(text, *made.parts)


Axes = dict[str, dict[str, str]]  # such as {"ascent": {"no ascent": "", "SAM": "sam(0.1)"}}


def sums(axes: Axes) -> Iterator[tuple[dict[str, str], Method | BadMethod]]:
    """FedAvg with one idea of every axis, all with all, under the ideas' names; where they make no method, the reason.

    >>> [str(m) for _, m in sums({"ascent": {"none": "", "SAM": "sam(0.1)"}, "correction": {"dual": "dyn(10)"}})]
    ['fedavg + dyn(10)', 'fedavg + sam(0.1) + dyn(10)']
    """
    for names in product(*axes.values()):
        chosen = dict(zip(axes, names, strict=True))
        ideas = [axes[axis][name] for axis, name in chosen.items()]
        try:
            yield chosen, method(" + ".join(["fedavg", *filter(None, ideas)]))
        except BadMethod as reason:
            yield chosen, reason


FEDAVG = _add(Method("FedAvg"), "McMahan et al. 2017")
FEDPROX = _add(Method("FedProx", parts.Prox(mu=0.1)), "Li et al. 2020")
SCAFFOLD = _add(Method("SCAFFOLD", parts.Scaffold()), "Karimireddy et al. 2020")
FEDDYN = _add(Method("FedDyn", parts.Dyn(beta=10.0)), "Acar et al. 2021")
FEDCM = _add(Method("FedCM", parts.ClientMomentum(alpha=0.1)), "Xu et al. 2021")

# Ascents: where the gradient is taken
FEDSAM = _add(Method("FedSAM", parts.Sam(rho=0.1)), "Qu et al. 2022")
MOFEDSAM = _add(Method("MoFedSAM", parts.Sam(rho=0.1), parts.ClientMomentum(alpha=0.1)), "Qu et al. 2022")
FEDGAMMA = _add(Method("FedGAMMA", parts.Sam(rho=0.1), parts.Scaffold()), "Dai et al. 2024", "FedSAM-S")
FEDSPEED = _add(Method("FedSpeed", parts.Sam(rho=0.1), parts.Dyn(beta=10.0)), "Sun et al. 2023", "FedSAM-D")
FEDSMOO = _add(Method("FedSMOO", parts.SmooDual(rho=0.1), parts.Dyn(beta=10.0)), "Sun et al. 2023")
FEDLESAM = _add(Method("FedLESAM", parts.Lesam(rho=0.1)), "Fan et al. 2024")
FEDLESAM_S = _add(FEDLESAM.plus(parts.Scaffold(), name="FedLESAM-S"), "Fan et al. 2024")
FEDLESAM_D = _add(FEDLESAM.plus(parts.Dyn(beta=10.0), name="FedLESAM-D"), "Fan et al. 2024")
FEDGLOSS = _add(Method("FedGloSS", parts.Gloss(rho=0.15, rho_l=0.15, beta=10.0)), "Caldarola et al. 2025")
FEDWMSAM = _add(Method("FedWMSAM", parts.WmsamAscent(), parts.WmsamWeight(), parts.WmsamMomentum()), "FedWMSAM")
FEDFSA = _add(
    Method("FedFSA", parts.ClientRate(), parts.FlexibleRadius(rho=0.1, rho_larger=0.2), parts.FsaMomentum()), "FedFSA"
)

# Filters of perturbations
FEDFFT = _add(
    Method("FedFFT", parts.Sam(rho=0.1), parts.FilterPerturbation(HighPass(ratio=0.01))),
    "FedFFT",
    "FedFFT-A",
    "FedFFT-FedAvg",
)
FEDFFT_S = _add(FEDFFT.plus(parts.Scaffold(), name="FedFFT-S"), "FedFFT", "FedFFT-SCAFFOLD")
FEDFFT_D = _add(FEDFFT.plus(parts.Dyn(beta=10.0), name="FedFFT-D"), "FedFFT", "FedFFT-FedDyn")

# Aggregation
UNIFORM = _add(Method("Uniform", parts.Uniform()), "FedSCAM")
FEDAVGM = _add(Method("FedAvgM", parts.ServerMomentum(beta=0.9)), "Hsu et al. 2019")
QFEDAVG = _add(Method("q-FedAvg", parts.Fairness(q=0.1)), "Li et al. 2020")
FEDLW = _add(Method("FedLW", parts.LossWeights()), "Yao et al. 2025")
FEDNOLOWE = _add(Method("FedNoLoWe", parts.NormalisedLoss()), "Le et al. 2025")
FEDLWSAM = _add(Method("FedLWSAM", parts.Sam(rho=0.05), parts.LossWeights()), "FedSCAM")
FEDDISCO = _add(Method("FedDisco", parts.Discrepancy(a=0.5, b=0.1)), "Ye et al. 2023")
FEDAWA = _add(Method("FedAWA", parts.AdaptiveWeights()), "Shi et al. 2025")
FEDLWS = _add(Method("FedLWS", parts.LayerShrink()), "Shi et al. 2025")
FEDSCAM = _add(
    Method("FedSCAM", parts.ScamPilot(), parts.ScamRadius(), parts.ScamWeights(), parts.ScamConflict()),
    "FedSCAM",
    "FedSCAM (Full)",
)
FEDSCAM_WA = _add(
    Method("FedSCAM (WA)", parts.ScamPilot(sam=False), parts.ScamWeights(), parts.ScamConflict()), "FedSCAM"
)
FEDSCAM_SAM = _add(Method("FedSCAM (SAM)", parts.ScamPilot(), parts.ScamRadius()), "FedSCAM")

# Personalised
FEDAVG_FT = _add(Method("FedAvg-FT", parts.Uniform()), "FedFSA")  # tuned by the setting: evaluation="personal"
FEDPER = _add(Method("FedPer", parts.PrivateHead()), "Arivazhagan et al. 2019")
FEDALA = _add(Method("FedALA", parts.LocalAggregation()), "Zhang et al. 2023")
FEDCR = _add(
    Method("FedCR", parts.PrivateHead(), parts.Uniform(), parts.ClassGaussians(beta=1e-3)), "Zhang et al. 2023"
)

# Products that the papers print
FEDFFT_FEDAWA = _add(FEDFFT.plus(parts.AdaptiveWeights(), name="FedFFT-FedAWA"), "FedFFT", "FedAWA + FFT")
FEDSAM_FEDPER = _add(Method("FedSAM-FedPer", parts.Sam(rho=0.1), parts.PrivateHead()), "FedFFT", "FedPer + SAM")
FEDFFT_FEDPER = _add(
    Method(
        "FedFFT-FedPer",
        parts.Sam(rho=0.1),
        parts.FilterPerturbation(HighPass(ratio=0.01, where="@body")),
        parts.PrivateHead(),
    ),
    "FedFFT",
    "FedPer + FFT",
)
FEDSAM_FSA = _add(Method("FedSAM + FSA", parts.FlexibleRadius()), "FedFSA")
FEDSPEED_FSA = _add(Method("FedSpeed + FSA", parts.FlexibleRadius(), parts.Dyn(beta=10.0)), "FedFSA")
FEDALA_FSA = _add(
    Method("FedALA + FSA", parts.LocalAggregation(), parts.ClientRate(), parts.FlexibleRadius(), parts.FsaMomentum()),
    "FedFSA",
)

SGF = "SpecGradFilter"
SPECGRADFILTER = _add(_named(SGF, spec_grad_filter(FEDAVG)), SGF, "SpecGradFilter-FFT", "SpecGradFilter-FedAvg")
SGF_LAP_D = _add(_named("SpecGradFilter (LAP-D)", spec_grad_filter(FEDAVG, LocalAverage())), SGF)
SGF_GD = _add(_named("SpecGradFilter (GD)", spec_grad_filter(FEDAVG, GaussianDetrend())), SGF)
for _base in (FEDPROX, SCAFFOLD, FEDDYN, FEDCM, FEDAWA):
    _add(_named(f"{SGF}-{_base.name}", spec_grad_filter(_base)), SGF, f"{_base.name} + {SGF}")


def methods() -> pd.DataFrame:
    """The catalogue as a table; passes, traffic and state are observed by running each method, not typed in.

    >>> fn.methods().loc[["FedAvg", "FedSAM", "SCAFFOLD"], ["passes per step", "traffic vs FedAvg"]]
              passes per step  traffic vs FedAvg
    method
    FedAvg                1.0                1.0
    FedSAM                2.0                1.0
    SCAFFOLD              1.0                2.0
    """
    import pandas as pd

    rows = []
    for name, entry in CATALOGUE.items():
        seen = cost(entry.method)
        settable = ", ".join(
            f"{k}={v!r}"
            for k, v in entry.method.parameters().items()
            if k.rpartition(".")[2] not in ("where", "reading")
        )
        rows.append(
            {
                "method": name,
                "paper": entry.paper,
                "passes per step": seen.passes,
                "extra per round": seen.extra,
                "down": seen.down,
                "up": seen.up,
                "traffic vs FedAvg": seen.traffic,
                "kept per client": seen.kept,
                "parameters": settable,
            }
        )
    return pd.DataFrame(rows).set_index("method")


def card(*which: str | Method) -> Card:
    """Print methods as composed pseudo-code, each line with the part that it comes from.

    >>> card = fn.card("FedSAM")
    FedSAM   [Sam(rho=0.1)]
      each client, once  start     w_k ← w
      each step          perturb   δ ← ρ ∇L(w_k) / ‖∇L(w_k)‖                                  Sam
                         gradient  g ← ∇L(w_k + δ)
                         correct   v ← g
                                   w_k ← w_k − η (clip(v) + wd · w_k)
      each client, once  finish    Δ_k ← w_k − w
      server             weigh     p_k ∝ n_k
                         server    w ← w + step,  step = η_g Σ p_k Δ_k
    """
    text = "\n\n".join(pseudo_code(method(m)) for m in which)
    print(text)
    return Card(text)
