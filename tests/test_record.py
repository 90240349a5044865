"""Declared state: what may be written, by whom, for which clients; and what was sent because it was read."""

import pytest
import torch
from quadratics import QuadraticRounds, one_round, quadratic, vector

from fednb.algorithms.parts import ClientMomentum, Dyn, Lesam, Sam, Scaffold
from fednb.core.record import Cohort, L, LocalTraining, P, Record, Server, Table, UndeclaredState, core_rows, length
from fednb.core.rounds import (
    COHORT_NAMES,
    SERVER_NAMES,
    BadMethod,
    Method,
    Part,
    numbers,
    observed_local,
    observed_server,
    part,
)
from fednb.core.vectors import Layout

LAYOUT = Layout(("a", "b"), ((2,), (1,)))


def cohort(steps=(1, 3, 2), **own) -> Cohort:
    """Clients of three parameters, with minima at 0 and half a unit of loss everywhere."""
    C = len(steps)
    rows = {name: torch.zeros(C, 3, dtype=torch.float64) for name in ("w", "w0", "delta")}
    rows |= {"loss": torch.zeros(C, 1, dtype=torch.float64), "b": torch.zeros(C, 0, dtype=torch.float64), **own}
    return Cohort(
        range(C), rows, layout=LAYOUT, n=torch.arange(1, C + 1), steps=torch.tensor(steps),
        training=LocalTraining(lr=0.1),
        oracle=lambda w, b, step: (w, w[:, :1] * 0 + 0.5, torch.ones(C, 1, dtype=w.dtype), b),
    )  # fmt: skip


def server(**own) -> Server:
    return Server(torch.zeros(3), torch.zeros(0), own, t=0, N=3, lr=1.0)


def test_dimensions_are_counted_from_the_layout():
    """Three parameters, two layers, or a plain count."""
    assert (length(P, LAYOUT), length(L, LAYOUT), length(5, LAYOUT)) == (3, 2, 5)


def test_writing_an_undeclared_name_lists_the_declared_ones():
    k = cohort(c_k=torch.zeros(3, 3))
    with pytest.raises(
        UndeclaredState, match=r"cannot write 'ck' on the cohort.*w, w0, delta, loss, b, c_k.*per_client"
    ):
        k.ck = torch.zeros(3, 3)
    s = server(m=torch.zeros(3))
    with pytest.raises(UndeclaredState, match=r"cannot write 'n' on the server; declared: w, b, delta, step, lr, m\."):
        s.n = 1.0


def test_reading_an_undeclared_name_lists_the_declared_ones():
    with pytest.raises(UndeclaredState, match=r"no 'm' on the server; declared: w, b, delta, step, lr, c"):
        server(c=torch.zeros(3)).m  # noqa: B018
    assert not hasattr(cohort(), "c_k")


def test_a_part_cannot_write_what_it_does_not_declare():
    @part
    class Forgetful(Part):
        def finish(self, k, s):
            """z ← 1"""
            k.z = 1.0

    with pytest.raises(UndeclaredState, match=r"'z'.*Declare it in the part"):
        one_round(Method("m", Forgetful()), quadratic(1.0))


def test_a_number_fills_the_whole_buffer_in_its_own_dtype():
    k = cohort()
    k.w = 2
    assert k.w.dtype == torch.float64
    assert k.w.tolist() == [[2.0] * 3] * 3


def test_one_vector_goes_to_every_client():
    k = cohort()
    k.w0 = k.w = vector(1, 2, 3)
    assert k.w.tolist() == k.w0.tolist() == [[1.0, 2.0, 3.0]] * 3


@pytest.mark.parametrize("value", [torch.zeros(3, 2), torch.zeros(2, 3), torch.zeros(1, 3, 3)])
def test_a_wrong_shape_names_both_shapes(value):
    k = cohort()
    with pytest.raises(ValueError, match="'w' on the cohort has shape") as error:
        k.w = value
    assert str(error.value).endswith(f"has shape (3, 3), not {tuple(value.shape)}")


def test_a_wrong_shape_on_the_server():
    s = server()
    with pytest.raises(ValueError, match=r"'w' on the server has shape \(3,\), not \(4,\)"):
        s.w = torch.zeros(4)


def test_finished_clients_stand_still():
    """Steps 1, 3, 2: everyone writes in step 0, clients 1 and 2 in step 1, client 1 in step 2, everyone at the end."""
    k = cohort(steps=(1, 3, 2))
    seen = []
    for step in range(k.max_steps):
        k.begin(step)
        k.w = k.w + 1
        seen.append(k.w[:, 0].tolist())
    assert seen == [[1, 1, 1], [1, 2, 2], [1, 3, 2]]
    k.end()
    k.w = k.w + 1
    assert k.w[:, 0].tolist() == [2, 4, 3]


def test_declared_rows_are_masked_like_the_model():
    k = cohort(steps=(1, 2), mu=torch.zeros(2, 3, dtype=torch.float64))
    k.begin(1)
    k.mu = torch.ones(2, 3)
    assert k.mu.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_finished_clients_gradient_never_arrives():
    """It is 1e9 in `quadratics`, on zero samples; after K steps of η = 0.1 towards 1, w_k = 1 − 0.9^K."""
    k, _ = one_round(Method("FedAvg"), quadratic(1.0, 1.0, 1.0), steps=(1, 3, 2))
    assert k.w.view(-1).tolist() == pytest.approx([0.1, 0.271, 0.19], abs=1e-15)


def test_gradients_are_counted_while_a_client_is_active():
    """Steps 1, 3, 2 with two gradients in each."""
    k, _ = one_round(Method("m", Sam()), quadratic(1.0, 1.0, 1.0), steps=(1, 3, 2))
    assert k.evaluations.view(-1).tolist() == [2, 6, 4]


def test_training_loss_is_the_mean_of_first_passes():
    """L = ½(w − 1)² from 0: ½ and ½ · 0.81 have mean 0.4525; a second pass, after the ascent, is not in it."""
    plain, _ = one_round(Method("m"), quadratic(1.0), steps=2)
    assert plain.loss.item() == pytest.approx(0.4525, abs=1e-15)
    sam, _ = one_round(Method("m", Sam(rho=0.5)), quadratic(1.0), steps=1)
    assert sam.loss.item() == pytest.approx(0.5, abs=1e-15)


def test_training_loss_of_a_finished_client_stays():
    """One step and three: ½, and ½ (1 + 0.81 + 0.6561) / 3."""
    k, _ = one_round(Method("m"), quadratic(1.0, 1.0), steps=(1, 3))
    assert k.loss.view(-1).tolist() == pytest.approx([0.5, 0.5 * 2.4661 / 3], abs=1e-15)


def test_client_stages_cannot_write_on_the_server():
    @part
    class Meddler(Part):
        on_server = {"m": P}

        def finish(self, k, s):
            """m ← Δ_k"""
            s.m = k.delta[0]

    f = QuadraticRounds(Method("m", Meddler()), quadratic(1.0))
    with pytest.raises(UndeclaredState, match=r"a client stage cannot write 'm' on the server; use `server`"):
        f.round()
    assert not f.s.locked, "the lock must go when the round fails"
    f.s.m = 1.0
    assert f.s.m.tolist() == [1.0]


def test_the_server_stage_may_write():
    _, s = one_round(Method("m", ClientMomentum(alpha=1.0)), quadratic(1.0))
    assert s.m.item() == pytest.approx(-1.0)


def test_reading_is_noted_and_forgotten():
    r = Record({"x": 1, "y": 2})
    assert r.heard == frozenset()
    assert r.x == 1
    assert r.heard == {"x"}
    assert r.values(["y"]) == {"y": 2}, "reading for the books is not sending"
    assert r.heard == {"x"}
    r.listen()
    assert r.heard == frozenset()
    assert r.names == ("x", "y")


def test_what_clients_read_of_the_server_was_sent():
    """The model always is; the rate and the server's own step never are; declared state only where it is read."""
    s = server(c=torch.zeros(3), h=torch.zeros(3))
    s.lr, s.delta, s.step, s.c  # noqa: B018
    assert s.sent == {"w", "b", "c"}
    assert numbers(s.sent, s) == 6


def test_a_move_is_sent_once():
    """w_k, w and Δ_k are derivable from one another and from what the server sent; rates and weights are known."""
    k = cohort(c_k=torch.zeros(3, 3))
    k.w, k.w0, k.delta, k.lr, k.p, k.weight_decay, k.clip_norm  # noqa: B018
    assert k.sent == {"delta", "b"}
    k.c_k  # noqa: B018
    assert k.sent == {"delta", "b", "c_k"}
    assert numbers(k.sent, k) == 6


@pytest.mark.parametrize(
    "parts, down, up",
    [((), 1, 1), ((Scaffold(),), 2, 2), ((Dyn(),), 1, 1), ((ClientMomentum(),), 2, 1)],
    ids=["FedAvg", "SCAFFOLD", "FedDyn", "FedCM"],
)
def test_numbers_sent_per_parameter(parts, down, up):
    """Two parameters: SCAFFOLD sends c down and Δc_k up beside the model, FedCM m down, FedDyn nothing more."""
    f = QuadraticRounds(Method("m", *parts), quadratic([1.0, 2.0], [3.0, 4.0]))
    k = f.round()
    assert (observed_local(f.method, k, f.s), observed_server(f.method, k, f.s)) == (2 * down, 2 * up)


def test_table_gives_start_values_until_a_client_has_its_own():
    table = Table({"c": vector(0, 0), "alpha": vector(0.5)})
    assert table.gather([7, 3])["alpha"].tolist() == [[0.5], [0.5]]
    table.scatter([3], {"c": vector(1, 2)[None], "alpha": vector(0.9)[None], "w": vector(8, 8)[None]})
    rows = table.gather([7, 3])
    assert list(rows) == ["c", "alpha"], "only declared rows are kept"
    assert rows["c"].tolist() == [[0, 0], [1, 2]]
    assert rows["alpha"].tolist() == [[0.5], [0.9]]


def test_table_keeps_a_copy():
    """What a cohort does to its rows afterwards is its own affair."""
    table, rows = Table({"c": vector(0.0)}), {"c": torch.ones(1, 1, dtype=torch.float64)}
    table.scatter([0], rows)
    rows["c"].zero_()
    assert table.gather([0])["c"].item() == 1.0


def test_table_of_nothing_is_empty():
    assert Table({}).gather([0, 1]) == {}


def test_initial_gives_start_values_other_than_zero():
    """α starts at ½ on clients and server and each round adds ¼; b, beside it, starts at zero."""

    @part
    class Schedule(Part):
        per_client = {"alpha": 1, "b_k": P}
        on_server = {"alpha": 1}

        def initial(self):
            return {"alpha": 0.5}

        def finish(self, k, s):
            """α_k ← α_k + ¼"""
            k.alpha = k.alpha + 0.25

    f = QuadraticRounds(Method("m", Schedule()), quadratic(1.0, 2.0))
    f.round([0])
    assert f.kept("alpha").tolist() == [[0.75], [0.5]]
    assert f.kept("b_k").tolist() == [[0.0], [0.0]]
    assert f.s.alpha.tolist() == [0.5]


def test_this_rounds_state_starts_anew():
    @part
    class Count(Part):
        this_round = {"count": 1}

        def correct(self, k, s, v):
            """count ← count + 1"""
            k.count = k.count + 1
            return v

    f = QuadraticRounds(Method("m", Count()), quadratic(1.0, 1.0), steps=(3, 1))
    assert f.round().count.view(-1).tolist() == [3, 1]
    assert f.round().count.view(-1).tolist() == [3, 1]


def test_rates_may_differ_by_client():
    """`start` may change k.lr: 0.1 and 0.2 towards 1 give 0.1 and 0.2; the next round has the round's rate again."""

    @part
    class OwnRate(Part):
        def start(self, k, s):
            """η_k ← (k + 1) η"""
            if s.t == 0:
                k.lr = k.lr * vector(1, 2).view(2, 1)

    f = QuadraticRounds(Method("m", OwnRate()), quadratic(1.0, 1.0))
    assert f.round().w.view(-1).tolist() == pytest.approx([0.1, 0.2])
    assert f.round().w.view(-1).tolist() == pytest.approx([0.15 + 0.085] * 2)


# What a cohort and a server have of their own, written out: the derived names must not be fewer.
OF_COHORTS = {
    "w", "w0", "delta", "loss", "b", "lr", "weight_decay", "clip_norm", "p", "n", "ids", "steps", "step", "epochs",
    "samples", "labels", "active", "layout", "oracle", "evaluations", "looks", "nominal_steps", "lr_decay", "first_lr",
    "min_steps", "max_steps", "fresh", "buffers", "locked", "told", "noticed", "counts", "on", "asked",
    "grad", "look", "tell", "begin", "end", "values", "names", "sent", "heard", "receive",
}  # fmt: skip
OF_SERVERS = {
    "w", "b", "delta", "step", "lr", "t", "N", "samples", "seed",
    "locked", "values", "names", "sent", "heard", "receive",
}  # fmt: skip


def declaring(kind: str, name: str) -> Part:
    """A part that declares one number under a name."""

    def finish(self, k, s):
        """nothing"""

    return part(type("Declaring", (Part,), {kind: {name: 1}, "finish": finish}))()


def test_names_of_the_records_are_reserved():
    """Values, attributes and methods of a cohort and a server: a write under one of them would go astray."""
    own = {name for name in (*vars(cohort()), *cohort().names) if not name.startswith("_")}
    assert own | OF_COHORTS <= COHORT_NAMES
    own = {name for name in (*vars(server()), *server().names) if not name.startswith("_")}
    assert own | OF_SERVERS <= SERVER_NAMES
    assert not any(name.startswith("_") for name in COHORT_NAMES | SERVER_NAMES)


@pytest.mark.parametrize("kind, taken", [
    ("per_client", COHORT_NAMES), ("this_round", COHORT_NAMES), ("on_server", SERVER_NAMES),
])  # fmt: skip
def test_a_part_that_declares_a_reserved_name_is_refused(kind, taken):
    for name in sorted(taken):
        with pytest.raises(BadMethod, match=f"declares '{name}', a name that the round itself uses"):
            Method("m", declaring(kind, name))
    Method("m", declaring(kind, "my_own"))


def test_the_numbers_of_local_training_reach_the_cohort():
    """Every number of the object can be read on the cohort; the rate is that of round 2, 0.4 · 0.5²."""
    numbers = LocalTraining(lr=0.4, lr_decay=0.5, weight_decay=0.1, clip_norm=3.0, epochs=7, nominal_steps=2.5)
    rows = core_rows(LAYOUT, torch.zeros(3), torch.zeros(0), 1)
    one = torch.ones(1)
    k = Cohort((0,), rows, layout=LAYOUT, oracle=None, n=one, steps=one, training=numbers, t=2)
    assert k.lr.item() == pytest.approx(0.1)
    assert (k.first_lr, k.lr_decay, k.weight_decay, k.clip_norm) == (0.4, 0.5, 0.1, 3.0)
    assert (k.epochs, k.nominal_steps) == (7, 2.5)


def test_state_cannot_be_kept_and_made_anew_at_once():
    """Lesam keeps `seen` between rounds; a part that makes `seen` anew would overwrite it."""

    @part
    class Seeing(Part):
        this_round = {"seen": 1}

        def finish(self, k, s):
            """seen ← 1"""
            k.seen = 1.0

    with pytest.raises(BadMethod, match="one part keeps 'seen' between rounds, another makes it anew"):
        Method("m", Lesam(), Seeing())


def test_rows_on_the_host_are_the_same_rows():
    """Where they lie is nobody's business; what is kept is a copy."""
    there, here = Table({"c": vector(0.0, 1.0)}, on_host=True), Table({"c": vector(0.0, 1.0)})
    rows = {"c": torch.tensor([[5.0, 6.0]], dtype=torch.float64)}
    for table in (there, here):
        table.scatter([3], rows)
    rows["c"].zero_()
    assert torch.equal(there.gather([3, 4])["c"], here.gather([3, 4])["c"])
    assert there.gather([3, 4])["c"].tolist() == [[5.0, 6.0], [0.0, 1.0]]


def test_rows_go_to_another_device_one_by_one(monkeypatch):
    """The host never joins them. "cpu:0" stands for a GPU here: it is not the device that rows on the host name."""
    table = Table({"c": vector(0.0, 1.0), "d": torch.zeros(3)}, on_host=True)
    table.scatter([3, 7], {"c": torch.tensor([[5.0, 6.0], [7.0, 8.0]], dtype=torch.float64)})
    monkeypatch.setattr(torch, "stack", None)
    table.devices = dict.fromkeys(table.devices, torch.device("cpu:0"))
    rows = table.gather([7, 4, 3])
    assert rows["c"].tolist() == [[7.0, 8.0], [0.0, 1.0], [5.0, 6.0]] and rows["c"].dtype == torch.float64
    assert rows["d"].shape == (3, 3) and list(table.gather([7], ["d"])) == ["d"]
    rows["c"].zero_()
    assert table.gather([7])["c"].tolist() == [[7.0, 8.0]], "what is given is a copy"
