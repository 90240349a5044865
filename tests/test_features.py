"""Activations are what the modules themselves answer, with the weights of the vector."""

import pytest
import torch
from small_grid import small_results
from torch import nn
from torch.nn import functional

from fednb.core.vectors import NoSuchLayer
from fednb.engines.objective import Objective
from fednb.metrics.features import (
    PENULTIMATE,
    NeedsStatistics,
    activations,
    class_means,
    clouds,
    layers_of,
)
from fednb.metrics.sample import CHUNK, drawn, sample_of
from fednb.metrics.tidy import NotProbed
from fednb.models import build

NONE = torch.zeros(0)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(tmp_path_factory.mktemp("store")))
        yield small_results()


def small():
    objective = Objective(build("cnn-small", 10, (1, 8, 8), seed=3).double())
    x = torch.randn(7, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return objective, objective.start(torch.float64, torch.device("cpu"))[0], x


def test_layers_answer_what_the_modules_answer():
    """conv1 by itself; and what the classifier is given gives the model's own answer."""
    objective, w, x = small()
    seen = activations(objective, w, NONE, x, ["conv1", PENULTIMATE, "fc2"])
    assert torch.allclose(seen["conv1"], objective.model.conv1(x).flatten(1))
    assert torch.allclose(functional.relu(objective.model.fc1(_image(objective.model, x))), seen[PENULTIMATE])
    assert torch.allclose(objective.model.fc2(seen[PENULTIMATE]), seen["fc2"])
    assert torch.allclose(seen["fc2"], objective.model(x))


def _image(model, x):
    for conv in (model.conv1, model.conv2):
        x = functional.max_pool2d(functional.relu(conv(x)), 2)
    return x.flatten(1)


def test_weights_come_from_the_vector():
    """Twice the weights and biases of the first layer are twice its answer."""
    objective, w, x = small()
    once, twice = (activations(objective, v, NONE, x, ["conv1"])["conv1"] for v in (w, 2 * w))
    assert torch.allclose(2 * once, twice) and once.abs().max() > 0.1


@pytest.mark.parametrize("batch", [1, 3, 7, 100])
def test_batches_change_nothing(batch):
    objective, w, x = small()
    whole = activations(objective, w, NONE, x, ["conv2", PENULTIMATE])
    cut = activations(objective, w, NONE, x, ["conv2", PENULTIMATE], batch=batch)
    assert all(torch.allclose(whole[name], cut[name], atol=1e-12) for name in whole)


def test_batch_norm_uses_the_given_statistics_and_leaves_them():
    """Mean 1 and variance 4: (x − 1) / √(4 + ε), whatever the batch's own statistics are. The mode is put back."""
    objective = Objective(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(2), nn.Linear(2, 2)).double())
    w, _ = objective.start(torch.float64, torch.device("cpu"))
    b = objective.buffers.flat({"1.running_mean": torch.ones(2), "1.running_var": torch.full((2,), 4.0)}).double()
    x, before = torch.randn(5, 2, dtype=torch.float64), b.clone()
    seen = activations(objective, w, b, x, ["1"])["1"]
    assert torch.allclose(seen, (x - 1) / (4 + 1e-5) ** 0.5)
    assert torch.equal(b, before) and objective.model.training


def test_hooks_are_gone_afterwards_also_after_a_failure():
    objective, w, x = small()
    with pytest.raises(RuntimeError):
        activations(objective, w, NONE, x[:, :, :, :5].repeat(1, 2, 1, 1), ["conv1", PENULTIMATE])
    activations(objective, w, NONE, x, ["conv1", PENULTIMATE])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in objective.model.modules())
    assert objective.model.training


class Idle(nn.Module):
    """A layer that the forward pass passes by."""

    def __init__(self):
        super().__init__()
        self.never, self.fc = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def test_layers_that_are_not_there_are_named():
    objective, w, x = small()
    with pytest.raises(NoSuchLayer, match="no layer 'conv9'; the layers are conv1, conv2, fc1, fc2, and @penultimate"):
        activations(objective, w, NONE, x, ["conv9"])
    idle = Objective(Idle())
    with pytest.raises(NoSuchLayer, match="'never' is never called"):
        activations(idle, torch.zeros(12), NONE, torch.zeros(1, 2), ["fc", "never"])


def test_layers_of_are_those_with_a_matrix():
    """Norms have only scales and shifts; the order is the model's."""
    found = layers_of(Objective(build("resnet20-gn", 10, (3, 8, 8))))
    assert found[:3] == ["conv1", "layer1.0.conv1", "layer1.0.conv2"] and found[-1] == "fc"
    assert len(found) == 1 + 18 + 2 + 1 and not [name for name in found if "bn" in name]


def test_class_means_by_hand():
    """Class 0 has (0, 2) and (2, 4), class 2 has (5, 5), class 1 nothing."""
    found = class_means(torch.tensor([[0.0, 2.0], [5.0, 5.0], [2.0, 4.0]]), torch.tensor([0, 2, 0]), 3)
    assert found[0].tolist() == [1, 3] and found[2].tolist() == [5, 5] and found[1].isnan().all()


def test_a_sample_is_drawn_once_for_all():
    """Without replacement, a function of the seed; all where there are fewer."""
    assert drawn(100, 10, 0).tolist() == drawn(100, 10, 0).tolist() != drawn(100, 10, 1).tolist()
    assert len(set(drawn(100, 30, 0).tolist())) == 30
    assert drawn(5, 30, 0).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="0 samples"):
        drawn(5, 0, 0)


def test_the_loss_of_a_sample_is_that_of_the_history(results):
    """The whole test set, in chunks of which the last is short: the run's own last test loss."""
    for run in results.runs:
        sample = sample_of(run, count=10_000, device="cpu")
        assert len(sample.y) == 359 and len(sample.y) % CHUNK
        assert sample(sample.place(run.w)).item() == pytest.approx(run.rows[-1]["test_loss"], rel=1e-10)


def test_clouds_have_a_vector_per_client_and_class(results):
    """Two methods, two rounds, four clients, ten classes; each vector the mean of that client's own features."""
    found = clouds(results, "conv2", samples=100, device="cpu", progress=False)
    assert [(c.about["method"], c.about["round"]) for c in found] == [
        ("FedAvg", 0), ("FedAvg", 1), ("FedSAM", 0), ("FedSAM", 1)
    ]  # fmt: skip
    sample, kept = sample_of(results.runs[1], 100, device="cpu"), results.runs[1].probed(1)
    assert found[3].rows[13] == {"client": 1, "class": 3} and found[3].vectors.shape == (40, 32 * 4 * 4)
    x = activations(sample.objective, kept.vectors["model"][1], sample.b, sample.x, ["conv2"])["conv2"]
    assert torch.allclose(found[3].vectors[13], x[sample.y == 3].mean(0))


def test_client_models_with_batch_norm_are_refused(tmp_path, monkeypatch):
    """A probe keeps weights alone; with wrong statistics the features would be wrong."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    made = small_results(methods=["FedAvg"], model="resnet20-bn", samples=80, batch=20)
    with pytest.raises(NeedsStatistics, match="use the model with GroupNorm"):
        clouds(made, device="cpu", progress=False)


def test_models_that_were_not_kept_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    made = small_results(methods=["FedAvg"], what=["gradient"])
    with pytest.raises(NotProbed, match="kept gradient, not 'model'"):
        clouds(made, device="cpu", progress=False)
