"""A traced step whose vectors are taken in pieces makes the same numbers, and no long vector that nobody needs."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.algorithms.catalogue import CATALOGUE, method
from fednb.engines import captured, lanes, pieces
from fednb.engines.compiled import Traced, as_order, ordered
from fednb.engines.objective import arithmetic
from fednb.engines.pieces import in_pieces, in_turn
from fednb.engines.stacked import Stacked
from fednb.runs.bench.engines import EngineRun
from fednb.runs.bench.workload import Workload

aten = torch.ops.aten
SIZES = (30, 2, 3, 20)  # two large layers with two small ones between them: three pieces
P = sum(SIZES)


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(pieces, "LARGE", 10)


def given(**more):
    """A model for each of four clients, its gradient in layers, and how far to go."""
    rng = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=rng)  # noqa: E731
    layers = {f"g{i}": make(4, n) for i, n in enumerate(SIZES)}
    return {"w": make(4, P), **layers, "rate": make(4, 1).abs(), **more}


def gradient(b):
    return torch.cat([b[f"g{i}"] for i in range(len(SIZES))], 1)


def both(work, b):
    """What a piece of work leaves in its buffers, and what it leaves there in pieces; its graph, and what was cut."""
    whole, apart, tried = ({name: x.clone() for name, x in b.items()} for _ in range(3))
    work(whole)
    graph = make_fx(work)(tried)
    cuts = in_pieces(graph)
    torch.fx.Interpreter(graph).run(*in_turn(list(apart.values()), cuts))
    return whole, apart, graph, cuts


def agree(whole, apart):
    for name, x in whole.items():
        torch.testing.assert_close(apart[name], x, rtol=1e-6, atol=1e-6)


def longs(graph):
    """The operations that make a vector of all layers."""
    return [n.target for n in graph.graph.nodes if n.op == "call_function" and pieces._shape(n)[1:] == (P,)]


def test_a_step_along_a_clipped_gradient_is_taken_piece_by_piece():
    """Pieces of 30, 5 and 20 numbers; no vector of 55 is left, and the model is three inputs."""

    def work(b):
        g = gradient(b)
        share = (10 / (g.norm(dim=-1, keepdim=True) + 1e-6)).clamp_max(1)
        b["w"].copy_(b["w"] - b["rate"] * (share * g + 0.1 * b["w"]))

    whole, apart, graph, cuts = both(work, given())
    agree(whole, apart)
    assert cuts == {0: [(0, 30), (30, 5), (35, 20)]} and not longs(graph)
    assert sum(n.target is aten.copy_.default for n in graph.graph.nodes) == 3


def test_layers_of_a_moved_model_come_out_of_its_pieces():
    """Where a step looks uphill before the second gradient: each layer out of the piece it is in."""

    def work(b):
        g = gradient(b)
        uphill = b["w"] + g / g.norm(dim=-1, keepdim=True)
        for i, layer in enumerate(uphill.split_with_sizes(SIZES, 1)):
            b[f"g{i}"].copy_(2 * layer)

    whole, apart, graph, cuts = both(work, given())
    agree(whole, apart)
    assert not cuts and not longs(graph), "nothing long is written"


def test_products_are_summed_over_the_pieces():
    def work(b):
        g = gradient(b)
        along = (g * b["d"]).sum(-1, keepdim=True)
        b["w"].copy_(torch.where(along > 0, b["w"] - along * g, b["w"]))

    whole, apart, graph, _ = both(work, given(d=torch.randn(4, P)))
    agree(whole, apart)
    assert not longs(graph)


def test_zeros_around_a_layer_are_not_looked_at_for_its_norm():
    """A layer of 3x10 of which only 1x10 are not zero: the squares of ten numbers are summed."""

    def work(b):
        g = torch.nn.functional.pad(b["g0"][:, :10].reshape(4, 1, 10), (0, 0, 1, 1)).reshape(4, 30)
        g = torch.cat([g, b["g1"], b["g2"], b["g3"]], 1)
        b["w"].copy_(b["w"] / g.norm(dim=-1, keepdim=True))

    b = given()
    graph = make_fx(work)({name: x.clone() for name, x in b.items()})
    in_pieces(graph)
    first = next(n for n in graph.graph.nodes if n.target is aten.sum.dim_IntList)
    assert first.args[0].args[0].args[0].args[1] == [4, -1], "reshaped, in 32 bits, squared"
    agree(*both(work, b)[:2])


def test_numbers_that_were_cut_short_are_squared_as_they_are():
    """bf16 of a float32 layer is not that layer; the other way round nothing is lost."""

    def work(b):
        short = [b[f"g{i}"].bfloat16().float() for i in range(len(SIZES))]
        b["w"].copy_(b["w"] * torch.cat(short, 1).norm(dim=-1, keepdim=True))

    agree(*both(work, given())[:2])


def test_what_somebody_looks_at_whole_stays_whole():
    """The model's sums from left to right need it in one piece; the gradient does not."""

    def work(b):
        b["sums"].copy_(b["w"].cumsum(1))
        b["w"].copy_(b["w"] - b["rate"] * gradient(b))

    whole, apart, graph, cuts = both(work, given(sums=torch.zeros(4, P)))
    agree(whole, apart)
    assert not cuts and aten.cumsum.default in longs(graph)


def test_an_input_can_be_cut_where_another_stays_whole():
    """v is written with sums along w, which are cut; w is looked at whole."""

    def work(b):
        b["v"].copy_(b["v"] + b["w"].cumsum(1) + gradient(b))
        b["w"].copy_(b["w"] + gradient(b))

    whole, apart, _, cuts = both(work, given(v=torch.zeros(4, P)))
    agree(whole, apart)
    assert [list(whole)[i] for i in cuts] == ["v"]


@pytest.mark.parametrize("large", [10, 1000])
def test_without_a_large_layer_nothing_changes(monkeypatch, large):
    monkeypatch.setattr(pieces, "LARGE", large)

    def work(b):
        if large == 1000:
            b["w"].copy_(b["w"] - gradient(b))
        b["rate"].add_(1)

    graph = make_fx(work)(given())
    code = graph.code
    assert in_pieces(graph) == {} and graph.code == code


def test_an_order_for_a_compiler_has_pieces_that_share_memory():
    """They do in the step as well; by themselves each would take as much memory as the whole."""

    def work(b):
        b["w"].copy_(b["w"] - gradient(b))

    b = given()
    listed = Traced(make_fx(work)({name: x.clone() for name, x in b.items()}), "fp32")
    assert len(listed.inputs(b)) == len(b) + 2
    graph, inputs, *_ = ordered(as_order(listed, b, "there"))
    assert graph.code == listed.graph.code and len(inputs) == len(listed.inputs(b))
    assert len({x.untyped_storage().data_ptr() for x in inputs[:3]}) == 1
    listed(b)
    torch.testing.assert_close(b["w"], given()["w"] - gradient(b))


METHODS = [name for name in CATALOGUE if name != "FedCR"]  # whose own loss is not captured


@pytest.mark.parametrize("name", [*METHODS, "fedsam + normmatched(highpass(0.01))", "fedsam + rescale(0.1)"])
def test_every_method_takes_the_same_step_in_pieces(monkeypatch, name):
    """Its model is several inputs, and its step ends where it ended before, within rounding."""
    seen = {}

    class Seen(captured.Launched):
        def __init__(self, work, buffers, *more):
            seen.update(work=work, buffers=buffers)
            super().__init__(work, buffers, "eager", "a step", "fp32")

    monkeypatch.setattr(lanes, "Launched", Seen)
    monkeypatch.setattr(pieces, "LARGE", 500)
    work = Workload("3x8x8", "cnn-small", 4, 2, 40, 20, 1, 20)
    engine = Stacked(work.problem, "eager", room=2)
    engine.beside_others = True  # as runs that share lanes
    run = EngineRun(engine, work, method(name))
    run.round()
    copies = lambda: {k: x if k.startswith(captured.FIXED) else x.clone() for k, x in seen["buffers"].items()}  # noqa: E731
    whole, apart = copies(), copies()
    for b in (whole, apart):
        b["step"].zero_()
    with arithmetic("fp32"):
        listed = Traced(captured.traced(seen["work"], copies()), "fp32")
        seen["work"](whole)
        listed(apart)
    assert list(whole).index("k.w") in listed.cuts
    assert not torch.equal(whole["k.w"], seen["buffers"]["k.w"]), "a step was taken"
    agree(whole, apart)
