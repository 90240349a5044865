"""Both values of every switch in what clients do and remember, worked out by hand on quadratics."""

import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round, quadratic
from test_ascents import CLOSE, COMERS, LAYERS, TWO, UNEQUAL, P, along, chosen, federation, noted
from test_catalogue import run, same
from test_methods import lines

import fednb as fn
from fednb.algorithms.catalogue import (
    FEDDYN,
    FEDFFT_D,
    FEDFSA,
    FEDGLOSS,
    FEDLESAM_S,
    FEDPROX,
    FEDSMOO,
    FEDSPEED,
    FEDWMSAM,
    MOFEDSAM,
    method,
)
from fednb.algorithms.parts import (
    ClientMomentum,
    Dyn,
    FilterGradient,
    FlexibleRadius,
    Gloss,
    Lesam,
    LocalMomentum,
    QuasiGradient,
    Scaffold,
    SmooDual,
    SummedMoves,
    WmsamAscent,
    WmsamMomentum,
    WmsamWeight,
)
from fednb.core.cost import cost
from fednb.core.rounds import BadParameter, Method, Part
from fednb.core.vectors import Layout
from fednb.filters import HighPass

PAIR = Layout(("a.weight", "b.weight"), ((1, 1), (1, 1)))


def only(*parts: Part) -> Method:
    return Method("m", *parts)


# Dyn: what the server adds


@pytest.mark.parametrize(
    "dual, first, second", [("all", 0.45, 0.6825), ("present", 0.6, 0.98), ("none", 0.3, 0.37), ("sent", 0.6, 0.68)]
)
def test_what_the_server_adds_to_the_mean_move(dual, first, second):
    """Minima 1 and 3, w = 0, η = 0.1, one step. Client 1 comes, then client 0.

    Round 0: Δ = h_1 = 0.3 and w = 0.3 + 0.3/2 (all), + 0.3/1 (present), + 0 (none), + h_1 (sent).
    Round 1: Δ = h_0 = 0.1 (1 − w), which is 0.055, 0.04, 0.07, 0.04; w grows by it and by 0.15 + 0.055/2, by
    0.3 + 0.04, by nothing, by h_0.
    """
    f = QuadraticRounds(only(Dyn(beta=2.0, dual=dual)), quadratic(1.0, 3.0))
    f.round([1])
    assert f.s.w.item() == approx(first)
    f.round([0])
    assert f.s.w.item() == approx(second)
    assert f.kept("h").view(-1).tolist() == approx([0.1 * (1 - first), 0.3])


def test_the_servers_duals_agree_where_everyone_comes():
    """|S| = N: the sum over |S| is the mean, and so is the mean of what clients add by themselves."""
    runs = []
    for dual in ("all", "present", "sent", "none"):
        f = QuadraticRounds(only(Dyn(beta=2.0, dual=dual)), heterogeneous(), w=1.0, steps=(3, 5, 2, 4))
        runs.append(torch.stack([(f.round(), f.s.w)[1] for _ in range(4)]))
    assert torch.allclose(runs[1], runs[0], **CLOSE) and torch.allclose(runs[2], runs[0], **CLOSE)
    assert (runs[3] - runs[0]).abs().max() > 0.1


def test_what_is_sent_costs_no_more():
    """w_k + h_k goes up in place of w_k."""
    for dual in ("all", "present", "none", "sent"):
        assert cost(FEDDYN.but(dual=dual)).traffic == 1.0


# Sums in place of means (FedFFT, Alg. 2 and 3)


def test_moves_are_added_up():
    """Minima 1, 3 and 5: moves 0.1, 0.3 and 0.5 add up to 0.9, whatever the sizes; FedDyn's step is 0.3 + 0.3."""
    clients = quadratic(1.0, 3.0, 5.0)
    assert one_round(only(SummedMoves()), clients, n=(1, 2, 9))[1].w.item() == approx(0.9)
    assert one_round(only(SummedMoves()), clients, server_lr=0.5)[1].w.item() == approx(0.45)
    assert one_round(only(Dyn(beta=2.0)), clients)[1].w.item() == approx(0.6)
    assert one_round(only(Dyn(beta=2.0), SummedMoves()), clients)[1].w.item() == approx(0.9)


# Scaffold, ClientMomentum, LocalMomentum


@pytest.mark.parametrize("strength, reading, v", [
    (1.0, "corrected", [-1.8, -1.8]), (0.1, "corrected", [-0.9, -2.7]), (0.0, "corrected", [-0.8, -2.8]),
    (1.0, "printed", [0.2, -3.8]), (0.1, "printed", [-0.7, -2.9]),
])  # fmt: skip
def test_variates_have_a_strength(strength, reading, v):
    """Minima 1 and 3: after round 0 c_k = −1, −3, c = −2, w = 0.2; then v = g ± λ (c − c_k), g = −0.8, −2.8."""
    f = QuadraticRounds(only(Scaffold(reading=reading, strength=strength)), quadratic(1.0, 3.0))
    f.round()
    assert f.s.w.item() == approx(0.2)
    assert f.round().w.view(-1).tolist() == approx([0.2 - 0.1 * x for x in v])


@pytest.mark.parametrize("lost, ws", [(False, [0.01, 0.0289]), (True, [0.1, 0.28])])
def test_momentum_that_has_lost_its_alpha(lost, ws):
    """a = 1, α = 0.1: v = g = −1 in place of −0.1, m = −1; then v = −0.9 + 0.9 · (−1) = −1.8 and w = 0.1 + 0.18."""
    f = QuadraticRounds(only(ClientMomentum(alpha=0.1, lost_alpha=lost)), quadratic(1.0))
    assert [(f.round(), f.s.w.item())[1] for _ in range(2)] == approx(ws)


def test_local_momentum_by_hand():
    """a = 1, w = 0, μ = ½: u = −1, w = 0.1; u = −½ − 0.9, w = 0.24. The next round begins at rest: 0.24 + 0.076."""
    f = QuadraticRounds(only(LocalMomentum(0.5)), quadratic(1.0), steps=2)
    assert f.round().w.item() == approx(0.24)
    u = 0.5 * -0.76 - (0.76 - 0.076)
    assert f.round().w.item() == approx(0.316 - 0.1 * u)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_local_momentum_is_pytorchs(momentum):
    """torch.optim.SGD with weight decay 0.1 makes the same five steps."""
    clients = heterogeneous(clients=1)
    k, _ = one_round(only(LocalMomentum(momentum)), clients, w=1.0, steps=5, weight_decay=0.1)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([x], lr=0.1, momentum=momentum, weight_decay=0.1)
    for _ in range(5):
        x.grad = clients.gradient(x.detach()[None], [0])[0]
        sgd.step()
    assert torch.allclose(k.w[0], x.detach(), **CLOSE)


# QuasiGradient (FedSpeed as printed)


@pytest.mark.parametrize("mix, v", [(0.0, [3.0, 4.0]), (0.25, [3.075, 4.4]), (1.0, [3.3, 5.6])])
def test_quasi_gradient_by_hand(mix, v):
    """H = diag(1, 4), a = 0, w = (3, 1): g = (3, 4), δ = 0.1 g, not divided by ‖g‖ = 5; up there (3.3, 5.6)."""
    k, _ = one_round(only(QuasiGradient(0.1, mix)), quadratic([0.0, 0.0], curvature=[1.0, 4.0]), w=[3.0, 1.0])
    assert k.w[0].tolist() == approx([3 - 0.1 * v[0], 1 - 0.1 * v[1]], abs=1e-12)
    assert k.evaluations.item() == 2


def test_fedspeed_as_printed_is_fedspeed_where_gradients_have_length_one():
    """Everyone comes, mix = 1, ‖g‖ = 1: then ρ g is ρ g/‖g‖, and the mean of what is sent is FedDyn's model."""
    printed = only(QuasiGradient(0.1), Dyn(dual="sent"))
    clients = quadratic([0.6, 0.8], [-1.0, 0.0], [0.0, -1.0])
    (k, s), (other, t) = (one_round(m, clients) for m in (printed, FEDSPEED))
    assert torch.allclose(k.w, other.w, atol=1e-8) and torch.allclose(s.w, t.w, atol=1e-8)
    assert printed.parts[1] == method("feddyn + quasigradient", dual="sent").parts[0]


# Lesam, SmooDual, Gloss


@pytest.mark.parametrize("reading", ["paper", "released"])
@pytest.mark.parametrize("norm_of, length", [("model", 5), ("layers", 7)])
def test_the_length_that_lesam_divides_by(norm_of, length, reading):
    """One step takes w from 0 to (−3, −4): w_old − w = (3, 4), of norm 5, in layers of norm 3 and 4."""
    f, diary = federation(
        Lesam(rho=0.7, norm_of=norm_of, reading=reading), clients=quadratic([-30.0, -40.0]), layout=PAIR
    )
    f.round()
    _, (delta,) = noted(f, diary)
    assert delta[0].tolist() == approx([0.7 * 3 / length, 0.7 * 4 / length], abs=1e-6)


@pytest.mark.parametrize("sign, length", [("plus", 0.1), ("minus", -0.1)])
@pytest.mark.parametrize("average", ["participants", "all"])
def test_what_smoos_common_perturbation_is_made_of(average, sign, length):
    """s = ±ρ unit(mean μ_k) over those who came, or over all N, who may have stayed away for long."""
    f, _ = federation(SmooDual(rho=0.1, s_average=average, s_sign=sign), **UNEQUAL)
    for ids in COMERS:
        f.round(ids)
        mu = f.kept("mu") if average == "all" else f.kept("mu")[ids]
        assert torch.allclose(f.s.s, along(mu.mean(0), length), **CLOSE)
    assert cost(only(SmooDual(s_average=average))).traffic == 2.0


def test_gloss_can_split_its_pull():
    """At its minimum w = a = 30, β = 2, clip 10: −w̃/β = −15 is cut to −10 and +15 is not: 30 − 0.1 · 5."""
    for whole, end in ((True, 30.0), (False, 29.5)):
        made = only(Gloss(rho=0.0, rho_l=0.0, beta=2.0, prox_in_clip=whole))
        assert one_round(made, quadratic(30.0), w=30.0, clip_norm=10.0)[0].w.item() == approx(end, abs=1e-6)
    idle = [method("fedgloss", prox_in_clip=whole) for whole in (True, False)]
    left, right = (QuadraticRounds(m, heterogeneous(), **UNEQUAL) for m in idle)
    for ids in COMERS:
        left.round(ids), right.round(ids)
        assert torch.allclose(left.s.w, right.s.w, **CLOSE)


@pytest.mark.parametrize("n", [(1, 3), (0.25, 0.75)], ids=["samples", "shares"])
@pytest.mark.parametrize("sizes_of, one, both", [("participants", 0.45, 0.45), ("all", 0.375, 0.45)])
def test_whose_sizes_gloss_weighs_with(sizes_of, one, both, n):
    """Minima 1 and 3, of 1 and 3 samples, β = 10, no radii. Client 1 alone: Δ = 0.3, −β σ = 0.15, its share is ¾.

    Both: ¼ · 0.1 + ¾ · 0.3 = 0.25 and −β σ = 0.2, whichever.
    """
    for ids, end in (([1], one), ([0, 1], both)):
        f = QuadraticRounds(only(Gloss(rho=0.0, rho_l=0.0, sizes_of=sizes_of)), quadratic(1.0, 3.0), n=n)
        f.round(ids)
        assert f.s.w.item() == approx(end)


# FedWMSAM


def test_the_steps_that_wmsam_divides_by():
    """Six steps made, 5 of FL-Simulator's: c_k, c and m of the first round are 6/5 of those over each one's own."""
    own, nominal = (
        one_round(only(WmsamMomentum(steps=steps)), quadratic(1.0, 3.0), steps=6, nominal_steps=5.0)
        for steps in ("own", "nominal")
    )
    assert torch.allclose(nominal[0].c_k, 1.2 * own[0].c_k, **CLOSE)
    for name in ("c", "m"):
        assert getattr(nominal[1], name).item() == approx(1.2 * getattr(own[1], name).item())
    assert own[0].c_k[0].item() < -0.01


@pytest.mark.parametrize("decays, m", [(True, -0.3), (False, -0.6)])
def test_whether_wmsams_momentum_decays(decays, m):
    """Minima 1 and 3, α = 0.3, γ = ½: the mean direction is 0.3 · (−2) = −0.6."""
    _, s = one_round(only(WmsamMomentum(alpha=0.3, momentum_decay=decays)), quadratic(1.0, 3.0), lr_decay=0.5)
    assert s.m.item() == approx(m)


def test_the_posters_server_walks_uphill():
    """Minima 1 and 3, α = 0.3, two steps: v = 0.3 g, so Δ = 0.3 (1 − 0.97²)/0.3 a = 0.0591 a. m = 0.1182/η, not over K.

    w = −m, ten times as far as the clients went, and away from them.
    """
    _, s = one_round(only(WmsamMomentum(alpha=0.3, server_step="poster")), quadratic(1.0, 3.0), steps=2)
    assert s.m.item() == approx(2 * 0.0591 / 0.1)
    assert s.w.item() == approx(-1.182)


@pytest.mark.parametrize(
    "minima, released, poster",
    [
        ((100.0,) * 3, 0.1, 0.9), ((-100.0,) * 3, 0.9, 0.1), ((100.0, 100.0, -100.0), 2 / 3, 1 / 3),
        ((100.0, -100.0, -100.0), 0.9, 0.1),
    ],
)  # fmt: skip
def test_the_poster_trusts_the_gradient_where_clients_agree(minima, released, poster):
    """m = −1 has carried w upwards; cos(−Δ_k, m) is 1 for who goes on, −1 for who turns back; α goes half the way."""
    for similarity, target in (("released", released), ("poster", poster)):
        f = QuadraticRounds(
            only(WmsamWeight(lam=0.5, similarity=similarity), WmsamMomentum(alpha=0.5)), quadratic(*minima)
        )
        f.s.m = -1.0
        f.round()
        assert f.s.alpha.item() == approx(0.25 + 0.5 * target, abs=1e-6)


@pytest.mark.parametrize("reading, sign", [("poster", 1), ("released", -1)])
@pytest.mark.parametrize("ahead, rate", [("steps", 1.0), ("rate", 0.1)])
def test_how_far_ahead_wmsam_looks(ahead, rate, reading, sign):
    """δ_b = ± ρ unit(w + b m_k − w_k), or with b η m_k, η = 0.1."""
    f, diary = federation(WmsamAscent(rho=0.1, ahead=ahead, reading=reading), WmsamMomentum(alpha=0.3), w=1.0, steps=4)
    f.round()
    start, at = f.s.w, len(diary.w)
    k, deltas = noted(f, diary)
    for b in range(4):
        assert torch.allclose(deltas[b], along(start + b * rate * k.m_k - diary.w[at + b], sign * 0.1), **CLOSE)


def test_who_keeps_the_variates_is_a_matter_of_traffic():
    """At the server: w and m_k go down, 1.5 in all. At the clients: w, m and c, which is 2. The run is the same."""
    there, here = FEDWMSAM, FEDWMSAM.but(variates_at="client")
    assert (cost(there).down, cost(there).up, cost(there).traffic) == (2, 1, 1.5)
    assert (cost(here).down, cost(here).up, cost(here).traffic) == (3, 1, 2.0)
    same(run(there), run(here), atol=0.0)


# FedFSA, FilterGradient


@pytest.mark.parametrize("layer_score, wanted", [("mean", 0), ("sum", 1)])
def test_how_a_layers_squares_become_a_score(layer_score, wanted):
    """Layer a moves by (2, 0), b by 1.2 four times: means of squares 2 and 1.44, sums 4 and 5.76."""
    moves = (2.0, 0.0, 1.2, 1.2, 1.2, 1.2)
    part = FlexibleRadius(0.0, 0.0, top=1, layer_score=layer_score)
    k, _ = one_round(only(part), quadratic([10 * x for x in moves]), layout=TWO)
    assert k.sensitivity[0].tolist() == approx([2, 1.44] if layer_score == "mean" else [4, 5.76])
    assert chosen(k) == [[wanted]]


@pytest.mark.parametrize("shortcuts, wanted", [(False, [0, 7]), (True, [0, 4, 5, 7])])
def test_shortcuts_are_left_out_or_not(shortcuts, wanted):
    """Of eight layers two are weights and two are weights of shortcuts; biases and norms never count."""
    k, _ = one_round(only(FlexibleRadius(top=99, shortcuts=shortcuts)), heterogeneous(P=P), layout=LAYERS, w=1.0)
    assert chosen(k) == [wanted] * 4


@pytest.mark.parametrize("with_decay, mean", [(False, 0.95), (True, 1.0)])
def test_weight_decay_is_filtered_or_not(with_decay, mean):
    """w = 1, g = (1, 2, 3, 6), wd = ½: the filter takes the mean of g, 3, or of g + ½, 3.5; (−2, −1, 0, 3) is left.

    Only unfiltered weight decay moves the mean of w.
    """
    made = only(FilterGradient(HighPass(0.5), with_decay=with_decay))
    k, _ = one_round(made, quadratic([0.0, -1.0, -2.0, -5.0]), w=1.0, weight_decay=0.5)
    assert k.w.mean().item() == approx(mean)
    assert (k.w[0] - mean).tolist() == approx([0.2, 0.1, 0.0, -0.3])


# All switches

WMSAM = {"momentum_decay": False, "similarity": "poster", "ahead": "rate", "server_step": "poster"}
SWITCHED = [
    (FEDDYN, FEDDYN.but(dual="sent")),
    (FEDDYN, FEDDYN.but(dual="present")),
    (FEDFFT_D, FEDFFT_D.but(dual="none")),
    (FEDFFT_D, FEDFFT_D.plus(SummedMoves())),
    (FEDLESAM_S, FEDLESAM_S.but(strength=0.1)),
    (FEDLESAM_S, FEDLESAM_S.but(norm_of="layers")),
    (MOFEDSAM, MOFEDSAM.but(lost_alpha=True)),
    (FEDPROX, FEDPROX.plus(LocalMomentum())),
    (FEDSPEED, method("feddyn + quasigradient(mix=0.5)")),
    (FEDSMOO, FEDSMOO.but(s_average="all")),
    (FEDSMOO, FEDSMOO.but(s_sign="minus")),
    (FEDGLOSS, FEDGLOSS.but(prox_in_clip=False)),
    (FEDGLOSS, FEDGLOSS.but(sizes_of="all")),
    *((FEDWMSAM.but(lam=0.5), FEDWMSAM.but(lam=0.5, **{name: x})) for name, x in WMSAM.items()),
    (FEDFSA.but(top=1), FEDFSA.but(top=1, layer_score="sum")),
    (FEDFSA.but(top=1, layer_score="sum"), FEDFSA.but(top=1, layer_score="mean")),
    (method("specgradfilter-scaffold"), method("specgradfilter-scaffold", with_decay=True)),
]


@pytest.mark.parametrize("plain, switched", SWITCHED, ids=lambda m: repr(m))
def test_engines_agree_on_switches(plain, switched):
    """One client at a time and all at once give the same weights and state, with some away; the default another run."""
    one = run(switched)
    same(one, run(switched, "stacked"), atol=1e-12)
    assert (one.w - run(plain).w).abs().max() > 1e-7


WRONG = [
    (Dyn, "dual"), (Lesam, "norm_of"), (SmooDual, "s_average"), (SmooDual, "s_sign"), (Gloss, "sizes_of"),
    (WmsamMomentum, "steps"), (WmsamMomentum, "server_step"), (WmsamMomentum, "variates_at"),
    (WmsamAscent, "ahead"), (WmsamWeight, "similarity"), (FlexibleRadius, "layer_score"),
]  # fmt: skip


@pytest.mark.parametrize("kind, name", WRONG)
def test_values_that_a_switch_does_not_have_are_refused(kind, name):
    with pytest.raises(BadParameter, match=rf"{kind.__name__}\.{name} = 'whatever': must be \w+.* or \w+"):
        kind(**{name: "whatever"})


@pytest.mark.parametrize("make", [lambda: Scaffold(strength=-1.0), lambda: LocalMomentum(1.0),
                                  lambda: QuasiGradient(mix=1.5), lambda: QuasiGradient(rho=-1.0)])  # fmt: skip
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(BadParameter, match=r"\w+\.\w+ = .*: must be"):
        make()


CARDS = [
    (Dyn(dual="sent"), "finish", "h_k ← h_k + Δ_k;  Δ_k ← Δ_k + h_k"),
    (Dyn(dual="present"), "server", "h ← h + Σ Δ_k / |S|;  step ← Σ p_k Δ_k + h"),
    (Dyn(dual="none"), "server", "step ← Σ p_k Δ_k"),
    (Scaffold(strength=0.1), "correct", "v ← v − λ c_k + λ c"),
    (Scaffold(strength=0.1, reading="printed"), "correct", "v ← v + λ c_k − λ c"),
    (ClientMomentum(lost_alpha=True), "correct", "v ← v + (1 − α) m"),
    (SmooDual(s_average="all", s_sign="minus"), "server", "s ← −ρ unit(Σ μ_k / N), over all clients"),
    (SmooDual(s_sign="minus"), "server", "s ← −ρ unit(mean μ_k)"),
    (Gloss(), "correct", "v ← v − σ_k + (w_k − w̃)/β"),
    (Gloss(prox_in_clip=False), "correct", "v ← v − σ_k − w̃/β"),
    (WmsamWeight(similarity="poster"), "server", "α ← (1 − λ) α + λ clip(mean cos(−Δ_k, m), 0.1, 0.9)"),
    (WmsamMomentum(), "server", "c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← −γ Σ p_k Δ_k / (K η)"),
    (WmsamMomentum(momentum_decay=False), "server", "c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← −Σ p_k Δ_k / (K η)"),
    (WmsamMomentum(reading="printed"), "server", "c ← c + Σ Δ_k/(K η |S|);  m ← −γ Σ p_k Δ_k / (K η)"),
    (WmsamMomentum(server_step="poster"), "server",
     "c ← c + Σ (−c − Δ_k/(K η)) / N;  m ← Σ p_k Δ_k / η;  step ← −η_g m"),
    (WmsamMomentum(personal=False), "start", "m_k ← m"),
    (WmsamMomentum(personal=False, reading="printed"), "server", "m ← −γ Σ p_k Δ_k / (K η)"),
    (Gloss(reading="released", sizes_of="all"), "server", "σ ← σ − Σ Δ_k / (β N |S|);  p_k ← p_k Σ n_k / n;  "
     "step ← η_g Σ p_k Δ_k − β σ;  w̃ ← w + step − ρ_t unit(Σ p_k Δ_k)"),
    (Lesam(reading="released", norm_of="layers"), "start",
     "d_k ← w_{t−1} − w;  δ_k ← ρ d_k / Σ_l ‖(d_k)_l‖;  w_old ← w"),
    (FilterGradient(with_decay=True), "gradient",
     "g ← Φ(g + wd w_k) − wd w_k, layer by layer   (wd is added behind the clip)"),
]  # fmt: skip


@pytest.mark.parametrize("p, stage, shown", CARDS, ids=lambda x: repr(x) if isinstance(x, Part) else "")
def test_a_card_shows_the_switch(p, stage, shown):
    own = [line for line in lines(str(fn.card(only(p))), stage) if line.endswith(type(p).__name__)]
    assert [line.removesuffix(type(p).__name__).strip() for line in own] == [shown]
