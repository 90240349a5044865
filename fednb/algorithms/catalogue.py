"""The catalogue: every method is a line. Look one up by the name its paper gives it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fednb.algorithms.cards import Card, pseudo_code
from fednb.algorithms.parts import (
    AdaptiveWeights,
    ClassGaussians,
    ClientMomentum,
    ClientRate,
    Discrepancy,
    Dyn,
    Fairness,
    FilterGradient,
    FilterPerturbation,
    FlexibleRadius,
    FsaMomentum,
    Gloss,
    LayerShrink,
    Lesam,
    LocalAggregation,
    LossWeights,
    NormalisedLoss,
    PrivateHead,
    Prox,
    Sam,
    Scaffold,
    ScamConflict,
    ScamPilot,
    ScamRadius,
    ScamWeights,
    ServerMomentum,
    SmooDual,
    Uniform,
    WmsamAscent,
    WmsamMomentum,
    WmsamWeight,
)
from fednb.algorithms.sums import added, built, terms
from fednb.base.inputs import shown
from fednb.core.rounds import BadMethod, Method, cost
from fednb.filters import Filter, GaussianDetrend, HighPass, LocalAverage

if TYPE_CHECKING:
    import pandas as pd


class UnknownMethod(KeyError):
    """A name that is not in the catalogue."""

    def __str__(self) -> str:
        return str(self.args[0])


def spec_grad_filter(base: Method | str, filter: Filter | None = None) -> Method:
    """SpecGradFilter on top of any method: filters the data's gradient, leaves corrections alone (§V-B)."""
    base = method(base)
    filter = HighPass(ratio=0.05) if filter is None else filter
    return Method(f"{base.name} + {filter.short}", FilterGradient(filter), *base.parts)


def _named(name: str, made: Method) -> Method:
    return Method(name, *made.parts)


@dataclass(frozen=True)
class Entry:
    """A catalogue line: the method and the paper that it is from."""

    method: Method
    paper: str


CATALOGUE: dict[str, Entry] = {}
ALIASES: dict[str, str] = {}


def _add(made: Method, paper: str, *aliases: str) -> Method:
    CATALOGUE[made.name] = Entry(made, paper)
    ALIASES.update({_plain(name): made.name for name in (made.name, *aliases)})
    return made


def _plain(name: str) -> str:
    """Names are compared without case, spaces and punctuation but for "+": "FedFFT-D" is "fedfft_d" is "fedfftd"."""
    return re.sub(r"[^a-z0-9+]", "", name.lower())


def method(name: str | Method, **parameters: Any) -> Method:
    """A method by the name its paper gives it, or a sum of a method and ideas, with other parameters where given.

    >>> method("fedfft-d", rho=0.05, ratio=0.02).parameters()["ratio"]
    0.02
    >>> method("fedsmoo + highpass(0.01)").parts[1]
    FilterPerturbation(filter=HighPass(where='*', ratio=0.01))
    """
    if isinstance(name, Method):
        return name.but(**parameters) if parameters else name
    if not isinstance(name, str):
        raise UnknownMethod(f"no method {shown(name)}; name one by its text. `fednb ls methods` lists all.")
    if _plain(name) not in ALIASES and "+" in name and len(terms(name)) > 1:
        return _sum(name).but(**parameters)
    if _plain(name) not in ALIASES:
        near = difflib.get_close_matches(_plain(name)[:100], ALIASES, n=3, cutoff=0.3)
        closest = ", ".join(dict.fromkeys(ALIASES[n] for n in near)) or "none"
        listed = f"`fednb ls methods` lists all {len(CATALOGUE)}."
        raise UnknownMethod(f"no method {shown(name)}; closest: {closest}. {listed}")
    return CATALOGUE[ALIASES[_plain(name)]].method.but(**parameters)


def _sum(text: str) -> Method:
    """A method and what is added to it, term by term: methods, parts or filters."""
    first, *others = terms(text)
    made = method(first)
    for term in others:
        made = added(made, method(term) if _plain(term) in ALIASES else built(term))
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
FEDPROX = _add(Method("FedProx", Prox(mu=0.1)), "Li et al. 2020")
SCAFFOLD = _add(Method("SCAFFOLD", Scaffold()), "Karimireddy et al. 2020")
FEDDYN = _add(Method("FedDyn", Dyn(beta=10.0)), "Acar et al. 2021")
FEDCM = _add(Method("FedCM", ClientMomentum(alpha=0.1)), "Xu et al. 2021")

# Ascents: where the gradient is taken
FEDSAM = _add(Method("FedSAM", Sam(rho=0.1)), "Qu et al. 2022")
MOFEDSAM = _add(Method("MoFedSAM", Sam(rho=0.1), ClientMomentum(alpha=0.1)), "Qu et al. 2022")
FEDGAMMA = _add(Method("FedGAMMA", Sam(rho=0.1), Scaffold()), "Dai et al. 2024", "FedSAM-S")
FEDSPEED = _add(Method("FedSpeed", Sam(rho=0.1), Dyn(beta=10.0)), "Sun et al. 2023", "FedSAM-D")
FEDSMOO = _add(Method("FedSMOO", SmooDual(rho=0.1), Dyn(beta=10.0)), "Sun et al. 2023")
FEDLESAM = _add(Method("FedLESAM", Lesam(rho=0.1)), "Fan et al. 2024")
FEDLESAM_S = _add(FEDLESAM.plus(Scaffold(), name="FedLESAM-S"), "Fan et al. 2024")
FEDLESAM_D = _add(FEDLESAM.plus(Dyn(beta=10.0), name="FedLESAM-D"), "Fan et al. 2024")
FEDGLOSS = _add(Method("FedGloSS", Gloss(rho=0.15, rho_l=0.15, beta=10.0)), "Caldarola et al. 2025")
FEDWMSAM = _add(Method("FedWMSAM", WmsamAscent(), WmsamWeight(), WmsamMomentum()), "FedWMSAM")
FEDFSA = _add(Method("FedFSA", ClientRate(), FlexibleRadius(rho=0.1, rho_larger=0.2), FsaMomentum()), "FedFSA")

# Filters of perturbations
FEDFFT = _add(
    Method("FedFFT", Sam(rho=0.1), FilterPerturbation(HighPass(ratio=0.01))), "FedFFT", "FedFFT-A", "FedFFT-FedAvg"
)
FEDFFT_S = _add(FEDFFT.plus(Scaffold(), name="FedFFT-S"), "FedFFT", "FedFFT-SCAFFOLD")
FEDFFT_D = _add(FEDFFT.plus(Dyn(beta=10.0), name="FedFFT-D"), "FedFFT", "FedFFT-FedDyn")

# Aggregation
UNIFORM = _add(Method("Uniform", Uniform()), "FedSCAM")
FEDAVGM = _add(Method("FedAvgM", ServerMomentum(beta=0.9)), "Hsu et al. 2019")
QFEDAVG = _add(Method("q-FedAvg", Fairness(q=0.1)), "Li et al. 2020")
FEDLW = _add(Method("FedLW", LossWeights()), "Yao et al. 2025")
FEDNOLOWE = _add(Method("FedNoLoWe", NormalisedLoss()), "Le et al. 2025")
FEDLWSAM = _add(Method("FedLWSAM", Sam(rho=0.05), LossWeights()), "FedSCAM")
FEDDISCO = _add(Method("FedDisco", Discrepancy(a=0.5, b=0.1)), "Ye et al. 2023")
FEDAWA = _add(Method("FedAWA", AdaptiveWeights()), "Shi et al. 2025")
FEDLWS = _add(Method("FedLWS", LayerShrink()), "Shi et al. 2025")
FEDSCAM = _add(Method("FedSCAM", ScamPilot(), ScamRadius(), ScamWeights(), ScamConflict()), "FedSCAM", "FedSCAM (Full)")
FEDSCAM_WA = _add(Method("FedSCAM (WA)", ScamPilot(sam=False), ScamWeights(), ScamConflict()), "FedSCAM")
FEDSCAM_SAM = _add(Method("FedSCAM (SAM)", ScamPilot(), ScamRadius()), "FedSCAM")

# Personalised
FEDAVG_FT = _add(Method("FedAvg-FT", Uniform()), "FedFSA")  # tuned by the setting: evaluation="personal"
FEDPER = _add(Method("FedPer", PrivateHead()), "Arivazhagan et al. 2019")
FEDALA = _add(Method("FedALA", LocalAggregation()), "Zhang et al. 2023")
FEDCR = _add(Method("FedCR", PrivateHead(), Uniform(), ClassGaussians(beta=1e-3)), "Zhang et al. 2023")

# Products that the papers print
FEDFFT_FEDAWA = _add(FEDFFT.plus(AdaptiveWeights(), name="FedFFT-FedAWA"), "FedFFT", "FedAWA + FFT")
FEDSAM_FEDPER = _add(Method("FedSAM-FedPer", Sam(rho=0.1), PrivateHead()), "FedFFT", "FedPer + SAM")
FEDFFT_FEDPER = _add(
    Method("FedFFT-FedPer", Sam(rho=0.1), FilterPerturbation(HighPass(ratio=0.01, where="@body")), PrivateHead()),
    "FedFFT",
    "FedPer + FFT",
)
FEDSAM_FSA = _add(Method("FedSAM + FSA", FlexibleRadius()), "FedFSA")
FEDSPEED_FSA = _add(Method("FedSpeed + FSA", FlexibleRadius(), Dyn(beta=10.0)), "FedFSA")
FEDALA_FSA = _add(Method("FedALA + FSA", LocalAggregation(), ClientRate(), FlexibleRadius(), FsaMomentum()), "FedFSA")

SGF = "SpecGradFilter"
SPECGRADFILTER = _add(_named(SGF, spec_grad_filter(FEDAVG)), SGF, "SpecGradFilter-FFT", "SpecGradFilter-FedAvg")
SGF_LAP_D = _add(_named("SpecGradFilter (LAP-D)", spec_grad_filter(FEDAVG, LocalAverage())), SGF)
SGF_GD = _add(_named("SpecGradFilter (GD)", spec_grad_filter(FEDAVG, GaussianDetrend())), SGF)
for _base in (FEDPROX, SCAFFOLD, FEDDYN, FEDCM, FEDAWA):
    _add(_named(f"{SGF}-{_base.name}", spec_grad_filter(_base)), SGF, f"{_base.name} + {SGF}")


def methods() -> pd.DataFrame:
    """The catalogue as a table; passes, traffic and state are observed by running each method, not typed in."""
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
    """Print methods as composed pseudo-code, each line with the part that it comes from."""
    text = "\n\n".join(pseudo_code(method(m)) for m in which)
    print(text)
    return Card(text)
