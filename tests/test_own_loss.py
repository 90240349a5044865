"""A user's own loss: the steps that go down it, on every engine; what it must be; its code in the key."""

import importlib
import json
import sys

import pytest
import torch
import torch.nn.functional as F
from test_lanes import SMALL, alone, same, together, trained

import fednb as fn
from fednb.cli.commands import main
from fednb.engines import choose, pool
from fednb.engines.losses import BadLoss
from fednb.engines.problem import problem_of
from fednb.runs.keys import identify, key_of

pytestmark = pytest.mark.usefixtures("own_names")
TINY = fn.Setting(samples=60, clients=3, participation=1.0, rounds=1, epochs=1, batch=16, precision="fp64")
FEDAVG = fn.method("FedAvg")


def focal(logits, labels):
    loss = F.cross_entropy(logits, labels, reduction="none")
    return (1 - torch.exp(-loss)) ** 2 * loss


def mean_of_squares(logits, labels):
    return ((logits - F.one_hot(labels, logits.shape[1])) ** 2).mean()


@pytest.fixture(autouse=True)
def losses(own_names, tmp_path, monkeypatch):
    """Two losses, and a store that is empty."""
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    fn.add_loss("focal", focal)
    fn.add_loss("squares", mean_of_squares)


MODULE = """
import torch.nn.functional as F

def doubled(logits, labels):
    return 2 * F.cross_entropy(logits, labels, reduction="none")

not_one = 3
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a user's module, which is the current one; workers look for modules where they were started."""
    (tmp_path / "my_losses.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    pool.dismiss()
    yield tmp_path
    sys.modules.pop("my_losses", None)


def key(loss):
    return key_of(identify(TINY.but(loss=loss), FEDAVG, 0))


@pytest.mark.parametrize("name, loss", [("focal", focal), ("squares", mean_of_squares)])
def test_a_step_goes_down_the_loss(name, loss):
    """One client, one full batch, one step: w − η ∇ mean loss, by autograd on the model itself."""
    setting = TINY.but(loss=name, clients=1, batch=60, weight_decay=0.0, clip_norm=None, augment=False)
    problem = problem_of(setting, 0)
    w, _, trained_loss = trained(choose("loop", setting, FEDAVG, 0), setting, FEDAVG, 0, rounds=1)
    x, y, _ = problem.plan(0, [0]).at(0)
    model, start = problem.objective.model, problem.objective.start(torch.float64, torch.device("cpu"))[0]
    by_hand = loss(model(x[0]), y[0]).mean()
    g = torch.cat([each.reshape(-1) for each in torch.autograd.grad(by_hand, list(model.parameters()))])
    assert torch.allclose(w, start - setting.lr * g, rtol=0, atol=1e-12)
    assert trained_loss == pytest.approx(by_hand.item(), rel=1e-12)


@pytest.mark.parametrize("name", ["fedsam", "scaffold + adam", "fedfft"])
def test_lanes_and_stacked_have_the_weights_of_the_loop(name):
    """Unequal clients with short last batches: samples that fill up a batch do not count."""
    setting, m = SMALL.but(loss="focal"), fn.method(name)
    found, shared = together([(setting, m, 0), (SMALL, m, 0)])
    same(found[0], alone(setting, m, 0))
    same(found[1], alone(SMALL, m, 0))
    assert len(shared.known) == 2, "another loss is another step"
    same(trained(choose("stacked", setting, m, 0), setting, m, 0), alone(setting, m, 0))


@pytest.mark.parametrize("name", ["focal", "squares"])
def test_the_pool_has_the_bits_of_the_loop(name):
    setting = SMALL.but(loss=name)
    pooled = trained(choose("pool", setting, FEDAVG, 0, workers=1), setting, FEDAVG, 0)
    assert torch.equal(pooled[0], alone(setting, FEDAVG, 0)[0])
    assert not torch.equal(pooled[0], alone(SMALL, FEDAVG, 0)[0])


def test_workers_get_the_loss_that_replaces_another(place, capsys):
    """Of a module that was edited and loaded again, which they have imported as it was."""
    fn.add_loss("mine", importlib.import_module("my_losses").doubled)
    setting = SMALL.but(loss="mine")
    first = trained(choose("pool", setting, FEDAVG, 0, workers=1), setting, FEDAVG, 0)[0]
    (place / "my_losses.py").write_text(MODULE.replace("2 *", "0.5 *"))
    fn.add_loss("mine", importlib.reload(sys.modules["my_losses"]).doubled)
    assert capsys.readouterr().err == "fednb: loss 'mine' is replaced by another\n"
    second = trained(choose("pool", setting, FEDAVG, 0, workers=1), setting, FEDAVG, 0)[0]
    assert torch.equal(second, alone(setting, FEDAVG, 0)[0]) and not torch.equal(first, second)


def test_a_mean_is_not_stacked(capsys):
    engine = choose("stacked", TINY.but(loss="squares"), FEDAVG, 0, device="cpu")
    assert engine.name == "loop"
    assert capsys.readouterr().err == (
        "fednb: 'cnn-small' with 'squares' has a loss that gives one number for a batch, not one for each sample: "
        "engine 'loop' in place of 'stacked'\n"
    )


def test_what_cannot_be_vmapped_is_not_stacked(capsys):
    fn.add_loss("branching", lambda z, y: focal(z, y) if z.sum().item() > -1e9 else 0 * z.sum(1))
    assert choose("stacked", TINY.but(loss="branching"), FEDAVG, 0, device="cpu").name == "loop"
    assert "'cnn-small' with 'branching' cannot be stacked (RuntimeError: " in capsys.readouterr().err


def test_the_history_has_the_loss_and_tests_by_cross_entropy():
    """Twice the loss at half the rate: the same weights, twice the training loss, the same test loss."""
    fn.add_loss("twice", lambda z, y: 2 * F.cross_entropy(z, y, reduction="none"))
    plain = TINY.but(lr=0.1, weight_decay=0.0, clip_norm=None)
    one = fn.run(plain, "FedAvg", progress=False)
    two = fn.run(plain.but(loss="twice", lr=0.05), "FedAvg", progress=False)
    assert torch.allclose(one.w, two.w, rtol=0, atol=1e-12)
    (a,), (b,) = one.rows, two.rows
    assert b["train_loss"] == pytest.approx(2 * a["train_loss"]) and b["test_loss"] == pytest.approx(a["test_loss"])


def test_the_key_has_the_code():
    plain, first = key("cross-entropy"), key("focal")
    assert plain == key_of(identify(TINY, FEDAVG, 0)) != first
    fn.add_loss("focal", lambda logits, labels: F.cross_entropy(logits, labels, reduction="none"))
    assert key("focal") not in (plain, first)
    fn.add_loss("focal", focal)
    assert key("focal") == first


def test_a_module_can_be_a_loss():
    fn.add_loss("smooth", torch.nn.CrossEntropyLoss(label_smoothing=0.1, reduction="none"))
    setting = SMALL.but(loss="smooth")
    assert choose("stacked", setting, FEDAVG, 0, device="cpu").name == "stacked"
    first = key("smooth")
    fn.add_loss("smooth", torch.nn.CrossEntropyLoss(label_smoothing=0.2, reduction="none"))
    assert key("smooth") != first


@pytest.mark.parametrize("loss, said", [
    (lambda z: z, r"loss 'mine' fails on logits \(6, 10\): TypeError: .*positional argument"),
    (lambda z, y: 3.0, r"loss 'mine' gives 3.0 for 6 samples, expected a tensor \(6,\) or \(\): one number for each "),
    (lambda z, y: z, r"loss 'mine' gives \(6, 10\) for 6 samples"),
    (lambda z, y: z.sum() / 0, r"loss 'mine' gives -?inf, expected finite numbers"),
    (lambda z, y: z.argmax(1).double(), r"loss 'mine' cannot be differentiated, expected torch operations"),
    (lambda z, y: (z - z.detach()).abs().sqrt().sum(1), r"loss 'mine' has a gradient that is not finite"),
])  # fmt: skip
def test_what_is_no_loss_is_refused_before_anything_is_trained(loss, said):
    fn.add_loss("mine", loss)
    with pytest.raises(BadLoss, match=said):
        fn.run(TINY.but(loss="mine"), "FedAvg", progress=False)


@pytest.mark.parametrize("name, function, said", [
    ("", focal, "loss '': must be a name of letters, digits, '-' and '_'"),
    (3, focal, "loss 3: must be a name of letters"),
    ("cross-entropy", focal, "loss 'cross-entropy' is one of fednb's own; take another name"),
    ("mine", 3, "loss 'mine' is 3, expected a function of logits and labels"),
])  # fmt: skip
def test_what_cannot_be_entered(name, function, said):
    with pytest.raises(BadLoss, match=said):
        fn.add_loss(name, function)


def test_a_method_with_a_loss_of_its_own_refuses_another():
    with pytest.raises(BadLoss, match="loss 'focal': this method has a loss of its own; run it with cross-entropy"):
        fn.run(TINY.but(loss="focal"), "FedCR", progress=False)


def test_by_import_path_in_a_grid_and_on_the_command_line(place, monkeypatch, capsys):
    """One key and the same bits on the loop and on the pool, whose workers import it too; the path is the name."""
    made = fn.grid(TINY.but(precision="fp32"), ["fedavg"], vary={"loss": ["cross-entropy", "my_losses:doubled"]})
    assert made.run(engine="loop").table().index.get_level_values("loss").tolist() == [
        "cross-entropy", "my_losses:doubled",
    ]  # fmt: skip
    given = ["--samples", "60", "--clients", "3", "--participation", "1", "--rounds", "1", "--epochs", "1", "--batch",
             "16", "--loss", "my_losses:doubled", "--metrics", "macro_f1", "--json", "--quiet"]  # fmt: skip
    seen = []
    for engine in ("loop", "pool"):
        monkeypatch.setenv("FEDNB_STORE", str(place / engine))
        assert main(["run", "fedavg", *given, "--engine", engine, "--workers", "1"]) == 0
        seen.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    keys, weights = ({each[name] for each in seen} for name in ("key", "weights_sha256"))
    assert len(keys) == len(weights) == 1
    assert main(["run", "fedavg", "--loss", "my_losses:not_one"]) == 2
    assert "loss 'my_losses:not_one' is 3, expected a function of logits and labels" in capsys.readouterr().err
