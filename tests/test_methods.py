"""The catalogue: names, parameters, what may be combined, what it costs, and how it prints."""

import pandas as pd
import pytest
from quadratics import one_round, quadratic

import fednb as fn
from fednb import filters, parts
from fednb.algorithms.catalogue import CATALOGUE, FEDAVG, FEDDYN, FEDFFT, FEDFFT_D, FEDSAM, SCAFFOLD, UnknownMethod
from fednb.algorithms.parts import (
    ClientMomentum,
    Dyn,
    FilterGradient,
    FilterPerturbation,
    Prox,
    Sam,
    Scaffold,
    ServerMomentum,
)
from fednb.core.cost import cost
from fednb.core.record import P
from fednb.core.rounds import STAGES, BadMethod, BadParameter, Method, Part, part
from fednb.filters import GaussianDetrend, HighPass, LocalAverage, Permuted, RandomBand

METHODS = [entry.method for entry in CATALOGUE.values()]
each = pytest.mark.parametrize("m", METHODS, ids=str)

# Names


@pytest.mark.parametrize(
    "name", ["FedFFT-D", "fedfft-d", "FEDFFT_D", "fedfft d", "FedFFTD", " fedfft.d ", "FedFFT-FedDyn"]
)
def test_names_without_case_and_punctuation(name):
    assert fn.method(name) == FEDFFT_D


@pytest.mark.parametrize(
    "alias, name",
    [
        ("FedSAM-S", "FedGAMMA"),
        ("FedGamma", "FedGAMMA"),
        ("FedSAM-D", "FedSpeed"),
        ("FedFFT-A", "FedFFT"),
        ("FedFFT-SCAFFOLD", "FedFFT-S"),
        ("SpecGradFilter-FFT", "SpecGradFilter"),
        ("SpecGradFilter-FedAvg", "SpecGradFilter"),
        ("SCAFFOLD + SpecGradFilter", "SpecGradFilter-SCAFFOLD"),
        ("specgradfilter lap-d", "SpecGradFilter (LAP-D)"),
    ],
)
def test_other_names_in_the_papers(alias, name):
    assert fn.method(alias) == CATALOGUE[name].method


@each
def test_every_method_is_found_under_its_own_name(m):
    assert fn.method(m.name) == m
    assert fn.method(m) is m
    assert str(m) == m.name


@pytest.mark.parametrize("name, closest", [("fedfft-x", "FedFFT"), ("scafold", "SCAFFOLD"), ("fed prx", "FedProx")])
def test_an_unknown_name_is_answered_with_the_closest(name, closest):
    with pytest.raises(UnknownMethod) as error:
        fn.method(name)
    text = str(error.value)
    assert text.startswith(f"no method {name!r}; closest: ")
    assert closest in text.split("closest: ")[1].split(".")[0].split(", ")
    assert f"lists all {len(CATALOGUE)}" in text


def test_nothing_is_close_to_nonsense():
    with pytest.raises(UnknownMethod, match="closest: none"):
        fn.method("12345")


# Parameters


def test_parameters_reach_into_filters():
    m = fn.method("fedfft-d", rho=0.05, ratio=0.02, beta=5.0)
    assert m == Method("FedFFT-D", Sam(rho=0.05), FilterPerturbation(HighPass(ratio=0.02)), Dyn(beta=5.0))
    assert FEDFFT_D.parameters()["ratio"] == 0.01, "the catalogue's own stays as it was"


def test_parameters_reach_filters_inside_filters():
    m = fn.spec_grad_filter("fedavg", Permuted(RandomBand(0.1), "random")).but(ratio=0.3, order="0123")
    assert m.parts == (FilterGradient(Permuted(RandomBand(0.3), "0123")),)


def test_where_is_a_parameter_too():
    m = fn.method("SpecGradFilter", where="!fc.*", ratio=0.1)
    assert m.parts == (FilterGradient(HighPass(0.1, where="!fc.*")),)


def test_a_method_takes_parameters_as_its_name_does():
    assert fn.method(FEDSAM, rho=0.3) == fn.method("fedsam", rho=0.3) == Method("FedSAM", Sam(0.3))


def test_a_whole_number_becomes_the_real_number_it_stands_for():
    """rho=1 and rho=1.0 are one method, with one key in the store."""
    assert repr(fn.method("fedsam", rho=1)) == repr(fn.method("fedsam", rho=1.0))


def test_a_name_that_several_parts_have_is_refused_and_addressed():
    both = fn.method("feddyn + servermomentum(0.9)")
    with pytest.raises(BadParameter, match=r"has 'beta' in several places; name one of dyn.beta, servermomentum.beta$"):
        both.but(beta=0.5)
    with pytest.raises(BadParameter, match="in several places"):
        fn.method("feddyn + servermomentum(0.9)", beta=0.5)
    for address in ("dyn.beta", "Dyn.beta"):
        assert fn.method(both, **{address: 0.5}).parts == (Dyn(beta=0.5), ServerMomentum(beta=0.9))
    assert both.but(**{"servermomentum.beta": 0.5}).parts == (Dyn(beta=10.0), ServerMomentum(beta=0.5))
    assert both.but(**{"dyn.beta": 1, "servermomentum.beta": 0.5}).parts == (Dyn(1.0), ServerMomentum(0.5))
    assert both.parameters()["dyn.beta"] == 10.0 and both.parameters()["servermomentum.beta"] == 0.9
    assert "beta" not in both.parameters()


def test_filters_are_addressed_by_their_part_or_their_own_name():
    two = fn.method("fedsam + highpass(0.1) + gradient(highpass(0.2))")
    with pytest.raises(BadParameter, match=r"name one of filterperturbation.ratio, filtergradient.ratio$"):
        two.but(ratio=0.3)
    assert two.but(**{"filtergradient.ratio": 0.3}).parts[2] == FilterGradient(HighPass(0.3))
    within = fn.method("fedavg + gradient(normmatched(highpass(0.2)))")
    with pytest.raises(BadParameter, match=r"name one of normmatched.where, highpass.where$"):
        within.but(where="fc.*")
    assert within.but(**{"normmatched.where": "fc.*"}).parts[0].filter.where == "fc.*"
    twice = fn.method("feddyn + dyn(3)")
    assert [p.beta for p in twice.but(**{"dyn2.beta": 7}).parts] == [10.0, 7.0]


def test_addresses_are_checked_as_names_are():
    both = fn.method("feddyn + servermomentum(0.9)")
    for wrong in ("sam.beta", "dyn.rho", "beta.dyn", ".beta.", "dyn."):
        with pytest.raises(BadParameter, match="has no parameter"):
            both.but(**{wrong: 0.5})
    with pytest.raises(BadParameter, match="'beta' is given twice"):
        fn.method("feddyn", **{"beta": 0.5, "dyn.beta": 0.6})
    with pytest.raises(BadParameter, match="beta = 'a': must be a number"):
        both.but(**{"dyn.beta": "a"})


def test_parts_of_one_paper_share_a_number():
    """FedSCAM has one rho_max, which its pilot and its ascent need; a reading is read in all parts that have it."""
    assert {p.rho_max for p in fn.method("fedscam", rho_max=0.01).parts if hasattr(p, "rho_max")} == {0.01}
    assert [p.rho_max for p in fn.method("fedscam", **{"scamradius.rho_max": 0.01}).parts[:2]] == [0.05, 0.01]
    assert {p.reading for p in fn.method("fedfsa", reading="released").parts} == {"released"}


@each
def test_every_parameter_can_be_set_under_its_name(m):
    assert m.but(**{name: value for name, value in m.parameters().items() if name != "reading"}) == m


def test_an_unknown_parameter_is_answered_with_the_known():
    with pytest.raises(BadParameter, match=r"FedSAM has no parameter 'beta'; it has: rho=0.1$"):
        fn.method("fedsam", beta=1.0)
    with pytest.raises(BadParameter, match=r"FedAvg has no parameter 'rho'; it has: none$"):
        fn.method("fedavg", rho=1.0)


@pytest.mark.parametrize(
    "name, wrong, message",
    [
        ("fedsam", dict(rho="big"), r"rho = 'big': must be a number"),
        ("fedsam", dict(rho=True), r"rho = True: must be a number"),
        ("fedsam", dict(rho=None), r"rho = None: must be a number"),
        ("fedprox", dict(prox_in_clip=1), r"prox_in_clip = 1: must be a bool"),
        ("specgradfilter", dict(where=["fc.*"]), r"where = \['fc\.\*'\]: must be a str"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name, wrong, message):
    with pytest.raises(BadParameter, match=message):
        fn.method(name, **wrong)


@pytest.mark.parametrize(
    "name, wrong, message",
    [
        ("fedfft", dict(ratio=2.0), "ratio = 2.0: must lie between 0 and 1"),
        ("feddyn", dict(reading="poster"), "reading = 'poster'.*must be one of corrected, printed"),
        ("feddyn", dict(reading=3), "reading = 3.*must be one of corrected, printed"),
        ("SpecGradFilter (LAP-D)", dict(kernel=4), "kernel = 4: must be an odd"),
        ("SpecGradFilter (LAP-D)", dict(kernel=3.5), "kernel = 3.5: must be an odd"),
    ],
)
def test_parts_and_filters_check_what_they_are_given(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        fn.method(name, **wrong)


# Values


@each
def test_repr_is_the_method(m):
    """The key of a run in the store holds reprs: they must say everything."""
    names = {**vars(filters), **vars(parts), "Method": Method}
    again = eval(repr(m), names)
    assert again == m
    assert hash(again) == hash(m)


def test_methods_with_other_parameters_are_other_methods():
    assert FEDSAM.but(rho=0.2) != FEDSAM
    assert FEDSAM.but(rho=0.1) == FEDSAM
    assert Method("a", Sam()) != Method("b", Sam())


# Combinations


def test_a_step_looks_uphill_once():
    with pytest.raises(BadMethod, match=r"'m' has 2 ascents \(Sam, Sam\); a step looks uphill once"):
        Method("m", Sam(), Sam(0.2))
    with pytest.raises(BadMethod, match="2 ascents"):
        FEDFFT.plus(Sam())


@pytest.mark.parametrize(
    "given", [(FilterPerturbation(),), (FilterPerturbation(), Sam()), (Dyn(), FilterPerturbation())]
)
def test_a_perturbation_must_be_there_to_be_filtered(given):
    with pytest.raises(BadMethod, match=r"FilterPerturbation needs an ascent such as Sam before it"):
        Method("m", *given)


def test_plus_puts_parts_behind():
    assert FEDFFT.plus(Dyn(beta=10.0), name="FedFFT-D") == FEDFFT_D
    m = FEDSAM.plus(Scaffold(), Prox(0.2))
    assert m == Method("FedSAM + Scaffold + Prox", Sam(0.1), Scaffold(), Prox(0.2))
    assert FEDSAM.parts == (Sam(0.1),)


def test_parts_may_share_a_buffer_but_not_disagree_about_it():
    @part
    class Reader(Part):
        per_client = {"c_k": P}

        def finish(self, k, s):
            """c_k ← 2 c_k"""
            k.c_k = 2 * k.c_k

    @part
    class Other(Part):
        per_client = {"c_k": 1}

        def finish(self, k, s):
            """c_k ← 0"""

    k, _ = one_round(SCAFFOLD.plus(Reader()), quadratic(1.0))
    assert k.c_k.item() == pytest.approx(-2.0)
    with pytest.raises(BadMethod, match="two parts declare 'c_k' with different sizes"):
        SCAFFOLD.plus(Other())


def test_a_part_needs_a_stage_and_a_stage_its_equation():
    class Idle(Part):
        """Fills in nothing."""

    class Silent(Part):
        def finish(self, k, s):
            k.w = 0.0

    with pytest.raises(TypeError, match=r"Idle fills in no stage; the stages are start, perturb, gradient"):
        part(Idle)
    with pytest.raises(TypeError, match=r"Silent\.finish needs a docstring whose first line is its equation"):
        part(Silent)


@each
def test_spec_grad_filter_goes_over_any_method(m):
    """The filter comes first, at the data's gradient; all parts of the base follow as they were."""
    made = fn.spec_grad_filter(m)
    assert made.parts == (FilterGradient(HighPass(0.05)), *m.parts)
    assert fn.spec_grad_filter(m.name) == made
    assert made.name == f"{m.name} + HighPass(0.05)"


def test_spec_grad_filter_takes_any_filter():
    made = fn.spec_grad_filter("feddyn", LocalAverage(9))
    assert made == Method("FedDyn + LocalAverage(9)", FilterGradient(LocalAverage(9)), Dyn(beta=10.0))
    with pytest.raises(UnknownMethod):
        fn.spec_grad_filter("fednobody")


def test_the_catalogues_spectral_lines_are_what_the_paper_describes():
    """§V: FFT at 0.05 and its two forms over FedAvg; the FFT over FedProx, SCAFFOLD, FedDyn and FedCM."""
    for name, filter, base in [
        ("SpecGradFilter", HighPass(0.05), FEDAVG),
        ("SpecGradFilter (LAP-D)", LocalAverage(), FEDAVG),
        ("SpecGradFilter (GD)", GaussianDetrend(), FEDAVG),
        ("SpecGradFilter-FedDyn", HighPass(0.05), FEDDYN),
        ("SpecGradFilter-FedCM", HighPass(0.05), fn.method("fedcm")),
    ]:
        assert CATALOGUE[name].method.parts == (FilterGradient(filter), *base.parts)
        assert CATALOGUE[name].paper == "SpecGradFilter"


def test_numbers_of_the_papers():
    """ρ 0.1, r 0.01 (FedFFT §5.1), λ = 1/β = 0.1, α 0.1, μ 0.1 (FL-Simulator)."""
    assert fn.method("fedfft-d").parts == (Sam(rho=0.1), FilterPerturbation(HighPass(ratio=0.01)), Dyn(beta=10.0))
    assert fn.method("fedprox").parts == (Prox(mu=0.1),)
    assert fn.method("mofedsam").parts == (Sam(rho=0.1), ClientMomentum(alpha=0.1))


# Cost: specs/optimizers.md, section 6 (vectors down and up, factor) and section 8 (gradients a step)

COSTS = {
    "FedAvg": (1, 1, 1, 1.0),
    "FedProx": (1, 1, 1, 1.0),
    "SCAFFOLD": (1, 2, 2, 2.0),
    "FedDyn": (1, 1, 1, 1.0),
    "FedCM": (1, 2, 1, 1.5),
    "FedSAM": (2, 1, 1, 1.0),
    "MoFedSAM": (2, 2, 1, 1.5),
    "FedGAMMA": (2, 2, 2, 2.0),
    "FedSpeed": (2, 1, 1, 1.0),
    "FedFFT": (2, 1, 1, 1.0),
    "FedFFT-S": (2, 2, 2, 2.0),
    "FedFFT-D": (2, 1, 1, 1.0),
    "SpecGradFilter": (1, 1, 1, 1.0),
    "SpecGradFilter (LAP-D)": (1, 1, 1, 1.0),
    "SpecGradFilter (GD)": (1, 1, 1, 1.0),
    "SpecGradFilter-FedProx": (1, 1, 1, 1.0),
    "SpecGradFilter-SCAFFOLD": (1, 2, 2, 2.0),
    "SpecGradFilter-FedDyn": (1, 1, 1, 1.0),
    "SpecGradFilter-FedCM": (1, 2, 1, 1.5),
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return fn.methods()


@pytest.mark.parametrize("name", COSTS)
def test_observed_costs_are_the_papers(table, name):
    row = table.loc[name]
    assert (row["passes per step"], row["down"], row["up"], row["traffic vs FedAvg"]) == COSTS[name]


def test_clients_keep_variates_and_duals(table):
    """One vector each for SCAFFOLD's c_k and FedDyn's h_k; a momentum or a filter leaves nothing behind."""
    kept = table["kept per client"]
    assert kept[["SCAFFOLD", "FedGAMMA", "FedFFT-S", "FedDyn", "FedSpeed", "FedFFT-D"]].eq(1).all()
    assert kept[["FedAvg", "FedProx", "FedCM", "FedSAM", "MoFedSAM", "FedFFT", "SpecGradFilter"]].eq(0).all()


def test_the_table_has_every_method_and_what_can_be_set(table):
    assert list(table.index) == list(CATALOGUE)
    assert table.loc["FedFFT", "parameters"] == "rho=0.1, ratio=0.01"
    assert table.loc["FedDyn", "paper"] == "Acar et al. 2021"


@pytest.mark.parametrize("reading", Scaffold.readings)
def test_readings_cost_the_same(reading):
    assert cost(Method("m", Scaffold(reading=reading))).traffic == 2.0


# Cards


def lines(text: str, stage: str) -> list[str]:
    """The card's lines of one stage: the one that names it and those that follow without a name."""
    out, inside = [], False
    for line in text.splitlines()[1:]:
        named = line[21:30].strip()
        inside = named == stage or (inside and not named and not line[2:20].strip() and "w_k ← w_k −" not in line)
        if inside:
            out.append(line[31:])
    return out


@each
def test_a_card_has_a_line_for_every_stage_of_every_part(m, capsys):
    """The first line has the method and its parts; each stage that a part fills in a line with the part's name."""
    text = str(fn.card(m))
    assert capsys.readouterr().out == text + "\n"
    assert text.startswith(f"{m.name}   [")
    for p in m.parts:
        assert repr(p) in text.splitlines()[0]
        for stage in p.stages():
            assert [line for line in lines(text, stage) if line.endswith(type(p).__name__)], (stage, type(p).__name__)
    used = {stage for p in m.parts for stage in p.stages()}
    frame = {"start", "gradient", "correct", "finish", "weigh", "server"}
    assert [s for s in STAGES if lines(text, s)] == [s for s in STAGES if s in used | frame]


def test_the_card_of_fedavg_is_algorithm_0():
    """One line for each thing that happens, and nobody's name but its own."""
    text = str(fn.card("fedavg"))
    assert [line[31:].strip() for line in text.splitlines()[1:]] == [
        "w_k ← w",
        "g ← ∇L(w_k)",
        "v ← g",
        "w_k ← w_k − η (clip(v) + wd · w_k)",
        "Δ_k ← w_k − w",
        "p_k ∝ n_k",
        "w ← w + step,  step = η_g Σ p_k Δ_k",
    ]
    when = [line[2:20].strip() for line in text.splitlines()[1:]]
    assert when == ["each client, once", "each step", "", "", "each client, once", "server", ""]


def test_the_card_of_fedfft_s_reads_like_its_algorithm():
    text = str(fn.card("fedfft-s"))
    order = ["δ ← ρ ∇L(w_k) / ‖∇L(w_k)‖", "δ ← Filter(δ)", "g ← ∇L(w_k + δ)", "v ← v − c_k + c", "clip(v)",
             "Δc_k ← −c − Δ_k / (K_k η)", "c ← c + Σ Δc_k / N", "w ← w + step"]  # fmt: skip
    at = [text.index(equation) for equation in order]
    assert at == sorted(at)


@pytest.mark.parametrize(
    "p, stage, shown",
    [
        (Scaffold(), "correct", "v ← v − c_k + c"),
        (Scaffold(reading="printed"), "correct", "v ← v + c_k − c"),
        (Scaffold(reading="printed"), "server", "c ← c + Σ c_k / N"),
        (Scaffold(reading="released"), "server", "c ← c + Σ Δc_k / N"),
        (Scaffold(reading="released"), "finish", "Δc_k ← −c − Δ_k / (E n_0/b · η);  c_k ← c_k + Δc_k"),
        (ClientMomentum(), "server", "m ← −Σ p_k Δ_k / (K_k η)"),
        (ClientMomentum(reading="released"), "server", "m ← −Σ p_k Δ_k / (E n_0/b · η)"),
        (Dyn(), "correct", "v ← v + (h_k − w)/β"),
        (Dyn(), "start", "wd ← wd + 1/β   (+ w_k/β, behind the clip)"),
        (Dyn(prox_in_clip=True), "correct", "v ← v + (h_k + w_k − w)/β"),
        (Dyn(reading="printed"), "correct", "v ← v + (−h_k − w)/β"),
        (Dyn(reading="printed", prox_in_clip=True), "correct", "v ← v + (−h_k + w_k − w)/β"),
        (Prox(), "correct", "v ← v − μ w"),
        (Prox(prox_in_clip=True), "correct", "v ← v + μ (w_k − w)"),
    ],
    ids=lambda x: x if isinstance(x, str) and x in STAGES else None,
)
def test_a_card_shows_the_line_of_the_chosen_reading(p, stage, shown):
    """The equation printed is the one that is run, and the only one of this part in its stage."""
    own = [line for line in lines(str(fn.card(Method("m", p))), stage) if line.endswith(type(p).__name__)]
    assert [line.removesuffix(type(p).__name__).strip() for line in own] == [shown]


@pytest.mark.parametrize("p", [Prox(prox_in_clip=True), Dyn(prox_in_clip=True)], ids=repr)
def test_a_card_is_silent_about_what_is_not_done(p):
    """With the whole pull inside the clip nothing is added to the weight decay."""
    assert "wd ← wd" not in str(fn.card(Method("m", p)))


def test_several_cards_at_once():
    text = str(fn.card("fedsam", FEDDYN, "scaffold"))
    assert [block.split("   ")[0] for block in text.split("\n\n")] == ["FedSAM", "FedDyn", "SCAFFOLD"]
