"""Method cards: a method's round as composed pseudo-code, each line with the part that it comes from."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from fednb.core.rounds import Method, Part


@dataclass(frozen=True)
class Card:
    """Methods as composed pseudo-code, one column of equations each."""

    text: str

    def __str__(self) -> str:
        return self.text

    def _ipython_display_(self) -> None:
        """Already printed."""


FRAME = (
    ("start", "each client, once", "w_k ← w"),
    ("perturb", "each step", ""),
    ("gradient", "", "g ← ∇L(w_k{delta})"),
    ("correct", "", "v ← g"),
    ("", "", "w_k ← w_k − η (clip(v) + wd · w_k)"),
    ("finish", "each client, once", "Δ_k ← w_k − w"),
    ("weigh", "server", "p_k ∝ n_k"),
    ("server", "", "w ← w + step,  step = η_g Σ p_k Δ_k"),
)


def pseudo_code(method: Method) -> str:
    """The round of one method, each line with the part it comes from."""
    lines = [f"{method.name}   [{', '.join(repr(p) for p in method.parts) or 'no parts: Algorithm 0 itself'}]"]
    when = ""  # what the next line has to say; a method without a perturbation has no line of that stage
    for stage, begins, frame in FRAME:
        when = begins or when
        own = [(_equation(p, stage), type(p).__name__) for p in method.parts if stage and hasattr(p, stage)]
        delta = " + δ" if any(hasattr(p, "perturb") for p in method.parts) else ""
        rows = [(frame.format(delta=delta), "")] if frame else []
        rows = own + rows if stage == "server" else rows + own
        for i, (equation, who) in enumerate(rows):
            lines.append(f"  {when:<18} {stage if i == 0 else '':<9} {equation:<58} {who}".rstrip())
            when = ""
    return "\n".join(lines)


def _equation(p: Part, stage: str) -> str:
    """A stage's line: the first of the docstring of the function that runs."""
    return (inspect.getdoc(getattr(p, stage)) or "").splitlines()[0]
