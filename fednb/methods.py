"""The catalogue: every method is a line. Look one up by the name its paper gives it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fednb.filters import Filter, GaussianDetrend, HighPass, LocalAverage
from fednb.parts import ClientMomentum, Dyn, FilterGradient, FilterPerturbation, Prox, Sam, Scaffold
from fednb.rounds import Card, Method, cost, pseudo_code

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
    """Names are compared without case, spaces and punctuation: "FedFFT-D" is "fedfft_d" is "fedfftd"."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def method(name: str | Method, **parameters: Any) -> Method:
    """A method by the name its paper gives it, with other parameters where given.

    >>> method("fedfft-d", rho=0.05, ratio=0.02).parameters()["ratio"]
    0.02
    """
    if isinstance(name, Method):
        return name.but(**parameters) if parameters else name
    if _plain(name) not in ALIASES:
        near = difflib.get_close_matches(_plain(name), ALIASES, n=3, cutoff=0.3)
        closest = ", ".join(dict.fromkeys(ALIASES[n] for n in near)) or "none"
        raise UnknownMethod(f"no method {name!r}; closest: {closest}. `fednb ls methods` lists all {len(CATALOGUE)}.")
    return CATALOGUE[ALIASES[_plain(name)]].method.but(**parameters)


FEDAVG = _add(Method("FedAvg"), "McMahan et al. 2017")
FEDPROX = _add(Method("FedProx", Prox(mu=0.1)), "Li et al. 2020")
SCAFFOLD = _add(Method("SCAFFOLD", Scaffold()), "Karimireddy et al. 2020")
FEDDYN = _add(Method("FedDyn", Dyn(beta=10.0)), "Acar et al. 2021")
FEDCM = _add(Method("FedCM", ClientMomentum(alpha=0.1)), "Xu et al. 2021")
FEDSAM = _add(Method("FedSAM", Sam(rho=0.1)), "Qu et al. 2022")
MOFEDSAM = _add(Method("MoFedSAM", Sam(rho=0.1), ClientMomentum(alpha=0.1)), "Qu et al. 2022")
FEDGAMMA = _add(Method("FedGAMMA", Sam(rho=0.1), Scaffold()), "Dai et al. 2024", "FedSAM-S")
FEDSPEED = _add(Method("FedSpeed", Sam(rho=0.1), Dyn(beta=10.0)), "Sun et al. 2023", "FedSAM-D")

FEDFFT = _add(
    Method("FedFFT", Sam(rho=0.1), FilterPerturbation(HighPass(ratio=0.01))), "FedFFT", "FedFFT-A", "FedFFT-FedAvg"
)
FEDFFT_S = _add(FEDFFT.plus(Scaffold(), name="FedFFT-S"), "FedFFT", "FedFFT-SCAFFOLD")
FEDFFT_D = _add(FEDFFT.plus(Dyn(beta=10.0), name="FedFFT-D"), "FedFFT", "FedFFT-FedDyn")

SGF = "SpecGradFilter"
SPECGRADFILTER = _add(_named(SGF, spec_grad_filter(FEDAVG)), SGF, "SpecGradFilter-FFT", "SpecGradFilter-FedAvg")
SGF_LAP_D = _add(_named("SpecGradFilter (LAP-D)", spec_grad_filter(FEDAVG, LocalAverage())), SGF)
SGF_GD = _add(_named("SpecGradFilter (GD)", spec_grad_filter(FEDAVG, GaussianDetrend())), SGF)
SGF_FEDPROX = _add(_named("SpecGradFilter-FedProx", spec_grad_filter(FEDPROX)), SGF, "FedProx + SpecGradFilter")
SGF_SCAFFOLD = _add(_named("SpecGradFilter-SCAFFOLD", spec_grad_filter(SCAFFOLD)), SGF, "SCAFFOLD + SpecGradFilter")
SGF_FEDDYN = _add(_named("SpecGradFilter-FedDyn", spec_grad_filter(FEDDYN)), SGF, "FedDyn + SpecGradFilter")
SGF_FEDCM = _add(_named("SpecGradFilter-FedCM", spec_grad_filter(FEDCM)), SGF, "FedCM + SpecGradFilter")


def methods() -> pd.DataFrame:
    """The catalogue as a table; passes, traffic and state are observed by running each method, not typed in."""
    import pandas as pd

    rows = []
    for name, entry in CATALOGUE.items():
        seen = cost(entry.method)
        settable = ", ".join(
            f"{k}={v!r}" for k, v in entry.method.parameters().items() if k not in ("where", "reading")
        )
        rows.append(
            {
                "method": name,
                "paper": entry.paper,
                "passes per step": seen.passes,
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
