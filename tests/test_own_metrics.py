"""Extra metrics in the history: by hand, of the global model and of the clients, on every engine; in the key."""

import sys
from math import isnan, nan

import numpy as np
import pytest
import torch
from pytest import approx

import fednb as fn
from fednb.base.imports import BadImport
from fednb.engines.loop import Loop
from fednb.engines.measures import BadMetric, accuracy, calibration_error, find_all, macro_f1
from fednb.engines.problem import clients_of, data_of, problem_of, validation_of
from fednb.runs.keys import identify, key_of

pytestmark = pytest.mark.usefixtures("own_names")
TINY = fn.Setting(samples=120, clients=4, participation=0.5, rounds=3, epochs=1, batch=16, precision="fp64")
FEDAVG = fn.method("FedAvg")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))


def top3(logits, labels):
    return 100 * (logits.topk(3).indices == labels[:, None]).any(1).double().mean()


def column(setting, name, method="FedAvg", **how):
    return fn.run(setting.but(metrics=[name]), method, progress=False, **how).history[name].tolist()


def test_f1_by_hand():
    """Classes 0, 1, 2 with F1 of 2·1/(2+1) and 2·2/(2+3), and 0; class 3 is nowhere and counts for nothing."""
    logits = torch.nn.functional.one_hot(torch.tensor([0, 1, 1, 0, 2]), 4).double()
    labels = torch.tensor([0, 1, 1, 1, 0])
    f1 = [2 * 1 / (2 + 2), 2 * 2 / (2 + 3), 0.0]
    assert macro_f1(logits, labels) == approx(100 * sum(f1) / 3)


def test_calibration_by_hand():
    """Confidences 0.9, 0.9 (one right) in one bin, 0.55 (right) in another: (|1 − 1.8| + |1 − 0.55|) / 3."""
    sure = torch.tensor([0.9, 0.9, 0.55], dtype=torch.float64)
    logits = torch.stack([sure.log(), (1 - sure).log()], dim=1)
    assert calibration_error(logits, torch.tensor([0, 1, 0])) == approx(100 * (0.8 + 0.45) / 3)


def test_columns_stand_beside_accuracy():
    """A metric that is accuracy has its numbers; rounds that are not tested have none."""
    fn.add_metric("mine", accuracy)
    fn.add_metric("top3", top3)
    made = fn.run(TINY.but(metrics=["top3", "mine"], evaluate_every=2), "FedAvg", progress=False)
    history = made.history
    assert history["mine"].tolist() == approx(history["accuracy"].tolist(), nan_ok=True)
    assert history["mine"].isna().tolist() == [True, False, False]
    assert (history["top3"].dropna() > history["accuracy"].dropna()).all()
    assert list(history)[1:5] == ["accuracy", "test_loss", "mine", "top3"]


def test_metrics_do_not_change_the_training():
    plain, measured = (fn.run(each, "FedSAM", progress=False) for each in (TINY, TINY.but(metrics="macro_f1")))
    assert torch.equal(plain.w, measured.w) and plain.key != measured.key
    assert plain.history["accuracy"].tolist() == measured.history["accuracy"].tolist()


@pytest.mark.parametrize("engine", ["stacked", "pool"])
def test_every_engine_has_the_same_numbers(engine):
    fn.add_metric("top3", top3)
    setting = TINY.but(metrics="top3, worst_client_accuracy, calibration_error", rounds=2)
    looped, other = (
        fn.run(setting, "FedAvg", engine=each, workers=1, again=True, progress=False).history[list(setting.metrics)]
        for each in ("loop", engine)
    )
    assert looped.to_numpy() == approx(other.to_numpy(), rel=1e-9)


def by_client(made, parts):
    """Each client's accuracy of the final model on the samples of its part."""
    problem = problem_of(made.setting, 0)
    x, y = problem.samples
    b = torch.zeros(0, dtype=torch.float64)
    return [accuracy(*problem.answers(made.w, b, x[part], y[part])) for part in map(torch.from_numpy, parts)]


@pytest.mark.parametrize("how, of_all", [("min", np.min), ("max", np.max), ("mean", np.mean)])
def test_metrics_of_clients_are_over_their_training_samples(how, of_all):
    fn.add_metric("own", accuracy, per_client=how)
    made = fn.run(TINY.but(metrics=["own"]), "FedAvg", progress=False)
    each = by_client(made, clients_of(TINY, 0, data_of(TINY)))
    assert made.history["own"].iloc[-1] == approx(of_all(each)) and min(each) < max(each)


def test_the_worst_client_is_judged_on_what_it_holds_out():
    setting = TINY.but(validation=0.3, metrics="worst_client_accuracy")
    made = fn.run(setting, "FedAvg", progress=False)
    data = data_of(setting)
    held = validation_of(setting, 0, data)
    whole = clients_of(setting.but(validation=0.0), 0, data)
    parts = [np.intersect1d(part, held) for part in whole]
    assert sum(map(len, parts)) == len(held)
    assert made.history["worst_client_accuracy"].iloc[-1] == approx(min(by_client(made, parts)))


def test_personal_metrics_are_those_of_each_clients_own_model():
    """The mean over clients of accuracy on their own splits is what a personal run reports; also of who stays away."""
    fn.add_metric("own", accuracy, per_client="mean")
    fn.add_metric("everywhere", accuracy)
    setting = TINY.but(evaluation="personal", tune_epochs=1, metrics=["own", "everywhere"], samples=600)
    *rounds, tuned = fn.run(setting, "FedPer", progress=False).rows
    assert [row["own"] for row in rounds] == approx([row["accuracy"] for row in rounds])
    assert [row["everywhere"] for row in rounds] == approx([row["global_accuracy"] for row in rounds])
    assert tuned["tuned"] == 1 and tuned["own"] is None and tuned["everywhere"] is None


def test_an_interrupted_personal_run_goes_on_with_its_numbers():
    """What clients that stay away had is kept with the rest."""
    fn.add_metric("own", accuracy, per_client="min")
    setting = TINY.but(evaluation="personal", tune_epochs=0, metrics=["own"])

    class Stop(Exception):
        pass

    def stop(row):
        if row["round"] == 1:
            raise Stop

    whole = fn.run(setting, "FedAvg", progress=False).rows
    with pytest.raises(Stop):
        fn.run(setting, "FedAvg", progress=stop, again=True)
    assert [row["own"] for row in fn.run(setting, "FedAvg", progress=False).rows] == [row["own"] for row in whole]


def key(*metrics):
    return key_of(identify(TINY.but(metrics=metrics), FEDAVG, 0))


def test_the_key_has_names_and_code():
    plain = key()
    assert plain == key_of(identify(TINY, FEDAVG, 0))
    assert key("macro_f1", "calibration_error") == key("calibration_error", "macro_f1", "macro_f1") != key("macro_f1")
    fn.add_metric("mine", top3)
    first = key("mine")
    fn.add_metric("mine", top3, per_client="min")
    second = key("mine")
    fn.add_metric("mine", accuracy)
    assert len({plain, first, second, key("mine")}) == 4


def test_a_kept_run_without_the_metric_is_not_taken():
    fn.run(TINY, "FedAvg", progress=False)
    assert "macro_f1" in fn.run(TINY.but(metrics=["macro_f1"]), "FedAvg", progress=False).history


def test_names_as_text_and_as_a_list():
    assert find_all("") == find_all([]) == () and find_all(" macro_f1 ,") == find_all(["macro_f1"]) == ("macro_f1",)
    setting = TINY.but(metrics=["macro_f1", "calibration_error"])
    assert fn.Setting(**setting.plain()) == setting


@pytest.mark.parametrize("function, said", [
    (lambda z, y: z, r"metric 'mine' gives no number for logits \(\d+, 10\) and labels \(\d+,\): ValueError: only one"),
    (lambda z: 1, r"metric 'mine' gives no number .*TypeError"),
    (lambda z, y: None, r"metric 'mine' gives no number .*TypeError"),
    (lambda z, y: 1 / 0, r"metric 'mine' gives no number .*ZeroDivisionError"),
])  # fmt: skip
@pytest.mark.parametrize("per_client", ["", "min"])
def test_what_gives_no_number_is_refused_before_anything_is_trained(function, said, per_client, monkeypatch):
    fn.add_metric("mine", function, per_client=per_client)
    monkeypatch.delattr(Loop, "train")
    with pytest.raises(BadMetric, match=said):
        fn.run(TINY.but(metrics=["mine"]), "FedAvg", engine="loop", progress=False)


@pytest.mark.parametrize("given, said", [
    (("accuracy", top3), "metric 'accuracy' is a column that every history has; take another name"),
    (("macro_f1", top3), "metric 'macro_f1' is one of fednb's own; take another name"),
    (("a b", top3), "metric 'a b': must be a name of letters"),
    ((["x"], top3), r"metric \['x'\]: must be a name of letters"),
    (("mine", None), "metric 'mine' is None, expected a function of logits and labels"),
])  # fmt: skip
def test_what_cannot_be_entered(given, said):
    with pytest.raises(BadMetric, match=said):
        fn.add_metric(*given)


def test_per_client_is_one_of_three():
    with pytest.raises(BadMetric, match="metric 'mine': per_client = 'worst', expected mean, min, max or none"):
        fn.add_metric("mine", top3, per_client="worst")


def test_a_model_that_has_diverged_has_no_number():
    fn.add_metric("mine", lambda z, y: 1 / 0 if z.isnan().any() else 1.0)
    made = fn.run(TINY.but(metrics=["mine"], lr=1e300, clip_norm=None), "FedAvg", progress=False)
    assert made.status == "diverged" and isnan(made.rows[-1]["mine"] or nan)


def test_by_import_path_with_the_clients_named_by_an_attribute(tmp_path, monkeypatch):
    (tmp_path / "my_scores.py").write_text(
        "def share(logits, labels):\n    return (logits.argmax(1) == labels).double().mean()\n\n"
        "def worst(logits, labels):\n    return share(logits, labels)\n\nworst.per_client = 'min'\n"
    )
    monkeypatch.chdir(tmp_path)
    made = fn.run(TINY.but(metrics=["my_scores:share", "my_scores:worst"]), "FedAvg", progress=False)
    last = made.rows[-1]
    assert last["my_scores:share"] == approx(last["accuracy"] / 100)
    assert last["my_scores:worst"] == approx(min(by_client(made, clients_of(TINY, 0, data_of(TINY)))) / 100)
    with pytest.raises(BadImport, match="my_scores has no 'best'"):
        fn.Setting(metrics=["my_scores:best"])
    sys.modules.pop("my_scores")


def test_a_comparison_is_scored_by_a_metric():
    """The value after the last round; what no setting has is refused with the names that there are."""
    made = fn.grid(TINY.but(metrics=["macro_f1"]), ["fedavg", "fedsam"], seeds=[0, 1]).run()
    last = [run.history["macro_f1"].iloc[-1] for run in made.runs()]
    assert made.scores("macro_f1")["value"].tolist() == last
    assert made.table(measure="macro_f1").loc["FedAvg", "mean"] == approx(np.mean(last[:2]))
    with pytest.raises(ValueError, match=r"measure = 'top3': must be one of accuracy, .*, validation, macro_f1"):
        made.scores("top3")


def test_a_longer_run_goes_on_with_its_metrics():
    short = fn.run(TINY.but(metrics=["macro_f1"]), "FedAvg", progress=False)
    longer = fn.run(TINY.but(metrics=["macro_f1"], rounds=4), "FedAvg", progress=False)
    assert longer.about["went_on_from"] == short.key and longer.history["macro_f1"].notna().all()
