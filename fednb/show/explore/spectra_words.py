"""The numbers of `spectra` in words: a line for the head of the picture, a table to stand under it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from fednb.show.explore.look import Cut, Look

HEADS = ("", "‖δ‖ before", "after the cut", "loss at w + δ", "at w + Φ(δ)")
LINE = "<p style='line-height: 1.4'>"


@dataclass(frozen=True, eq=False)
class Effect:
    """What a cut did to a pair of clients (rows). losses: at w, then for each at w + δ and w + Φ(δ); None: to come."""

    look: Look
    before: Cut
    after: Cut
    pair: tuple[int, int]
    losses: list[float | None]
    samples: int

    @property
    def short(self) -> str:
        """One line about the first client of the pair."""
        before, after, i = self.before, self.after, self.pair[0]
        _, at, behind, *_ = self.losses
        loss = "" if at is None or behind is None else f", loss {at:.3f} → {behind:.3f}"
        norms = f"‖δ‖ {before.norms[i]:.3g} → {after.norms[i]:.3g}"
        return f"{norms}, cosine {before.cosine:.3f} → {after.cosine:.3f}{loss}"

    @property
    def table(self) -> str:
        """For both, with all that holds for more than one client (HTML)."""
        before, after, shown = self.before, self.after, ["…" if x is None else f"{x:.4f}" for x in self.losses]
        head = "".join(f"<th scope='col' style='padding: 0 10px'>{escape(text)}</th>" for text in HEADS)
        rows = "".join(self._row(n, shown[1 + 2 * n : 3 + 2 * n]) for n in (0, 1))
        return (
            f"<table style='text-align: right'><tr>{head}</tr>{rows}</table>"
            f"{LINE}Cosine between the two {before.cosine:.4f} → {after.cosine:.4f}; mean over all pairs of "
            f"{len(self.look.clients)} clients {before.agreement:.4f} → {after.agreement:.4f}. The cut takes "
            f"{after.taken:,} of {after.frequencies:,} frequencies. Loss at w {shown[0]}; losses are of the whole "
            f"model, filtered in all layers, on {self.samples} test samples.</p>"
        )

    def _row(self, n: int, losses: list[str]) -> str:
        i = self.pair[n]
        cells = [f"{self.before.norms[i]:.4g}", f"{self.after.norms[i]:.4g}", *losses]
        return f"<tr><th scope='row'>client {self.look.clients[i]}</th><td>{'</td><td>'.join(cells)}</td></tr>"
