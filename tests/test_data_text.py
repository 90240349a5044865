"""Yahoo! Answers: rows become topics and token numbers, by a vocabulary of the training split."""

import csv

import numpy as np
import pytest
import torch
from real_data import real

from fednb.data import sources, text
from fednb.data.sources import DataNotFound, available, load
from fednb.data.text import TOPICS, numbered, row, tokens


def write(place, train: list[list[str]], test: list[list[str]]):
    place.mkdir(parents=True)
    for split, lines in (("train", train), ("test", test)):
        with open(place / f"{split}.csv", "w", newline="", encoding="utf-8") as out:
            csv.writer(out, quoting=csv.QUOTE_ALL).writerows(lines)


TRAIN = [["1", "Why pray?", "pray\\npray", "so, it's so"], ["10", "", 'why "SO"', ""], ["3", "", "", "!?"]]
TEST = [["5", "pray", "unheard of", "why"]]


def test_tokens_are_words_in_lower_case():
    """A backslash and an n is a line break, not a word that begins with n."""
    assert list(tokens("It's 2 o'clock!\\nNow, go-on é")) == ["it's", "2", "o'clock", "now", "go", "on"]


def test_the_vocabulary_counts_the_training_split(folder):
    """pray 3, so 3, why 2, it's 1: numbers 2, 3, 4, 5 (a tie goes by the alphabet); unheard and of are 1, padding 0.

    Title, question and answer are one text; a text without words is one unknown token.
    """
    write(folder / "yahoo_answers_csv", TRAIN, TEST)
    data = load("yahoo-answers")
    assert (data.input, data.classes, data.x.dtype) == ((6, 200), 10, torch.int32)
    assert data.y.tolist() == [0, 9, 2] and data.y_test.tolist() == [4]
    assert data.x[0, :8].tolist() == [4, 2, 2, 2, 3, 5, 3, 0] and data.x[1, :3].tolist() == [4, 3, 0]
    assert data.x[2, :2].tolist() == [1, 0] and data.x_test[0, :5].tolist() == [2, 1, 1, 4, 0]
    assert int(data.x[:, 8:].max()) == 0 and data.owner is None
    assert data.note == "subset: 3 of 10 topics, 3 + 1 questions"


def test_the_vocabulary_is_capped_at_the_most_frequent(folder, monkeypatch):
    monkeypatch.setattr(text, "VOCABULARY", 4)
    write(folder / "yahoo_answers_csv", TRAIN, TEST)
    data = load("yahoo-answers")
    assert data.vocabulary == 4 and data.x[0, :7].tolist() == [1, 2, 2, 2, 3, 1, 3]


def test_long_texts_are_cut():
    assert numbered("a b " * 300, {"a": 2, "b": 3}).tolist() == [2, 3] * 100


def test_the_subset_names_its_topics(folder):
    write(
        folder / "yahoo_answers_subset",
        [["god", "society_culture"], ["atom", "science_mathematics"]],
        [["x", "health"]],
    )
    data = load("yahoo-answers")
    assert (data.y.tolist(), data.y_test.tolist()) == ([0, 1], [2]) and len(TOPICS) == 10
    assert data.note == "subset: 2 of 10 topics, 2 + 1 questions"
    assert next(row for row in sources.table() if row["name"] == "yahoo-answers")["note"] == "subset"


def test_the_full_files_go_before_the_subset(folder):
    write(folder / "yahoo_answers_subset", [["god", "society_culture"]], [["x", "health"]])
    write(folder / "yahoo_answers_csv", TRAIN, TEST)
    assert available("yahoo-answers") == str(folder / "yahoo_answers_csv") and len(load("yahoo-answers").y) == 3


def test_tokens_are_made_once(folder, monkeypatch):
    write(folder / "yahoo_answers_csv", TRAIN, TEST)
    first = load("yahoo-answers")
    sources.held.cache_clear()
    monkeypatch.setattr(text, "rows", lambda *a: pytest.fail("read again"))
    again = load("yahoo-answers")
    assert torch.equal(first.x, again.x) and again.vocabulary == first.vocabulary


@pytest.mark.parametrize(
    "bad", [["0", "a", "b", "c"], ["11", "a", "b", "c"], ["a"], ["text", "cooking"], ["1", "b", "c"]]
)
def test_other_rows_are_named(folder, bad):
    write(folder / "yahoo_answers_csv", [*TRAIN, bad], TEST)
    with pytest.raises(DataNotFound, match=rf"train\.csv, line 4: {len(bad)} columns beginning with"):
        load("yahoo-answers")
    before = csv.field_size_limit()
    with pytest.raises(ValueError, match="expected class, title, question, answer"):
        row(bad)
    assert csv.field_size_limit() == before == 131072


def test_an_empty_file_is_named(folder):
    write(folder / "yahoo_answers_csv", TRAIN, [])
    with pytest.raises(DataNotFound, match=r"test\.csv, line 0: the file is empty"):
        load("yahoo-answers")


def test_absent_files_are_explained(folder):
    with pytest.raises(
        DataNotFound, match=r"looked for train\.csv and 1 more in .*yahoo_answers_csv; there is no free"
    ):
        load("yahoo-answers")


@pytest.mark.data
@real("yahoo-answers")
def test_real_yahoo_answers():
    data = load("yahoo-answers")
    assert data.input[1] == 200 and 1000 < data.vocabulary <= 98_635
    assert int(data.x.max()) == data.vocabulary - 1 and (data.x[:, 0] > 0).all()
    often = np.bincount(data.x.numpy().ravel(), minlength=data.vocabulary)
    assert often[2:12].sum() > often[1002:1012].sum()  # frequent words have small numbers
    padded = (data.x[:, 1:] > 0) & (data.x[:, :-1] == 0)
    assert not padded.any()
