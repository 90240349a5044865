"""Where printed and chosen rules lead on clients that disagree; and laws of the specifications that stand alone."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from pytest import approx
from quadratics import QuadraticRounds, heterogeneous, one_round, quadratic
from test_ascents import CLOSE, COMERS, UNEQUAL
from test_identities import MASK
from test_identities import run as on_a_network
from test_server_parts import slopes

from fednb.algorithms.catalogue import (
    CATALOGUE,
    FEDAVG,
    FEDCM,
    FEDFSA,
    FEDGLOSS,
    FEDLESAM_D,
    FEDPER,
    FEDSAM_FSA,
    FEDSMOO,
    FEDSPEED_FSA,
    FEDWMSAM,
    SCAFFOLD,
)
from fednb.algorithms.parts import Dyn, FsaMomentum, SummedMoves
from fednb.core.record import Table
from fednb.core.rounds import Method, Part
from fednb.core.vectors import Layout, norm
from fednb.engines.loop import Loop
from fednb.engines.problem import problem_of
from fednb.engines.setting import Setting
from fednb.runs.evaluate import tuned
from fednb.study.paper import papers


def only(*parts: Part) -> Method:
    return Method("m", *parts)


def ends(made: Method, *after: int, ids=None, **numbers) -> list[float]:
    """How far from the minimum of Σ L_k a method is after so many rounds; clients make 2, 3, 1 and 2 steps of 0.3.

    ids: who comes, over and over again; everyone where it is not given.
    """
    clients, found = heterogeneous(), []
    f = QuadraticRounds(made, clients, **({"steps": (2, 3, 1, 2), "lr": 0.3} | numbers))
    for t in range(max(after)):
        f.round(ids[t % len(ids)] if ids else None)
        if t + 1 in after:
            found.append(norm(f.s.w - clients.optimum).item())
    return found


# Printed rules, and those that are run in their place

DYN, WMSAM = only(Dyn(beta=2.0)), FEDWMSAM.but(rho=0.0, alpha=0.3)
DIVERGE = [
    (DYN.but(reading="printed"), DYN),
    (DYN.plus(SummedMoves()), DYN),
    (DYN.but(reading="printed", dual="none").plus(SummedMoves()), DYN),
    (SCAFFOLD.but(reading="printed"), SCAFFOLD),
    (SCAFFOLD.plus(SummedMoves()), SCAFFOLD),
    (SCAFFOLD.but(reading="printed").plus(SummedMoves()), SCAFFOLD),
    (WMSAM.but(reading="printed"), WMSAM),
    (WMSAM.but(server_step="poster"), WMSAM),
]


@pytest.mark.parametrize("printed, run", DIVERGE, ids=repr)
def test_printed_rules_that_diverge(printed, run):
    """Everyone comes: the printed rule is 100 away after 40 rounds, ten times as far after 60; the other ends at w*.

    FedFFT's Alg. 2 and 3, line by line and all lines together, and FedWMSAM's poster.
    """
    far, farther = ends(printed, 40, 60)
    assert far > 1e2 and farther > 10 * far
    assert ends(run, 120)[0] < 1e-8


GLOSS = FEDGLOSS.but(rho=0.0, rho_l=0.0, beta=1.0)


@pytest.mark.parametrize(
    "made",
    [
        WMSAM.but(similarity="poster"), WMSAM.but(momentum_decay=False, steps="nominal"), GLOSS,
        GLOSS.but(reading="released"), GLOSS.but(prox_in_clip=False), SCAFFOLD.but(strength=0.1),
    ],
    ids=repr,
)  # fmt: skip
def test_rules_that_reach_the_minimum_all_the_same(made):
    """Whoever stands still at w* under the chosen rule does so under these: they differ in speed alone."""
    first, last = ends(made, 60, 100)
    assert last < 1e-3 and last < 0.1 * first
    assert ends(FEDAVG, 100)[0] > 1


IN_PAIRS = [[0, 1], [2, 3], [0, 2], [1, 3]]


def test_where_the_servers_duals_lead_when_some_stay_away():
    """The mean of all clients' duals reaches w*, and so does the printed sum over |S| as long as |S| is always 2.

    Where |S| is 2 or 3 the server's h is no longer in proportion to the clients'. Without the multiplier the end is
    biased; with the participants' own duals alone it is nowhere near.
    """
    assert ends(DYN, 100, ids=IN_PAIRS)[0] < 1e-4
    assert ends(DYN.but(dual="present"), 100, ids=IN_PAIRS)[0] < 1e-4
    uneven = [[0, 1], [2, 3], [0, 1, 2]]
    assert ends(DYN, 100, ids=uneven)[0] < 1e-4 < 0.1 < ends(DYN.but(dual="present"), 100, ids=uneven)[0]
    for who in (None, IN_PAIRS):
        before, last = ends(DYN.but(dual="none"), 60, 100, ids=who)
        assert last == approx(before, rel=0.1) and last > 0.3
    assert ends(DYN.but(dual="sent"), 100, ids=IN_PAIRS)[0] > 3


def test_wmsams_ascents_end_near_the_minimum_whichever_way_they_look():
    """A radius of 0.01 leaves a bias of less than that: as on the poster, as released, and with the rate."""
    for switches in ({}, {"reading": "released"}, {"ahead": "rate"}):
        assert 1e-5 < ends(WMSAM.but(rho=0.01, **switches), 100)[0] < 0.01


def test_fsas_printed_momentum_holds_the_clients_back():
    """Gradients −1 everywhere, α = ½: v = ½ g + ½ m. With m the v of the last round, v → g.

    With the printed m = −v it is v → α g/(2 − α) = g/3: −½, −¼, −3/8, … (α = 0.1: g/19). It does not diverge.
    """
    for reading, moves in (("paper", [0.5, 0.75, 0.875, 0.9375]), ("printed", [0.5, 0.25, 0.375, 0.3125])):
        f = QuadraticRounds(only(FsaMomentum(alpha=0.5, reading=reading)), slopes(1.0))
        w = [0.0] + [(f.round(), f.s.w.item())[1] for _ in range(4)]
        assert [10 * (b - a) for a, b in pairwise(w)] == approx(moves)


def test_where_fsas_momenta_lead():
    """One step a client: both come nearer to w*, the printed sign much more slowly.

    More steps: both end elsewhere, the printed one twenty times as far away.
    """
    paper, printed = (only(FsaMomentum(alpha=0.1, reading=r)) for r in ("paper", "printed"))
    fast, slow = (ends(m, 60, 140, steps=1) for m in (paper, printed))
    assert fast[1] < 0.1 * fast[0] and fast[1] < 0.01
    assert 0.1 < slow[1] < 0.3 * slow[0]
    near, far = (ends(m, 100)[0] for m in (paper, printed))
    assert 0.1 < near < 0.2 and far > 20 * near


# Laws


def test_wmsam_without_radius_and_variates_is_fedcm_with_its_own_alpha():
    """Each round is a round of FedCM with the α that the round began with; α moves."""
    wmsam = QuadraticRounds(FEDWMSAM.but(rho=0.0, personal=False, lam=0.5, alpha=0.3), heterogeneous(), **UNEQUAL)
    cm = QuadraticRounds(FEDCM, heterogeneous(), **UNEQUAL)
    seen = []
    for ids in COMERS:
        seen.append(wmsam.s.alpha.item())
        cm.method = FEDCM.but(alpha=seen[-1])
        wmsam.round(ids), cm.round(ids)
        assert torch.allclose(wmsam.s.w, cm.s.w, **CLOSE)
    assert len(set(seen)) == len(COMERS)


@pytest.mark.parametrize("m", [FEDSMOO, FEDLESAM_D, FEDSPEED_FSA], ids=str)
def test_the_whole_feddyn_family_keeps_its_laws(m):
    """Σ h_k is the sum of all moves so far, and w⁺ = mean over the present of w_k + mean over all of h_k."""
    r = on_a_network(m, by_size=False)
    moves = torch.where(MASK[..., None], r.local - r.w[:-1, None], 0.0).sum(1).cumsum(0)
    assert torch.allclose(r.clients["h"].sum(1), moves, **CLOSE)
    for t, present in enumerate(MASK):
        assert torch.allclose(r.w[t + 1], r.local[t, present].mean(0) + r.clients["h"][t].mean(0), **CLOSE)


NETS = [e.method for e in CATALOGUE.values() if not any(p.network for p in e.method.parts)]


@pytest.mark.parametrize("m", NETS, ids=str)
def test_the_order_of_clients_does_not_matter(m):
    """Three rounds with the same clients listed the other way round: the same model up to the order of sums."""
    layout = Layout(("a.weight", "a.bias", "b.weight"), ((3, 1), (1,), (1, 2)))
    left, right = (QuadraticRounds(m, heterogeneous(P=6), layout=layout, **UNEQUAL) for _ in range(2))
    for ids in COMERS[:3]:
        left.round(ids), right.round(ids[::-1])
    assert torch.allclose(left.s.w, right.s.w, atol=1e-10, rtol=0)


def test_fedfsa_starts_with_a_tenth_of_the_step():
    """No momentum yet: in one step FedFSA moves α times as far as SAM with its radii, the artefact of a warm-up."""
    (k, _), (plain, _) = one_round(FEDFSA, heterogeneous()), one_round(FEDSAM_FSA, heterogeneous())
    assert torch.allclose(k.delta, 0.1 * plain.delta, atol=1e-15)


def test_the_body_of_fedper_is_fedavgs_where_the_head_has_no_say():
    """Losses that are sums of a part for the body and one for the head: bodies move as if there were no head."""
    clients = quadratic([1.0, 2.0, 5.0], [3.0, -1.0, 7.0], [0.0, 4.0, -9.0], curvature=[1.0, 2.0, 0.5])
    layout = Layout(("body.weight", "head.weight"), ((2,), (1,)))
    per, avg = (QuadraticRounds(m, clients, layout=layout, steps=(3, 1, 2), n=(1, 2, 4)) for m in (FEDPER, FEDAVG))
    for ids in ([0, 2], [1, 2], [0, 1, 2]):
        per.round(ids), avg.round(ids)
        assert torch.allclose(per.s.w[:2], avg.s.w[:2], **CLOSE)
    assert per.s.w[2] == 0.0 and avg.s.w[2].abs() > 0.1


def test_tuning_that_does_not_move_judges_the_servers_model():
    """η = 0 in the last round: everyone's accuracy is that of the server's model on its own split."""
    setting = Setting(clients=4, epochs=1, batch=50, samples=300, partition="iid", evaluation="personal")
    for lr, same in ((0.0, True), (1.0, False)):
        problem = problem_of(setting, seed=0)
        problem = replace(problem, training=replace(problem.training, lr=lr))
        w, b = problem.objective.start(torch.float32, torch.device("cpu"))
        found, _ = tuned(Loop(problem), FEDAVG, problem.server(FEDAVG, w, b), Table({}), size=2)
        mean = float(np.mean([problem.score_own(w, b, i) for i in range(4)]))
        assert (found == approx(mean, abs=1e-9)) == same


# The log


def runs(id: str) -> dict[str, str]:
    """What is run, entry by entry of a paper's reading log."""
    entries = re.split(r"^## ", papers(id).readings, flags=re.MULTILINE)[1:]
    found = {e.splitlines()[0]: re.search(r"^we run\s+(.*?)^effect", e, re.DOTALL | re.MULTILINE) for e in entries}
    return {title: " ".join(match[1].split()) for title, match in found.items()}


@pytest.mark.parametrize("id", papers().index)
def test_every_reading_has_a_switch_or_a_reason(id):
    """Backticks hold a switch (tests/test_papers.py builds them); "no switch" is followed by the reason why."""
    for title, text in runs(id).items():
        assert "`" in text or "no switch" in text, title
        for rest in text.split("no switch")[1:]:
            assert re.match(r"(?:: | for | that )\S.{12}|, since ", rest), f"{title}: no switch{rest}"
