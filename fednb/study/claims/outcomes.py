"""The words of a verdict: what was found, at which scale, in which part of the settings, with which reservations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS = {
    "paper": {"holds": "holds", "average": "holds on average", "fails": "does not hold", "open": "not decided"},
    "laptop": {"holds": "seen", "average": "seen on average", "fails": "not seen", "open": "not clear"},
}
OUTCOMES = {
    "by construction": "construction",
    "holds on average": "average",
    "holds": "holds",
    "does not hold": "fails",
    "not decided": "open",
    "seen on average": "seen-average",
    "seen": "seen",
    "not seen": "not-seen",
    "not clear": "unclear",
    "ran": "ran",
    "not run": "none",
}  # how a verdict begins, and the class of verdicts that begin so
GROUPS = ("holds", "average", "fails", "open", "seen", "seen-average", "not-seen", "unclear", "construction", "ran",
          "none")  # fmt: skip  # the classes in the order in which pictures show them
COLOURS = {kind: colour for colour, kinds in {"holds": ("holds", "average", "seen", "seen-average"),
           "fails": ("fails", "not-seen"), "open": ("open", "unclear")}.items() for kind in kinds}  # fmt: skip
WRONG = 0.05  # of the verdicts for or against a sentence, by chance: notebook across/05 tries it
SMOKE = "ran (smoke scale decides nothing)"
RULE = (
    "holds: in every setting the one-sided 95% bound over paired seeds is beyond the tolerance, with one spread for "
    "all comparisons but noisier ones; on average: so is that of the mean over settings; does not hold: the opposite, "
    "or less than a quarter of what is printed, is certain in some setting at 5% for all together; else, or with fewer "
    "than 3 seeds, not decided"
)


def outcome_class(verdict: str) -> str:
    """The class of a verdict by how it begins; an empty text for one that is none.

    >>> from fednb.study.claims import outcome_class
    >>> outcome_class("holds on average where run (2 of 6 settings)"), outcome_class("not decided (untuned)")
    ('average', 'open')
    """
    return next((kind for begin, kind in OUTCOMES.items() if str(verdict).startswith(begin)), "")


def wrong_by_chance(verdicts: Iterable[str]) -> str:
    """How many of some verdicts are to be expected wrong, as a sentence.

    >>> wrong_by_chance(["holds where run (1 of 2 settings)", "not seen", "not clear", "not run"]).partition(",")[0]
    '2 of these verdicts are for or against a sentence; on average at most 0.1 of them are wrong by chance (5 in 100)'
    """
    decided = sum(COLOURS.get(outcome_class(verdict)) in ("holds", "fails") for verdict in verdicts)
    return (f"{decided} of these verdicts are for or against a sentence; on average at most {WRONG * decided:.2g} of "
            f"them are wrong by chance ({100 * WRONG:.0f} in 100), more where some seeds scatter far more than others."
            )  # fmt: skip


@dataclass(frozen=True)
class Coverage:
    """Which part of what a sentence is about was run, with enough seeds."""

    run: int  # settings
    claimed: int  # settings
    among: int  # settings that were run and are among the claimed
    absent: list[str] = field(default_factory=list)  # methods that the sentence is about and that were not run
    part: str = ""  # how many values along a column, or settings, were run, in words; empty where all were

    @property
    def whole(self) -> bool:
        """True if every setting, method and value along a column of the sentence was run."""
        return self.among >= self.claimed and not self.absent and not self.part

    @property
    def words(self) -> str:
        """How much was run: "2 of 6 settings", "1 of 4 values of rho", "without FedCR"."""
        counted = share(self.run, self.claimed)
        if self.among < self.run:
            counted = f"{_settings(self.run)}, {self.among or 'none'} of the {self.claimed} claimed"
        several = list(map(str, self.absent))  # a printed table may lack a name
        several = several if len(several) <= 3 else [*several[:2], f"{len(several) - 2} others"]
        parts = [counted * (self.among < self.claimed), self.part, f"without {', '.join(several)}" * bool(several)]
        return "; ".join(filter(None, parts))


def share(run: int, claimed: int) -> str:
    """How many settings were run of those that a sentence is about, in words; an empty text where all were."""
    return f"{run} of {claimed} settings" if run < claimed else ""


def _settings(count: int) -> str:
    return f"{count} setting" + "s" * (count != 1)


def worded(outcome: str, scale: str, coverage: Coverage, notes: list[str], untuned: bool = False) -> str:
    """A verdict: the outcome in the words of its scale, then where it was run and what has to be said besides.

    untuned: the paper tuned the methods and these runs did not; then nothing is lost, and what is won is called so.
    """
    if untuned and outcome == "fails":
        outcome, notes = "open", []
    said = WORDS[scale][outcome]
    partly = outcome in ("holds", "average") and not coverage.whole
    remarks = [coverage.words] * partly + (notes if outcome == "open" else []) + ["untuned"] * untuned
    return said + " where run" * partly + (f" ({'; '.join(remarks)})" if remarks else "")


def line(row: Mapping[str, Any], name: str = "") -> str:
    """A row of `fn.verdict`'s table as one line: the verdict, the effect with its interval, n, settings, circumstances.

    >>> from fednb.study.claims import line
    >>> row = dict(verdict="holds", effect=2.0, low=1.1, high=2.9, bound=0.0, reading="above", printed=2.6, ratio=0.77,
    ...            n=3, settings_run=6, settings_claimed=6, precision="bf16", tuned="", protocol="100 rounds, not 800")
    >>> line(row, "table1-fft")
    'table1-fft: holds; 2 [1.1, 2.9] > 0, printed 2.6 (0.77 of it), n = 3, 6 of 6 settings, bf16, 100 rounds, not 800'
    """
    known = row["effect"] == row["effect"]
    asked = f"within ±{row['bound']:.3g}" if row["reading"] == "inside" else f"> {row['bound']:.3g}"
    effect = f"{row['effect']:.3g} [{row['low']:.3g}, {row['high']:.3g}] {asked}" if known else ""
    printed = f"printed {row['printed']:.3g} ({row['ratio']:.2g} of it)" if row["ratio"] == row["ratio"] else ""
    counted = f"{row['settings_run']} of {row['settings_claimed']} settings"
    rest = [effect, printed, f"n = {row['n']}", counted, row["precision"], row["tuned"], row["protocol"]]
    return f"{name}: {row['verdict']}; ".removeprefix(": ") + ", ".join(filter(None, rest))
