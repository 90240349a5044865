"""A model of a user: every way in, every error in one line, its code and weights in the key, engines that take it."""

import functools
import os
import tempfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fednb as fn
from fednb import models
from fednb.algorithms.catalogue import method
from fednb.engines import Loop, Stacked, choose, pool
from fednb.engines.objective import Objective
from fednb.engines.problem import problem_of
from fednb.engines.setting import Setting
from fednb.metrics.sample import sample_of
from fednb.models import BadModel, build
from fednb.runs.keys import identify, key_of
from fednb.runs.result import OtherModel

pytestmark = pytest.mark.usefixtures("own_names")
FEW = dict(samples=120, clients=3, participation=1.0, rounds=2, epochs=1, batch=20, partition="iid")


class Net(nn.Module):
    def __init__(self, classes, input, width=6):
        super().__init__()
        self.body = nn.Linear(int(np.prod(input)), width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(torch.relu(self.body(x.flatten(1))))


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))


def setting(**others):
    return Setting(model="mine", **{**FEW, **others})


def key(**others):
    return key_of(identify(setting(**others), method("fedavg"), 0))


def run(engine, name="FedSAM", **others):
    """A run on an engine in a store of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", tempfile.mkdtemp(dir=os.environ["FEDNB_STORE"]))
        done = fn.run(setting(**others), name, engine=engine, workers=2, progress=False)
        return done, done.w, done.about["engine"], done.weights_sha256


def first(seed=0):
    return torch.cat([p.flatten() for p in build("mine", 10, (1, 8, 8), seed).parameters()])


# Ways in


@pytest.mark.parametrize(
    "made",
    [Net, functools.partial(Net, width=6), lambda classes, input: Net(classes, input), lambda: Net(10, (1, 8, 8)),
     lambda num_classes: Net(num_classes, (1, 8, 8)), lambda input_shape, **others: Net(10, input_shape)],
    ids=["class", "partial", "function", "no arguments", "num_classes", "input_shape"],
)  # fmt: skip
def test_a_builder_gets_what_it_asks_for_and_draws_by_the_seed(made):
    fn.add_model("mine", made)
    state = torch.get_rng_state()
    assert torch.equal(first(0), first(0)) and not torch.equal(first(0), first(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert len(first()) == 65 * 6 + 7 * 10 and fn.run(setting(rounds=1), "FedAvg", progress=False).status == "finished"


def test_a_module_starts_every_run_from_its_weights():
    torch.manual_seed(5)
    net = Net(10, (1, 8, 8))
    fn.add_model("mine", net)
    weights = torch.cat([p.flatten() for p in net.parameters()]).clone()
    with torch.no_grad():
        net.head.bias += 1  # of the user's, not of the copy
    assert torch.equal(first(0), weights) and torch.equal(first(1), weights)


@pytest.mark.parametrize("way", ["dictionary", "safetensors", "torch", "inside"])
def test_weights_to_start_from(way, tmp_path):
    torch.manual_seed(3)
    given = Net(10, (1, 8, 8)).state_dict()
    where = {"dictionary": given, "safetensors": tmp_path / "w.safetensors", "torch": str(tmp_path / "w.pt"),
             "inside": tmp_path / "w.ckpt"}[way]  # fmt: skip
    save_file(given, tmp_path / "w.safetensors")
    torch.save(given, tmp_path / "w.pt")
    torch.save({"state_dict": given, "epoch": 3}, tmp_path / "w.ckpt")
    fn.add_model("mine", Net, weights=where)
    assert torch.equal(first(4), torch.cat([x.flatten() for x in given.values()]))


def test_weights_that_fit_partly():
    fn.add_model("mine", Net)
    fresh = build("mine", 10, (1, 8, 8), 0).state_dict()
    other = {**Net(7, (1, 8, 8)).state_dict(), "more": torch.zeros(1)}
    fn.add_model("mine", Net, other, partly=True)
    made = build("mine", 10, (1, 8, 8), 0).state_dict()
    assert torch.equal(made["body.weight"], other["body.weight"])
    assert torch.equal(made["head.weight"], fresh["head.weight"])


def test_layers_may_learn_their_shapes():
    fn.add_model("mine", lambda classes: nn.Sequential(nn.Flatten(), nn.LazyLinear(classes)))
    assert len(first()) == 650


def test_what_requires_no_gradient_stays():
    def net(classes, input):
        made = Net(classes, input)
        made.body.requires_grad_(False)
        return made

    fn.add_model("mine", net)
    _, weights, names, prints = zip(*map(run, ("loop", "stacked", "pool")), strict=True)
    assert [w.numel() for w in weights] == [70] * 3 and names == ("loop", "stacked", "pool")
    assert prints[0] == prints[2] and torch.allclose(weights[0], weights[1], atol=1e-5)


# Errors


class Deep(nn.Module):
    def __init__(self, depth, classes):
        super().__init__()


def refuses():
    raise OSError("no\nroom")


WRONG = [
    (3, "model 'mine' is 3, expected a torch.nn.Module, or a function"),
    (Deep, "model 'mine' needs 'depth', expected a builder that needs at most classes and input"),
    (lambda classes: 7, "model 'mine' makes 7, expected a torch.nn.Module"),
    (refuses, "model 'mine' cannot be built with no arguments: OSError: no room"),
    (lambda: nn.Flatten(), "model 'mine' has no weights to train"),
    (lambda: Net(7, (1, 8, 8)), r"model 'mine' answers \(2, 7\) to a batch \(2, 1, 8, 8\), expected \(2, 10\)"),
    (lambda: Net(10, (1, 9, 9)), r"model 'mine' fails on a batch \(2, 1, 8, 8\): RuntimeError: mat1"),
]


@pytest.mark.parametrize("made, said", WRONG, ids=[said[13:50] for _, said in WRONG])
def test_an_error_names_the_model_and_what_was_expected(made, said):
    with pytest.raises(BadModel, match=said) as error:
        fn.add_model("mine", made)
        fn.run(setting(), "FedAvg", progress=False)
    assert "\n" not in str(error.value)


def test_wrong_weights(tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(b"1234567890")
    torch.save({"a": Net}, tmp_path / "code.pt")
    state = Net(7, (1, 8, 8)).state_dict()
    for given, said in [
        (tmp_path / "absent.pt", "weights in .*absent.pt cannot be read: .*No such file"),
        (tmp_path / "bad.safetensors", "weights in .*bad.safetensors cannot be read"),
        (tmp_path / "code.pt", "holds no plain state_dict"),
        ({"a": 1}, "expected a state_dict, or a file with one"),
        (state, r"weight 'head.weight' has shape \(7, 6\), expected \(10, 6\); partly=True"),
        ({"body.weigth": state["body.weight"]}, "weights have 'body.weigth', expected .* as body.weight.*partly=True"),
        ({"body.weight": state["body.weight"]}, "weight 'body.bias' is missing"),
    ]:
        with pytest.raises(BadModel, match=said):
            fn.add_model("mine", Net, given)
            build("mine", 10, (1, 8, 8))
    fn.add_model("mine", Net, {"x": torch.zeros(1)}, partly=True)
    with pytest.raises(BadModel, match="none of 1 weights fits"):
        build("mine", 10, (1, 8, 8))


def test_names_of_the_catalogue_are_taken_and_others_can_be_used_again(capsys):
    for name in ("lenet", "LeNet", "", 3, "a/b"):
        with pytest.raises(BadModel, match=r"take another name|must be a name"):
            fn.add_model(name, Net)
    fn.add_model("mine", Net)
    fn.add_model("mine", Net)
    assert capsys.readouterr().err == ""
    fn.add_model("Mine", lambda: Net(10, (1, 8, 8)))
    assert capsys.readouterr().err == "fednb: model 'mine' is replaced by another\n"
    assert Setting(model="MINE").model == "Mine" and "Mine" in models.names()


# Key


SOURCE = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.flat, self.out = nn.Flatten(), nn.Linear(64, classes)

    def forward(self, x):
        return self.out(self.flat(x)) * 2
"""


def from_source(text):
    space = {"nn": nn, "__name__": "__main__"}
    exec(text, space)
    return space["Net"]


def test_code_layers_and_first_weights_are_in_the_key():
    """One line of the source, a layer, one given weight; a comment is none of it."""
    torch.manual_seed(0)
    state = from_source(SOURCE)(10).state_dict()
    other = {name: x.clone() for name, x in state.items()}
    other["out.bias"][3] += 1e-3
    seen = []
    for made, weights in [
        (from_source(SOURCE), None), (from_source(SOURCE.replace("* 2", "* 3")), None),
        (from_source(SOURCE.replace("nn.Flatten()", "nn.Flatten(1)")), None), (from_source(SOURCE), state),
        (from_source(SOURCE), other),
    ]:  # fmt: skip
        fn.add_model("mine", made, weights)
        seen.append(key())
    assert len(set(seen)) == 5
    fn.add_model("mine", from_source(SOURCE.replace("return", "# a remark\n        return")))
    assert key() == seen[0]


def test_the_order_of_given_weights_is_none_of_the_key(capsys):
    """A file has another order than the dictionary that was written into it."""
    state = Net(10, (1, 8, 8)).state_dict()
    fn.add_model("mine", Net, state)
    before = key()
    fn.add_model("mine", Net, dict(reversed(state.items())))
    assert key() == before and capsys.readouterr().err == ""


class Negative(Net):
    def forward(self, x):
        return -super().forward(x)


@pytest.mark.parametrize("how", ["code", "module"])
def test_a_run_never_gives_its_weights_to_another_model(how, tmp_path):
    """One with as many weights that was entered later: refused, until the former has the name again."""
    former, later = (Net, Negative) if how == "code" else (kind(10, (1, 8, 8)) for kind in (Net, Negative))
    x = torch.ones(1, 1, 8, 8)
    fn.add_model("mine", former)
    done = fn.run(setting(), "FedAvg", progress=False)
    answer = done.model()(x)
    fn.add_model("mine", later)
    for ask in (done.model, done.state_dict, lambda: done.export(tmp_path / "a.safetensors")):
        with pytest.raises(OtherModel, match=f"run {done.key} was made with another model 'mine' .*fn.add_model"):
            ask()
    with pytest.raises(OtherModel, match=f"run {done.key} was made with another model"):
        sample_of(done, device="cpu")
    assert not (tmp_path / "a.safetensors").exists()
    fn.add_model("mine", former)
    assert torch.equal(done.model()(x), answer)


def test_a_run_from_before_fingerprints_gives_its_model():
    fn.add_model("mine", Net)
    done = fn.run(setting(), "FedAvg", progress=False)
    done.entry.describe({name: value for name, value in done.about.items() if name != "model"})
    assert fn.run(setting(), "FedAvg", progress=False).model()(torch.ones(1, 1, 8, 8)).shape == (1, 10)
    assert "model" not in fn.run(setting().but(model="cnn-small"), "FedAvg", progress=False).about


def test_what_a_builder_names_counts_too():
    seen = []
    for width in (5, 6, 5):
        fn.add_model("mine", functools.partial(Net, width=width))
        seen.append(key())
    assert seen[0] == seen[2] != seen[1]
    nets = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        fn.add_model("mine", nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        nets.append(key())
    assert nets[0] == nets[1] != nets[2]


def test_code_of_a_library_counts_by_its_source(monkeypatch):
    fn.add_model("mine", functools.partial(nn.Bilinear, 8, 8, 10))
    before = models.own_of("mine").origins()
    monkeypatch.setattr("inspect.getsource", lambda x: "another version")
    assert models.own_of("mine").origins() != before


# Engines


def dropping(classes, input):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.Dropout(0.5), nn.Linear(30, classes))


def normed(classes, input):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


class Noisy(Net):
    def forward(self, x):
        return super().forward(x) * (1 + self.training * torch.rand(()))


class Branching(Net):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


@pytest.mark.parametrize("made", [Net, dropping, normed, Noisy], ids=["plain", "Dropout", "BatchNorm", "own noise"])
def test_loop_and_pool_have_the_same_bits_and_again(made):
    fn.add_model("mine", made)
    runs, _, names, prints = zip(*map(run, ("loop", "pool", "loop")), strict=True)
    assert names == ("loop", "pool", "loop") and len(set(prints)) == 1 and len({r.key for r in runs}) == 1
    assert len({tuple(r.accuracies) for r in runs}) == 1


@pytest.mark.parametrize("made", [Net, lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(inplace=True),
                                                             nn.Linear(9, 10))], ids=["plain", "in place"])  # fmt: skip
def test_stacked_has_the_same_weights(made):
    fn.add_model("mine", made)
    (_, one, *_), (_, two, name, _) = (run(engine, "SCAFFOLD", precision="fp64") for engine in ("loop", "stacked"))
    assert name == "stacked" and torch.allclose(one, two, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "made, why",
    [(dropping, "draws at random, as Dropout does"), (normed, "keeps running statistics, as BatchNorm does"),
     (Noisy, "draws at random"), (Branching, "cannot be stacked (RuntimeError: vmap")],
)  # fmt: skip
def test_what_cannot_be_stacked_runs_elsewhere_and_says_so(made, why, capsys, monkeypatch):
    from fednb import engines

    monkeypatch.setattr(engines, "_said", set())
    fn.add_model("mine", made)
    for _ in range(2):
        assert type(choose("stacked", setting(), method("fedavg"), 0)) is Loop
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and why in said and said.endswith(": engine 'loop' in place of 'stacked'\n")
    fn.add_model("good", Net)
    assert type(choose("stacked", setting().but(model="good"), method("fedavg"), 0)) is Stacked


def test_models_that_look_alike_are_not_taken_for_each_other():
    """Captured steps are shared by the form of the objective."""
    forms = []
    for made in (Net, Noisy.__mro__[1], lambda classes, input: Net(classes, input)):
        fn.add_model("mine", made)
        forms.append(problem_of(setting(), 0).objective.form)
    assert forms[0] == forms[1] != forms[2]
    assert Objective(nn.Linear(1, 1)).form == "fp32 Linear(in_features=1, out_features=1, bias=True)"


def test_a_model_that_cannot_be_sent_is_said_in_one_line_and_run_in_this_process(tmp_path, monkeypatch):
    from fednb import engines
    from fednb.base.processes.shared import NotSendable

    with open(tmp_path / "x", "w") as file:
        fn.add_model("mine", lambda classes, input: Net(classes, input) if file else None)
        with pytest.raises(NotSendable, match=r"worker processes cannot be told: .*; use engine='loop'"):
            choose("pool", setting(), method("fedavg"), 0, workers=1)
        monkeypatch.setattr(engines, "SMALL", 0)
        monkeypatch.setattr(engines, "cores", lambda: 2)
        assert type(choose("auto", setting(), method("fedavg"), 0, device="cpu")) is Loop
    pool.dismiss()


def test_workers_get_the_model_that_has_the_name_now():
    fn.add_model("mine", Net)
    one = fn.run(setting(), "FedAvg", engine="pool", workers=1, progress=False)
    fn.add_model("mine", lambda classes, input: Net(classes, input, width=3))
    two = fn.run(setting(), "FedAvg", engine="pool", workers=1, progress=False)
    assert one.key != two.key and (one.w.numel(), two.w.numel()) == (460, 235)
