"""The stand-ins have the shapes and types of the real sets, the same bits everywhere, and something to learn."""

import hashlib

import numpy as np
import pytest
import torch

from fednb.data import sources
from fednb.data.made import AUTHORS
from fednb.data.sources import load

MADE = [name for name in sources.names() if name.endswith("-made")]
PICTURES = ["femnist-made", "femnist-light-made", "bloodmnist-made", "tiny-imagenet-made"]
OWNED = ["femnist-made", "femnist-light-made", "shakespeare-made"]


@pytest.mark.parametrize("name", MADE)
def test_made_sets_are_as_the_catalogue_says(name):
    source, data = sources.find(name), load(name)
    real = sources.find(name.replace("-light", "").removesuffix("-made"))
    assert (len(data.y), len(data.y_test), data.input) == (source.train, source.test, source.shape)
    assert (source.text, source.owners, source.mean, source.std) == (real.text, real.owners, real.mean, real.std)
    assert data.x.dtype == (torch.int32 if name.startswith("yahoo") else torch.uint8)
    assert sources.available(name) == "made" and data.note.startswith("made")


@pytest.mark.parametrize("name", MADE)
def test_made_sets_are_made_by_a_seed_alone(name):
    first = load(name)
    np.random.seed(1)
    torch.manual_seed(1)
    sources.held.cache_clear()
    again = load(name)
    assert again is not first
    for one, two in ((first.x, again.x), (first.y_test, again.y_test)):
        assert hashlib.sha256(one.numpy().tobytes()).digest() == hashlib.sha256(two.numpy().tobytes()).digest()


@pytest.mark.parametrize("name", PICTURES)
def test_the_nearest_class_mean_recognises_pictures(name):
    """Chance is at most 22%; the mean image of each class finds at least 80% of the test set."""
    data = load(name)
    x, seen = data.x.flatten(1).double(), data.y.unique()
    means = torch.stack([x[data.y == c].mean(0) for c in seen])
    nearest = seen[torch.cdist(data.x_test.flatten(1).double(), means).argmin(1)]
    assert (nearest == data.y_test).double().mean() > 0.8
    assert data.y_test.bincount().max() < 0.25 * len(data.y_test)


def test_word_counts_recognise_topics():
    """Naive Bayes on counts of words finds at least 80% of ten topics; padding stands at the end only."""
    data = load("yahoo-answers-made")
    bag = torch.stack([row[row > 0].bincount(minlength=data.vocabulary) for row in torch.cat([data.x, data.x_test])])
    bag, tested = bag[: len(data.y)].double(), bag[len(data.y) :].double()
    rates = torch.stack([bag[data.y == c].sum(0) + 0.1 for c in range(10)])
    found = (tested @ (rates / rates.sum(1, keepdim=True)).log().T).argmax(1)
    assert (found == data.y_test).double().mean() > 0.8
    assert not ((data.x[:, 1:] > 0) & (data.x[:, :-1] == 0)).any() and (data.x[:, 0] > 1).all()
    assert set(data.y.tolist()) == set(range(10))


def test_the_last_three_characters_foretell_the_next():
    """The character that most often follows the last three in training is right in at least 60% of the test windows."""
    data = load("shakespeare-made")
    usual: dict[tuple, list[int]] = {}
    for x, y in zip(data.x.tolist(), data.y.tolist(), strict=True):
        usual.setdefault(tuple(x[-3:]), []).append(y)
    pairs = [
        (usual.get(tuple(x[-3:]), [-1]), y) for x, y in zip(data.x_test.tolist(), data.y_test.tolist(), strict=True)
    ]
    assert np.mean([max(set(seen), key=seen.count) == y for seen, y in pairs]) > 0.6
    assert data.y_test.bincount().max() < 0.25 * len(data.y_test)


@pytest.mark.parametrize("name", OWNED)
def test_authors_differ(name):
    """Twenty authors, all with training samples, whose labels differ more than those of mixed samples would."""
    data = load(name)
    assert data.owner.bincount().shape == (AUTHORS,) and data.owner.bincount().min() > 0
    assert set(data.owner_test.tolist()) <= set(range(AUTHORS))
    mixed = data.y[torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))]
    assert apart(data.owner, data.y) > 1.1 * apart(data.owner, mixed)


def apart(owner: torch.Tensor, y: torch.Tensor) -> float:
    """The mean distance (total variation) of an author's label shares from everyone's."""
    table = torch.zeros(AUTHORS, 80).index_put((owner, y), torch.ones(len(y)), accumulate=True)
    return float((table / table.sum(1, keepdim=True) - table.sum(0) / table.sum()).abs().sum(1).mean() / 2)


def test_no_made_character_is_trained_and_tested_on():
    """A role's test windows come from after its training windows: 12 characters and more behind the last of them."""
    data = load("shakespeare-made")
    for role in range(3):
        trained, tested = data.x[data.owner == role], data.x_test[data.owner_test == role]
        assert (trained[1:, :-1] == trained[:-1, 1:]).all() and (tested[1:, :-1] == tested[:-1, 1:]).all()
    known = {(int(o), *x) for o, x in zip(data.owner, data.x.tolist(), strict=True)}
    again = [(int(o), *x) in known for o, x in zip(data.owner_test, data.x_test.tolist(), strict=True)]
    assert np.mean(again) < 0.6  # roles repeat themselves, but not that much
    assert (len(data.y) / AUTHORS, len(data.y_test) / AUTHORS) == (60, 10)
