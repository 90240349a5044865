"""What users write, read within bounds: text files of limited size and depth, and values in messages of one line."""

from __future__ import annotations

import csv
import io
import reprlib
import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

MOST_BYTES = 4 << 20  # of a text file; the largest of the papers has 19 kB
MOST_DEPTH = 20  # of tables and lists inside each other
MOST_LETTERS = 500  # of a message
CLOSEST = 3  # names that an error suggests


class BadFile(ValueError):
    """A file that cannot be read as what it should be: "PATH: what is wrong"."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(one_line(f"{path}: {what}", MOST_LETTERS))
        self.path, self.what = path, what


class _Shown(reprlib.Repr):
    """Python's own notation, cut short; whole numbers of any size."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = most
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 8
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 200 else f"a whole number of {x.bit_length()} bits"


def shown(value: Any, most: int = 80) -> str:
    """A value for a message: as Python writes it, on one line, cut short in the middle where it is long.

    >>> shown("fedavg" * 1000, 20)
    "'fedavgf...vgfedavg'"
    """
    return one_line(_Shown(most).repr(value), 2 * most)


def one_line(text: str, most: int = MOST_LETTERS) -> str:
    """A text on one line, without control characters, and at most so long.

    >>> one_line("two\\n  lines")
    'two lines'
    """
    text = text[: 2 * most]
    plain = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def closest(name: str, known: Iterable[str], otherwise: str = "none") -> str:
    """The known names that are most like a name, with commas between them."""
    return ", ".join(get_close_matches(name[:100], list(known), n=CLOSEST, cutoff=0.3)) or otherwise


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """A text file in UTF-8; BadFile where it is not there, too large, or not such a text."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise BadFile(path, f"more than {most} bytes, too large for what it should be")
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not a text in UTF-8: {error.reason} at byte {error.start}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(path, getattr(error, "strerror", None) or str(error)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; BadFile with the line where it is written wrongly or nested too deeply."""
    return parsed_toml(path, read_text(path))


def parsed_toml(path: Path, text: str) -> dict[str, Any]:
    """What the text of a TOML file says; BadFile as `read_toml`."""
    _shallow(path, text)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError, OverflowError) as error:  # its own errors name line and column
        raise BadFile(path, _reason(error)) from None


def read_rows(path: Path, columns: Iterable[str]) -> str:
    """The text of a CSV file that has these columns, each once, and in every row as many cells as in the first."""
    text = read_text(path)
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        head = next(rows, [])
        if lacking := [name for name in columns if name not in head]:
            raise BadFile(path, f"no column {lacking[0]!r}; the first line must name {', '.join(columns)}")
        if twice := [name for name in head if head.count(name) > 1]:
            raise BadFile(path, f"two columns are called {shown(twice[0])}")
        for row in rows:
            if row and len(row) != len(head):
                raise BadFile(path, f"line {rows.line_num} has {len(row)} cells, the first line {len(head)}")
    except csv.Error as error:
        raise BadFile(path, f"line {rows.line_num}: {error}") from None
    return text


def _shallow(path: Path, text: str) -> None:
    """Refuse a TOML text with too many brackets open, or too many dots in a name, before it is parsed."""
    for number, line in enumerate(text.split("\n"), 1):
        name = line.partition("=")[0]
        if line.count("[") > 50 * MOST_DEPTH or name.count(".") > MOST_DEPTH:
            raise BadFile(path, f"line {number}: nested too deeply; at most {MOST_DEPTH} tables inside each other")


def _reason(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
