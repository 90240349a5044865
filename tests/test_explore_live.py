"""Two runs live: they take turns, stop when told, and end as they would have ended alone."""

import re
import threading
import time
from html import unescape

import pytest
import torch
from moving import check

import fednb as fn
from fednb.show.explore import duel as playing
from fednb.show.explore import live as module
from fednb.show.explore.duel import AtWork, Duel, Paused, Turns
from fednb.show.explore.live import LiveRun

BASE = fn.Setting(samples=80, clients=4, participation=1.0, rounds=4, epochs=1, batch=20)
NAMES = ["FedAvg", "SCAFFOLD"]  # one without and one with state of its own


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    monkeypatch.setattr(playing, "GAP", 0.01)
    yield
    if playing._playing is not None:
        playing._playing.pause()
    assert [t for t in threading.enumerate() if t is not threading.main_thread() and not _foreign(t)] == []


def _foreign(thread):
    """Threads of others: tqdm's monitor, test runners."""
    return "Duel" not in repr(getattr(thread, "_target", None))


def duel(**changes):
    return Duel(BASE.but(**changes), NAMES, device="cpu")


def live(**chosen):
    return LiveRun(*NAMES, base=BASE, alpha=1.0, device="cpu", **chosen)


def stop_after(rounds, one):
    """A watcher that stops the duel as soon as so many rounds are done."""
    return lambda: one.turns.stop() if one.done >= rounds else None


def direct(side):
    """The same run in one go, in a store of its own making."""
    return fn.run(side.setting, side.method, side.seed, probe=None, engine="loop", device="cpu", progress=False)


def test_a_method_of_ones_own_and_a_sum_can_be_watched():
    mine = fn.Method("mine", fn.parts.Prox(mu=0.3))
    one = LiveRun(mine, "fedavg + prox(0.2)", base=BASE.but(rounds=2), alpha=1.0, device="cpu")
    one.play()
    assert [(side.method.name, len(side.rows)) for side in one.duel(one.values).sides] == [
        ("mine", 2), ("fedavg + prox(0.2)", 2),
    ]  # fmt: skip


def test_turns_are_taken_round_by_round(monkeypatch):
    told = []
    one = duel()
    for side in one.sides:
        monkeypatch.setattr(side, "take", lambda row, side=side, take=side.take: take(row) and not told.append(side))
    one.start()
    one.wait()
    assert told == one.sides * BASE.rounds  # first, second, first, second, …
    assert one.over and one.done == one.total == 8


def test_paused_and_resumed_ends_as_in_one_go():
    one = duel()
    one.start(stop_after(3, one))
    one.wait()
    assert 3 <= one.done < 8 and not one.over and not one.at_work
    again = duel()  # as after a restart: what is known comes from the store
    assert [len(side.rows) for side in again.sides] == [len(side.rows) for side in one.sides]
    again.start()
    again.wait()
    for side in again.sides:
        assert side.run.status == "finished" and [row["round"] for row in side.rows] == [0, 1, 2, 3]
        assert side.run.weights_sha256 == direct(side).weights_sha256


def test_rows_have_the_mean_cosine_between_moves():
    one = duel(rounds=2)
    one.start()
    one.wait()
    for side in one.sides:
        for t, row in enumerate(side.rows):
            moves = torch.nn.functional.normalize(side.run.probed(t).vectors["move"].double(), dim=1)
            pairs = (moves @ moves.T)[~torch.eye(len(moves), dtype=torch.bool)]
            assert row["agreement"] == pytest.approx(float(pairs.mean()), abs=1e-9)
            assert row["drift"] == pytest.approx(float(side.run.probed(t).vectors["move"].norm(dim=1).mean()), rel=1e-5)


def test_started_twice_it_refuses_and_another_one_is_paused():
    one, other = duel(), duel(lr=0.05)
    one.start()
    with pytest.raises(AtWork, match="pause them first"):
        one.start()
    other.start()
    assert not one.at_work and other.at_work
    other.pause()
    assert not other.at_work and not any(t.is_alive() for t in (*one.runners, *other.runners))


def test_stopped_turns_wake_those_who_wait():
    turns = Turns([0, 1])
    seen = []

    def wait():
        try:
            turns.mine(1)
        except Paused:
            seen.append("paused")

    thread = threading.Thread(target=wait)
    thread.start()
    turns.stop()
    thread.join(5)
    assert seen == ["paused"] and not thread.is_alive()


def test_what_leaves_hands_its_turn_on():
    turns = Turns([0, 1])
    turns.mine(0)
    turns.leave(0)
    turns.mine(1)  # returns at once


def test_an_interrupt_pauses_and_leaves_no_thread(monkeypatch):
    one = duel()
    one.start()
    join, calls = one.runners[0].join, []
    monkeypatch.setattr(one.runners[0], "join", lambda patience=None: calls.append(1) or (
        join(patience) if len(calls) > 1 else (_ for _ in ()).throw(KeyboardInterrupt)))  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        one.wait()
    assert not one.at_work and not one.over and not one.teller.is_alive()


def test_an_error_is_shown_and_the_other_side_goes_on(monkeypatch):
    whole = playing.run

    def run(setting, method, *rest, **how):
        if method.name == "SCAFFOLD":
            raise RuntimeError("the <disk> is full")
        return whole(setting, method, *rest, **how)

    monkeypatch.setattr(playing, "run", run)
    explorer = live()
    explorer.start()
    explorer.duel(explorer.values).wait()
    assert "SCAFFOLD stopped: RuntimeError: the &lt;disk&gt; is full" in explorer.state.value
    assert "role='alert'" in explorer.state.value
    first, second = explorer.duel(explorer.values).sides
    assert first.run.status == "finished" and second.rows == []
    with pytest.raises(RuntimeError, match="disk"):
        explorer.play()


def test_buttons_drive_the_runs():
    explorer = live()
    explorer.refresh()
    empty = explorer.picture.value
    buttons = explorer.buttons

    def enabled():
        return {name for name, button in buttons.items() if not button.disabled}

    assert enabled() == {"start"} and "not started" in explorer.words.value
    one = explorer.duel(explorer.values)
    one.sides[1].take, kept = lambda row, take=one.sides[1].take: take(row) and not one.turns.stop(), one.sides[1].take
    buttons["start"].click()
    one.wait()  # the second side stops both at its first round
    one.sides[1].take = kept
    assert enabled() == {"resume", "keep"} and "paused after" in explorer.state.value
    assert explorer.picture.value != empty and 0 < explorer.bar.value < 1
    buttons["resume"].click()
    one.wait()
    assert enabled() == {"keep"} and "finished" in explorer.state.value and explorer.bar.value == 1
    assert all(not control.disabled for control in explorer.controls.values())
    for side in one.sides:
        assert f"accuracy {side.rows[-1]['accuracy']:.2f}%" in explorer.words.value


def test_controls_are_locked_while_at_work(monkeypatch):
    explorer = live()
    seen = []
    said = explorer._say
    monkeypatch.setattr(explorer, "_say", lambda working: (said(working), seen.append(
        (working, explorer.controls["lr"].disabled, explorer.buttons["pause"].disabled)
    )))  # fmt: skip
    explorer.start()
    explorer.duel(explorer.values).wait()
    assert (True, True, False) in seen and seen[-1] == (False, False, True)


def test_what_is_said_to_be_paused_is_drawn_to_its_last_round(monkeypatch):
    """The runs end while a picture of them is being made: that picture is behind, so the next one says it."""
    explorer = live()
    explorer.controls["rounds"].value = 100  # so that they do not end by themselves
    one = explorer.duel(explorer.values)
    draw, said = explorer.draw, []

    def slow(**values):
        before, drawn = one.done, draw(**values)
        if before and not one.turns.stopped:
            while one.done == before and one.at_work:
                time.sleep(0.01)
            one.turns.stop()
            for thread in one.runners:
                thread.join()
        return drawn

    monkeypatch.setattr(explorer, "draw", slow)
    explorer.state.observe(lambda change: said.append((change["new"], explorer.words.value)), names="value")
    explorer.start()
    one.wait()
    behind, (state, words) = said[-2], said[-1]
    assert "paused" not in behind[0]
    assert [f"paused after {one.done} of" in state, "paused" in words] == [True, False]
    assert sum(map(int, re.findall(r"round (\d+) of", words))) == one.done


def test_what_is_kept_can_be_typed():
    explorer = live()
    explorer.play()
    explorer.refresh()
    explorer.keep()
    sides = explorer.duel(explorer.values).sides
    typed = re.findall(r"<code>(fn\.run.*?)</code>", explorer.kept.value)
    for side, text in zip(sides, typed, strict=True):
        assert eval(unescape(text), {"fn": fn}).key == side.run.key in explorer.kept.value
    assert [run.key for run in explorer.runs] == [side.run.key for side in sides]
    explorer.keep()
    assert len(explorer.runs) == 2


@pytest.mark.parametrize("name, value", [
    ("first", "FedProx"), ("second", "FedSAM"), ("data", "bloodmnist-made"), ("alpha", 0.1), ("clients", 6),
    ("rounds", 5), ("lr", 0.01), ("seed", 1),
])  # fmt: skip
def test_every_control_is_another_duel(name, value):
    explorer = live()
    before = [side.run.key for side in explorer.duel(explorer.values).sides]
    explorer.controls[name].value = value
    after = [side.run.key for side in explorer.duel(explorer.values).sides]
    changed = [a != b for a, b in zip(before, after, strict=True)]
    assert changed == {"first": [True, False], "second": [False, True]}.get(name, [True, True])


@pytest.mark.parametrize(
    "partition, slider", [("pathological(classes=3)", None), ("dirichlet-client(alpha=0.003)", 0.003), ("iid", None)]
)
def test_the_partition_of_the_setting_stays(partition, slider):
    explorer = LiveRun(*NAMES, base=BASE.but(partition=partition), device="cpu")
    assert getattr(explorer.controls.get("alpha"), "value", None) == slider
    (setting,) = {side.setting for side in explorer.duel(explorer.values).sides}
    assert setting.partition == BASE.but(partition=partition).partition


def test_alpha_moves_the_partition_of_the_setting():
    explorer = LiveRun(*NAMES, base=BASE.but(partition="dirichlet(alpha=0.3)"), device="cpu")
    explorer.controls["alpha"].value = 2.0
    assert str(explorer.duel(explorer.values).sides[0].setting.partition) == "dirichlet(alpha=2.0, minimum=10)"
    asked = LiveRun(*NAMES, base=BASE.but(partition="iid"), alpha=2.0, device="cpu")
    assert str(asked.duel(asked.values).sides[0].setting.partition) == "dirichlet-client(alpha=2.0)"


def test_a_method_against_itself_is_refused():
    explorer = live()
    explorer.controls["second"].value = "FedAvg"
    assert "against itself" in explorer.words.value and all(b.disabled for b in explorer.buttons.values())


def test_executed_headless_both_run_to_the_end(monkeypatch):
    monkeypatch.setenv("FEDNB_WIDGETS", "still")
    explorer = live()
    shown = []
    show = explorer.sheet.show
    monkeypatch.setattr(explorer.sheet, "show", lambda duel, upto: shown.append(upto) or show(duel, upto))
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"} and explorer.duel(explorer.values).over
    assert shown == [1, 2, 3, 4]
    assert [len(line.get_xdata()) for line in explorer.sheet.lines["drift"]] == [4, 4]


def test_without_a_kernel_every_state_has_its_picture(monkeypatch):
    """Round by round, against the first method and another one; the words are those of the rounds that are seen."""
    monkeypatch.setattr(module, "OTHERS", ("FedProx",))
    explorer = live()

    def put(values):
        """The live controls show all rounds there are: a run that was stopped there."""
        explorer.controls["second"].value = values["second"]
        for side in (one := explorer.duel(explorer.values)).sides:
            rows.setdefault(side.run.key, side.rows)
            side.rows = rows[side.run.key][: values["shown"]]
        explorer.refresh()
        shown = explorer.picture.value, explorer.words.value
        for side in one.sides:
            side.rows = rows[side.run.key]
        return shown

    rows: dict = {}
    second, shown = explorer.moves()
    check(explorer, put)
    assert [value for _, value in second.options] == ["SCAFFOLD", "FedProx"] and shown.start == BASE.rounds - 1
