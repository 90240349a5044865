"""Traced work without repeats is the same work."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fednb.engines.repeats import without_repeats

aten = torch.ops.aten


def both(function, *inputs):
    """What a function gives, traced, with and without repeats, and the operations it then has."""
    own = [[x.clone() for x in inputs] for _ in range(2)]
    wanted = function(*own[0])
    graph = without_repeats(make_fx(function)(*[x.clone() for x in inputs]))
    found = graph(*own[1])
    for a, b in zip([wanted, *own[0]], [found, *own[1]], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    return [node.target for node in graph.graph.nodes]


def numbers():
    return torch.arange(6.0).view(2, 3)


def test_what_is_made_twice_is_made_once():
    def function(x):
        return torch.relu(x.t().to(torch.float64)) + torch.exp(x.t().to(torch.float64))

    targets = both(function, numbers())
    assert targets.count(aten._to_copy.default) == targets.count(aten.t.default) == 1


def test_what_differs_in_a_number_is_made_twice():
    targets = both(lambda x: torch.mul(x, 2.0) + torch.mul(x, 3.0) + torch.mul(x, 2.0), numbers())
    assert targets.count(aten.mul.Tensor) == 2


def test_what_was_written_to_in_between_is_read_again():
    def function(x):
        before = x.t().exp()
        x.view(-1).add_(1)
        return before + x.t().exp()

    assert both(function, numbers()).count(aten.exp.default) == 2


def test_reads_before_and_after_a_write_are_two_however_many_there_are():
    def function(x):
        a, b = x.exp(), x.exp()
        x.copy_(2 * x)
        return a + b + x.exp() + x.exp()

    assert both(function, numbers()).count(aten.exp.default) == 2


def test_copies_that_are_written_to_are_not_shared():
    def function(x):
        a, b = x.clone(), x.clone()
        a.add_(1)
        return a * b

    assert both(function, numbers()).count(aten.clone.default) == 2


def test_draws_at_random_are_not_repeats():
    graph = without_repeats(make_fx(lambda x: torch.rand_like(x) + torch.rand_like(x))(numbers()))
    assert [node.target for node in graph.graph.nodes].count(aten.rand_like.default) == 2


def test_a_step_in_place_of_many_numbers():
    """Weights that are read, and written to at the end, twice."""

    def function(w, x):
        for _ in range(2):
            g = x.t() @ (x @ w.to(torch.float64).float() - 1) + 0.1 * w.to(torch.float64).float()
            w.copy_(w - 0.1 * g)
        return w.sum()

    targets = both(function, torch.ones(3, 1), numbers())
    assert targets.count(aten.t.default) == 1 and targets.count(aten._to_copy.default) == 4
