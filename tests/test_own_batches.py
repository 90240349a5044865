"""What a user's model or loss takes from more than one sample: counts of batches, other samples of a batch."""

import os
import tempfile

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fednb as fn
from fednb import engines, models
from fednb.engines.losses import Loss
from fednb.engines.objective import Objective
from fednb.engines.own import why_not_stacked
from fednb.engines.setting import Setting
from fednb.models import BadModel

pytestmark = pytest.mark.usefixtures("own_names")
UNEQUAL = Setting(
    samples=140, clients=3, participation=1.0, rounds=2, epochs=1, batch=20, partition="iid", precision="fp64"
)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(engines, "_said", set())


def run(engine, model="mine", **others):
    """A run on an engine in a store of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", tempfile.mkdtemp(dir=os.environ["FEDNB_STORE"]))
        return fn.run(UNEQUAL.but(model=model, **others), "FedAvg", engine=engine, workers=2, progress=False)


# Counts of batches


class Counting(nn.Module):
    """Counts batches in a buffer `n`; what it answers is made of logits and the count."""

    def __init__(self, answer, count):
        super().__init__()
        self.head, self.answer = nn.Linear(64, 10), answer
        self.register_buffer("n", torch.tensor(count))

    def forward(self, x):
        self.n += self.training
        return self.answer(self.head(x.flatten(1)), self.n)


def halved(z, n):
    return z * (1 + 0.5**n)


def warmed_up(z, n):
    return z if n < 100 else 2 * z


def from_table(z, n):
    return z * z.new_ones(100)[n]


def unmoved(z, n):
    return z


def normed(momentum):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Linear(8, 10))


@pytest.mark.parametrize("made, key", [
    (lambda: normed(None), "2.num_batches_tracked"),
    (lambda: Counting(halved, 0), "n"),
    (lambda: Counting(warmed_up, 0), "n"),
    (lambda: Counting(from_table, 0), "n"),
], ids=["BatchNorm", "halved", "warmed up", "table"])  # fmt: skip
def test_a_count_that_answers_depend_on_is_refused(made, key):
    """Nobody carries it: loop and pool would have other weights."""
    fn.add_model("mine", made)
    with pytest.raises(BadModel, match=f"model 'mine': its answers depend on '{key}', which training changes .* in a"):
        run("loop")


@pytest.mark.parametrize("made", [
    lambda: normed(0.1), lambda: Counting(unmoved, 0), lambda: Counting(halved, 0.0),
], ids=["BatchNorm", "unused", "in a floating-point buffer"])  # fmt: skip
def test_other_counts_leave_one_seed_its_bits(made):
    fn.add_model("mine", made)
    assert len({run(engine).weights_sha256 for engine in ("loop", "pool")}) == 1


# Other samples of a batch


class Net(nn.Module):
    """A hidden layer, mixed over the batch."""

    def __init__(self, mixed):
        super().__init__()
        self.body, self.head, self.mixed = nn.Linear(64, 6), nn.Linear(6, 10), mixed

    def forward(self, x):
        return self.head(self.mixed(torch.relu(self.body(x.flatten(1)))))


def centred(h):
    return h - h.mean(0)


def standardised(h):
    return F.batch_norm(h, None, None, training=True)


def attended(h):
    return h + torch.softmax(h @ h.T, -1) @ h


@pytest.mark.parametrize("mixed", [centred, standardised, attended])
def test_a_model_that_mixes_samples_is_not_stacked(mixed, capsys):
    """Short batches are filled up in a stack: weights would be wrong by 0.02 and more."""
    fn.add_model("mine", lambda: Net(mixed))
    loop, stacked = (run(engine) for engine in ("loop", "stacked"))
    assert torch.equal(loop.w, stacked.w) and stacked.about["engine"] == "loop"
    assert "model 'mine' has other gradients when clients are stacked, as where it mixes" in capsys.readouterr().err


def each(z, y):
    return F.cross_entropy(z, y, reduction="none")


def scaled(z, y):
    return each(z, y) / each(z, y).detach().mean()


def balanced(z, y):
    """Rare classes count more."""
    return each(z, y) * len(y) / (y == y[:, None]).sum(1)


def against_the_mean(z, y):
    return each(z - z.mean(0), y)


@pytest.mark.parametrize("loss", [scaled, balanced, against_the_mean])
def test_a_loss_that_mixes_samples_is_not_stacked(loss, capsys):
    fn.add_loss("mixing", loss)
    loop, stacked = (run(engine, model="cnn-small", loss="mixing") for engine in ("loop", "stacked"))
    assert torch.equal(loop.w, stacked.w) and stacked.about["engine"] == "loop"
    assert "'cnn-small' with 'mixing' has a loss that mixes the samples of a batch" in capsys.readouterr().err


@pytest.mark.parametrize("classes", [2, 6, 10])
def test_losses_are_told_apart_whatever_the_first_samples_are(classes):
    like = torch.zeros(1, classes)
    assert Loss("each", each).separate(like)
    assert not any(Loss("mixing", loss).separate(like) for loss in (scaled, balanced, against_the_mean))


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_few_samples_are_enough_to_ask(samples):
    """Of one sample nothing is learned about others; of two it is."""
    x, y = torch.randn(samples, 1, 8, 8), torch.arange(samples)
    assert why_not_stacked(Objective(Net(nn.Identity())), x, y) == ""
    assert bool(why_not_stacked(Objective(Net(centred)), x, y)) == (samples > 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["cnn-small", "lenet", "resnet20-gn", "vit-nano"])
def test_models_of_the_library_are_stacked_with_a_users_loss(name, dtype):
    f = Objective(models.build(name, 10, (3, 32, 32), seed=0).to(dtype), criterion=Loss("each", each))
    assert why_not_stacked(f, torch.randn(6, 3, 32, 32, dtype=dtype), torch.arange(6)) == ""


def test_engines_agree_where_samples_are_separate():
    fn.add_model("mine", lambda: Net(nn.Identity()))
    fn.add_loss("each", each)
    loop, stacked = (run(engine, loss="each") for engine in ("loop", "stacked"))
    assert stacked.about["engine"] == "stacked" and torch.allclose(loop.w, stacked.w, rtol=0, atol=1e-12)
