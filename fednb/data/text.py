"""Text: the next character in Shakespeare's plays, by role, and the topic of a question put to Yahoo! Answers."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from fednb.base.progress import Bar, bar_of
from fednb.data.dataset import Damaged, DataNotFound, Samples, Source, whole
from fednb.data.files import absent, kept, marks
from fednb.data.leaf import SPLITS, TRAINED, gathered, json_files, owners_of, said

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's 80 letters
UNKNOWN = len(ALPHABET)  # any other character; LEAF's own search gives −1 for it, which is the last letter
WINDOW = 80
ROLES = 1129  # in full (LEAF)

VOCABULARY = 98_635  # tokens at most, padding and unknown included: PFLlib's number for its text models
LENGTH = 200  # tokens of a question that are read
PADDING, UNSEEN = 0, 1
TOPICS = (
    "society_culture", "science_mathematics", "health", "education_reference", "computers_internet",
    "sports", "business_finance", "entertainment_music", "family_relationships", "politics_government",
)  # fmt: skip


@dataclass(frozen=True)
class Roles:
    """Shakespeare: LEAF's json files in shakespeare/train and shakespeare/test, or LEAF's text file of each role.

    x is 80 characters, y the one that follows. From text files the windows are LEAF's: a role's lines joined by spaces,
    one window at each character; the sonnets, which have no roles, are left out. The first nine tenths of a role's
    windows are for training; test windows begin where no character has been seen in training. (LEAF's first versions
    drew test windows at random from among the others, all but one of whose characters they share.)
    """

    folder: str = "shakespeare"
    texts: str = "leaf_by_character/by_play_and_character"

    def where(self, folder: Path) -> str:
        if json_files(folder / self.folder):
            return str(folder / self.folder)
        return str(folder / self.folder / self.texts) if self.files(folder) else ""

    def note(self, folder: Path) -> str:
        return "" if json_files(folder / self.folder) else said("roles", len(self.files(folder)) or ROLES, ROLES)

    def files(self, folder: Path) -> list[Path]:
        """The text files of roles."""
        found = sorted((folder / self.folder / self.texts).glob("*.txt"))
        return [file for file in found if not file.name.startswith("THE_SONNETS")]

    def read(self, source: Source, folder: Path) -> Samples:
        if json_files(folder / self.folder):
            held = gathered(folder / self.folder, characters)
        elif files := self.files(folder):
            held = spoken(files)
        else:
            way = "make LEAF's json files there (`./preprocess.sh -s niid --sf 1.0 -k 0 -t sample` in data/shakespeare)"
            looked = ["train/*.json", "test/*.json", f"{self.texts}/*.txt"]
            raise DataNotFound(absent(source.name, looked, folder / self.folder, "LEAF offers no download", way))
        x, x_test = (torch.from_numpy(held[f"{split}_x"]) for split in SPLITS)
        y, y_test, owner, owner_test = (whole(held[f"{s}_{what}"]) for what in ("y", "owner") for s in SPLITS)
        note = said("roles", owners_of(held), ROLES)
        return Samples(x, y, x_test, y_test, owner, owner_test, vocabulary=UNKNOWN + 1, note=note)


def letters(text: str) -> np.ndarray:
    """Each character's place in the alphabet, uint8; `UNKNOWN` for those that are not in it."""
    table = np.full(256, UNKNOWN, dtype=np.uint8)
    table[[ord(each) for each in ALPHABET]] = np.arange(len(ALPHABET))
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    return table[np.minimum(points, 255)]  # ÿ, the last of the table, is no letter of the alphabet either


def characters(x: list, y: list) -> tuple[np.ndarray, np.ndarray]:
    """One role's windows, uint8 [n, 80], and next characters; where that one is unknown the sample is left out."""
    if any(len(each) != WINDOW for each in x) or any(len(each) != 1 for each in y):
        raise Damaged(f"a sample is {WINDOW} characters and the next one")
    windows, following = letters("".join(x)).reshape(-1, WINDOW), letters("".join(y))
    known = following != UNKNOWN
    return (windows[known], following[known]) if len(windows) == len(following) else (windows, following)


def windows(text: str, length: int = WINDOW) -> tuple[np.ndarray, np.ndarray]:
    """Every `length` characters of a text with the one that follows."""
    line = letters(text)
    if len(line) <= length:
        return np.zeros((0, length), dtype=np.uint8), np.zeros(0, dtype=np.uint8)
    return np.lib.stride_tricks.sliding_window_view(line[:-1], length), line[length:]


def apart(n: int, length: int = WINDOW) -> tuple[slice, slice]:
    """Which of n windows train and which test: no character of a test window is in, or follows, a training window."""
    first = int(TRAINED * n)
    return slice(0, first), slice(first + length, n)


def spoken(files: list[Path]) -> dict[str, np.ndarray]:
    """The windows of every role from its text file. Roles with too little text have no test windows, or none at all."""
    found: dict[str, list[np.ndarray]] = {f"{s}_{what}": [] for s in SPLITS for what in ("x", "y", "owner")}
    for role, file in enumerate(files):
        try:
            text = re.sub(" {2,}", " ", file.read_text(encoding="utf-8").replace("\n", " "))
        except UnicodeDecodeError as error:
            raise Damaged(f"{file.name}: {error}") from error
        x, y = windows(text)
        for split, part in zip(SPLITS, apart(len(y)), strict=True):
            known = y[part] != UNKNOWN
            for what, values in (("x", x[part][known]), ("y", y[part][known]), ("owner", np.full(known.sum(), role))):
                found[f"{split}_{what}"].append(values)
    return {name: np.concatenate(each) for name, each in found.items()}


@dataclass(frozen=True)
class Topics:
    """Yahoo! Answers: train.csv and test.csv of the ten topics (class, title, question, answer), or a subset.

    The subset's rows are the text and the name of its topic. Title, question and answer are read as one text. A token
    is a run of letters, digits and apostrophes in lower case; tokens are numbered from 2 by how often the training
    split has them (then by the alphabet), 0 is padding, 1 any token beyond the vocabulary. The first 200 tokens are
    read; a text without any is one unknown token. What this gives is kept beside the files.
    """

    folder: str = "yahoo_answers_csv"
    subset: str = "yahoo_answers_subset"

    def where(self, folder: Path) -> str:
        both = (folder / name for name in (self.folder, self.subset))
        here = [place for place in both if all((place / f"{split}.csv").is_file() for split in SPLITS)]
        return str(here[0]) if here else ""

    def note(self, folder: Path) -> str:
        return "subset" if self.where(folder).endswith(self.subset) else ""

    def read(self, source: Source, folder: Path) -> Samples:
        if not (place := self.where(folder)):
            way = "put train.csv and test.csv of the ten topics (class, title, question, answer) there"
            looked = [f"{split}.csv" for split in SPLITS]
            raise DataNotFound(absent(source.name, looked, folder / self.folder, "there is no free download", way))
        files = [Path(place) / f"{split}.csv" for split in SPLITS]
        held = kept(Path(place) / "fednb-tokens.npz", marks(VOCABULARY, LENGTH, 1, files=files), lambda: asked(*files))
        x, x_test = (torch.from_numpy(held[f"{split}_x"]) for split in SPLITS)
        y, y_test = (whole(held[f"{split}_y"]) for split in SPLITS)
        seen = len(y.unique())
        note = (
            f"subset: {seen} of {len(TOPICS)} topics, {len(y)} + {len(y_test)} questions" if seen < len(TOPICS) else ""
        )
        return Samples(x, y, x_test, y_test, vocabulary=int(held["vocabulary"]), note=note)


def asked(train: Path, test: Path) -> dict[str, np.ndarray]:
    """Token numbers int32 [n, 200] and topics of both files, and the size of the vocabulary."""
    size = 2 * train.stat().st_size + test.stat().st_size  # the first is read twice
    with bar_of(size, "reading questions", unit="B") as bar:
        often = Counter(token for _, text in rows(train, bar) for token in tokens(text))
        ranked = sorted(often, key=lambda token: (-often[token], token))[: VOCABULARY - 2]
        number = {token: i for i, token in enumerate(ranked, start=UNSEEN + 1)}
        found = {"vocabulary": np.array(len(number) + 2)}
        for split, file in zip(SPLITS, (train, test), strict=True):
            labels, texts = zip(*((label, numbered(text, number)) for label, text in rows(file, bar)), strict=True)
            found |= {f"{split}_x": np.stack(texts), f"{split}_y": np.array(labels, dtype=np.int64)}
    return found


def rows(file: Path, bar: Bar | None = None) -> Iterator[tuple[int, str]]:
    """Topic (0 to 9) and text of each line of a csv file."""
    before = csv.field_size_limit(1 << 24)  # some answers are long
    try:
        with open(file, newline="", encoding="utf-8") as lines:
            reader = csv.reader(lines if bar is None else _counted(lines, bar))
            yield from map(row, reader)
            if not reader.line_num:
                raise ValueError("the file is empty")
    except (ValueError, csv.Error) as error:
        raise Damaged(f"{file.name}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(before)


def _counted(lines: Iterable[str], bar: Bar) -> Iterator[str]:
    for line in lines:
        bar.update(len(line.encode()))
        yield line


def row(columns: list[str]) -> tuple[int, str]:
    """Topic and text of one line: class, title, question, answer; or text and the topic's name."""
    if len(columns) == 4 and columns[0] in map(str, range(1, len(TOPICS) + 1)):
        return int(columns[0]) - 1, " ".join(columns[1:])
    if len(columns) == 2 and columns[1] in TOPICS:
        return TOPICS.index(columns[1]), columns[0]
    raise ValueError(f"{len(columns)} columns beginning with {columns[:1]}, expected class, title, question, answer")


def tokens(text: str) -> Iterator[str]:
    """The words of a text, in lower case. The files write a line break as a backslash and an n."""
    return (found[0] for found in re.finditer(r"[a-z0-9']+", text.replace("\\n", " ").lower()))


def numbered(text: str, number: dict[str, int]) -> np.ndarray:
    """The first tokens of a text by number, padded at the end."""
    found = [number.get(token, UNSEEN) for token in islice(tokens(text), LENGTH)] or [UNSEEN]
    out = np.full(LENGTH, PADDING, dtype=np.int32)
    out[: len(found)] = found
    return out
