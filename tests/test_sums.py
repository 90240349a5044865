"""Methods as sums: where filters go, what takes whose place, and what is refused."""

import pytest
import torch
from quadratics import QuadraticRounds, heterogeneous
from torch import Tensor

from fednb import filters, parts
from fednb.algorithms.catalogue import FEDSAM, FEDSMOO, SCAFFOLD, UnknownMethod, method, spec_grad_filter
from fednb.algorithms.parts import (
    ClientMomentum,
    Dyn,
    FilterGradient,
    FilterPerturbation,
    FlexibleRadius,
    Lesam,
    LossWeights,
    Prox,
    Sam,
    Scaffold,
    SmooDual,
    Uniform,
)
from fednb.algorithms.sums import BadTerm, built, terms
from fednb.core.rounds import BadMethod, BadParameter, Method
from fednb.core.vectors import Layout
from fednb.engines.setting import Setting
from fednb.filters import Centralize, HighPass, LocalAverage, LowPass, Permuted, Rescale

LAYERS = Layout(("a.weight", "b.weight"), ((40,), (20,)))


def run(made: Method) -> Tensor:
    """The global model after each of three rounds, of unequal clients of whom some stay away."""
    f = QuadraticRounds(made, heterogeneous(P=60), w=1.0, steps=(3, 5, 2, 4), n=(3, 2, 2, 11), layout=LAYERS)
    return torch.stack([(f.round(ids), f.s.w)[1] for ids in ([0, 2, 3], [1, 2], [0, 1, 3])])


def parts_of(text: str) -> tuple:
    return method(text).parts


# Terms


@pytest.mark.parametrize(
    "text, expected",
    [
        ("fedavg", ["fedavg"]),
        ("fedavg+dyn", ["fedavg", "dyn"]),
        (" fedsam + dyn( 5 ) ", ["fedsam", "dyn( 5 )"]),
        ("a + b(1e+3, c(d + e)) + f", ["a", "b(1e+3, c(d + e))", "f"]),
        ("a +", ["a", ""]),
    ],
)
def test_terms_stand_between_plus_signs_outside_brackets(text, expected):
    assert terms(text) == expected


# Where filters go


def test_a_filter_cleans_the_perturbation_where_there_is_one():
    """fedsmoo is (SmooDual, Dyn): the filter comes right behind the ascent."""
    filtered = FilterPerturbation(HighPass(0.01))
    assert parts_of("fedsmoo + highpass(0.01)") == (SmooDual(rho=0.1), filtered, Dyn(beta=10.0))


def test_a_filter_cleans_the_gradient_where_nobody_looks_uphill():
    made = method("scaffold + highpass(0.05)")
    assert set(made.parts) == {Scaffold(), FilterGradient(HighPass(0.05))}
    assert torch.equal(run(made), run(spec_grad_filter("scaffold", HighPass(0.05))))
    assert not torch.allclose(run(made), run(SCAFFOLD), atol=1e-3)


@pytest.mark.parametrize("base", ["fedavg", "fedprox", "feddyn", "fedcm"])
def test_a_sum_with_a_filter_is_spec_grad_filter(base):
    assert torch.equal(run(method(f"{base} + highpass(0.05)")), run(spec_grad_filter(base)))


def test_fedfft_is_a_sum():
    """FedFFT = FedSAM + HighPass(0.01), FedFFT-D = FedSpeed + HighPass(0.01): part by part the catalogue's."""
    assert parts_of("fedsam + highpass(0.01)") == method("fedfft").parts
    assert parts_of("fedspeed + highpass(0.01)") == method("fedfft-d").parts
    assert parts_of("fedgamma + highpass(0.01)") == method("fedfft-s").parts


@pytest.mark.parametrize("base", ["fedsam", "fedlesam", "fedgloss", "fedwmsam", "fedfsa", "fedscam", "fedsmoo"])
def test_every_ascent_can_be_filtered(base):
    """One more part than before, right behind the one that ascends."""
    made = parts_of(f"{base} + highpass(0.3)")
    (at,) = [i for i, p in enumerate(made) if p.ascends]
    assert made[at + 1] == FilterPerturbation(HighPass(0.3))
    assert made[: at + 1] + made[at + 2 :] == method(base).parts


def test_gradient_says_that_the_gradient_is_meant():
    made = method("fedsam + gradient(highpass(0.2))")
    assert made.parts == (Sam(rho=0.1), FilterGradient(HighPass(0.2)))
    assert torch.equal(run(made), run(spec_grad_filter("fedsam", HighPass(0.2))))
    assert not torch.allclose(run(made), run(method("fedsam + highpass(0.2)")), atol=1e-3)


def test_perturbation_says_that_the_perturbation_is_meant():
    assert parts_of("fedsam + perturbation(highpass(0.2))") == parts_of("fedsam + highpass(0.2)")
    both = parts_of("fedsam + perturbation(highpass(0.2)) + gradient(centralize())")
    assert both == (Sam(rho=0.1), FilterPerturbation(HighPass(0.2)), FilterGradient(Centralize()))


def test_without_an_ascent_there_is_no_perturbation_to_filter():
    with pytest.raises(BadMethod, match="FilterPerturbation needs an ascent such as Sam before it"):
        method("fedavg + perturbation(highpass(0.1))")


def test_a_filter_is_placed_by_what_stands_before_it():
    """Behind fedavg it cleans the gradient, behind sam the perturbation."""
    assert parts_of("fedavg + highpass(0.1) + sam(0.2)") == (FilterGradient(HighPass(0.1)), Sam(0.2))
    assert parts_of("fedavg + sam(0.2) + highpass(0.1)") == (Sam(0.2), FilterPerturbation(HighPass(0.1)))


def test_filters_act_from_left_to_right():
    """δ is first shortened to 0.05, then loses its low half: shorter than 0.05. The other way it would be 0.05 long."""
    first, second = FilterPerturbation(Rescale(0.05)), FilterPerturbation(HighPass(0.5))
    assert parts_of("fedsam + rescale(0.05) + highpass(0.5)") == (Sam(rho=0.1), first, second)


def test_filters_inside_filters():
    made = method("fedavg + permuted(highpass(0.05), '3210')")
    assert made.parts == (FilterGradient(Permuted(HighPass(0.05), order="3210")),)
    deep = method("fedsam + perturbation(permuted(localaverage(kernel=5), order='random', seed=3))")
    assert deep.parts == (Sam(rho=0.1), FilterPerturbation(Permuted(LocalAverage(5), "random", 3)))


def test_filters_may_be_told_where():
    assert parts_of("fedsam + highpass(0.1, where='!fc.*')")[1] == FilterPerturbation(HighPass(0.1, where="!fc.*"))


# Parts and methods as terms


def test_parts_by_name_with_and_without_numbers():
    made = parts_of("fedavg + prox(0.3) + sam + dyn(beta=5) + clientmomentum(alpha=0.2)")
    assert made == (Prox(0.3), Sam(), Dyn(beta=5), ClientMomentum(alpha=0.2))


def test_names_have_no_case():
    assert parts_of("FedSAM + HighPass(0.02) + Dyn(5)") == parts_of("fedsam + highpass(0.02) + dyn(5)")


def test_method_names_are_terms():
    """FedSAM + SCAFFOLD is FedGAMMA, FedSAM + FedDyn FedSpeed; "uniform" is a method and a part alike."""
    assert parts_of("fedsam + scaffold") == method("fedgamma").parts
    assert parts_of("fedsam + feddyn") == method("fedspeed").parts
    assert parts_of("fedsam + fed-dyn") == method("fedspeed").parts
    assert parts_of("fedsam + uniform") == (Sam(rho=0.1), Uniform())
    assert parts_of("fedprox + fedavg") == method("fedprox").parts


def test_a_catalogue_name_with_a_plus_is_that_method():
    assert method("FedSAM + FSA").name == "FedSAM + FSA"
    assert method("scaffold + specgradfilter") == method("SpecGradFilter-SCAFFOLD")


@pytest.mark.parametrize("text", ["fedlw + sam", "fedlw + sam()"])
def test_a_sum_is_not_a_name_run_together(text):
    """ "fedlw + sam" has Sam's own radius, 0.1; FedLWSAM, whose letters are the same, has 0.05."""
    assert parts_of(text) == (LossWeights(), Sam(rho=0.1))


@pytest.mark.parametrize("text", ["fedavg + m", "fed + sam", "fedfft + d"])
def test_pieces_of_a_name_are_no_terms(text):
    with pytest.raises((BadTerm, UnknownMethod)):
        method(text)


# fsa


def test_fsa_takes_the_place_of_the_ascent():
    radius = FlexibleRadius(0.05, 0.9)
    assert parts_of("fedspeed + fsa(0.05, 0.9)") == (radius, Dyn(beta=10.0))
    assert parts_of("fedlesam-s + fsa(0.05, 0.9)") == (radius, Scaffold())
    assert parts_of("fedfft-d + fsa(0.05, 0.9)") == (radius, FilterPerturbation(HighPass(0.01)), Dyn(beta=10.0))


def test_fsa_on_a_method_without_ascent_is_one():
    assert parts_of("scaffold + fsa(rho=0.1, rho_larger=0.2, top=3)") == (Scaffold(), FlexibleRadius(0.1, 0.2, 3))


def test_fsa_with_two_equal_radii_is_sam():
    """ρ_larger = ρ: no layer is special, so that FedSpeed + FSA is FedSpeed."""
    equal = run(method("fedspeed + fsa(0.1, 0.1)"))
    assert torch.allclose(equal, run(method("fedspeed")), atol=1e-12, rtol=0)


# Refused


@pytest.mark.parametrize(
    "text, ascents",
    [
        ("fedsam + lesam(0.1)", "Sam, Lesam"),
        ("fedsmoo + fedsam", "SmooDual, Sam"),
        ("fedavg + sam + gloss", "Sam, Gloss"),
        ("fedscam + sam(0.1)", "ScamRadius, Sam"),
    ],
)
def test_a_step_looks_uphill_once(text, ascents):
    with pytest.raises(BadMethod, match=rf"has 2 ascents \({ascents}\); a step looks uphill once"):
        method(text)


@pytest.mark.parametrize(
    "text, wrong, closest",
    [
        ("fedavg + highpas(0.1)", "highpas", "highpass"),
        ("fedavg + scafold", "scafold", "scaffold"),
        ("fedavg + localaverag(3)", "localaverag", "localaverage"),
        ("fedavg + gradient(higpass(0.1))", "higpass", "highpass"),
    ],
)
def test_an_unknown_term_is_answered_with_the_closest(text, wrong, closest):
    with pytest.raises(BadTerm, match=rf"no filter, part or method '{wrong}'; closest: {closest}"):
        method(text)


def test_an_unknown_base_is_answered_with_the_closest_method():
    with pytest.raises(UnknownMethod, match="no method 'fedsamm'; closest: FedSAM"):
        method("fedsamm + highpass(0.1)")
    with pytest.raises(UnknownMethod, match="no method 'highpass"):
        method("highpass(0.1) + fedsam")


@pytest.mark.parametrize(
    "text",
    [
        "fedavg +",
        "fedavg + + dyn",
        "fedavg + highpass(0.1",
        "fedavg + highpass 0.1",
        "fedavg + highpass(0.1))",
        "fedavg + highpass(=0.1)",
        "fedavg + dyn; sam",
        "fedavg + dyn = 3",
    ],
)
def test_bad_syntax_is_refused(text):
    with pytest.raises(BadTerm, match=r"is no term; write a name with its numbers, such as highpass\(0.01\)"):
        method(text)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("fedavg + highpass(0.1, 0.2)", "positional argument"),
        ("fedavg + highpass(cutoff=0.1)", "unexpected keyword argument 'cutoff'"),
        ("fedavg + highpass('a')", "ratio = 'a': must lie between 0 and 1"),
        ("fedavg + sam(0.1, rho=0.2)", "multiple values for argument 'rho'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(text, reason):
    with pytest.raises(BadTerm, match=reason):
        method(text)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("fedavg + highpass(1.5)", "ratio = 1.5: must lie between 0 and 1"),
        ("fedavg + sam(-1)", r"Sam.rho = -1: must be at least 0"),
        ("fedavg + dyn(0)", r"Dyn.beta = 0: must be above 0"),
        ("fedavg + dyn(reading='poster')", "must be one of corrected, printed"),
        ("fedavg + permuted(highpass(0.1), '0012')", "must be an arrangement of 0123"),
    ],
)
def test_values_out_of_range_are_refused_by_the_part(text, reason):
    with pytest.raises(ValueError, match=reason):
        method(text)


INJECTIONS = [
    "fedavg + __import__('os')",
    "fedavg + __import__('os').system('false')",
    "fedavg + eval('1')",
    "fedavg + open('x', 'w')",
    "fedavg + (lambda: 1)()",
    "fedavg + highpass.__class__",
    "fedavg + highpass(ratio=__import__('os'))",
    "fedavg + highpass((lambda: 0.1)())",
    "fedavg + highpass([x for x in (1,)][0])",
    "fedavg + highpass(1 if True else 0)",
    "fedavg + highpass(*[0.1])",
    "fedavg + highpass(1 - 0.9)",
    "fedavg + torch.load('x')",
    "fedavg + _band(0.1)",
    "fedavg + filter()",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_is_run_but_known_names(text):
    with pytest.raises(BadTerm):
        method(text)


def test_nothing_outside_the_list_is_called(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadTerm):
        method("fedavg + open('made', 'w')")
    assert not (tmp_path / "made").exists()


def test_unpacked_arguments_are_refused():
    """`**` would be dropped without a word, and 0.5 with it."""
    with pytest.raises(BadTerm):
        method("fedavg + highpass(**{'ratio': 0.5})")


@pytest.mark.parametrize("text", ["fedavg + 0.5", "fedavg + 'dyn'", "fedavg + None", "fedavg + [1]"])
def test_a_value_is_no_term(text):
    with pytest.raises(BadTerm):
        method(text)


@pytest.mark.parametrize(
    "text",
    ["fedavg + gradient(0.05)", "fedsam + perturbation(dyn())", "fedavg + permuted(0.05)", "fedavg + gradient(sam())"],
)
def test_where_a_filter_belongs_nothing_else_fits(text):
    with pytest.raises(ValueError):
        method(text)


# What a sum is


def test_the_name_is_the_text():
    assert method("fedsmoo + highpass(0.01)").name == "fedsmoo + highpass(0.01)"


def test_parameters_can_be_set_on_a_sum():
    """By name, into parts and into filters inside parts; ρ of the ascent and μ of the prox are told apart."""
    made = method("fedsmoo + highpass(0.01) + prox(0.1)", rho=0.3, ratio=0.2, mu=0.7)
    assert made.parts == (SmooDual(rho=0.3), FilterPerturbation(HighPass(0.2)), Dyn(beta=10.0), Prox(mu=0.7))
    nested = method("fedavg + permuted(highpass(0.05), '3210')", ratio=0.3, order="0132")
    assert nested.parts == (FilterGradient(Permuted(HighPass(0.3), "0132")),)


def test_a_parameter_that_the_sum_lacks_is_refused():
    with pytest.raises(BadParameter, match=r"has no parameter 'kernel'; it has: rho=0.1.*ratio=0.01"):
        method("fedsam + highpass(0.01)", kernel=3)


SUMS = [
    "fedsmoo + highpass(0.01)",
    "scaffold + highpass(0.05)",
    "fedsam + gradient(lowpass(0.2)) + perturbation(rescale(0.05))",
    "fedspeed + fsa(0.05, 0.9, scheme='random')",
    "fedavg + permuted(highpass(0.05), '3210')",
    "fedper + sam(0.1) + highpass(0.01, where='!fc.*')",
    "fedscam + dyn(5)",
]


@pytest.mark.parametrize("text", SUMS)
def test_repr_is_the_sum(text):
    made = method(text)
    again = eval(repr(made), {**vars(filters), **vars(parts), "Method": Method})
    assert again == made and hash(again) == hash(made)
    assert method(made.name) == made


def test_spaces_in_a_sum_do_not_change_its_parts():
    assert parts_of("fedsmoo+highpass( ratio = 0.01 )") == parts_of("fedsmoo + highpass(0.01)")


def test_the_catalogue_is_left_as_it_was():
    before = FEDSMOO.parts, FEDSAM.parts
    method("fedsmoo + highpass(0.01)", rho=0.7)
    method("fedsam + fsa(0.3, 0.4)")
    assert (FEDSMOO.parts, FEDSAM.parts) == before
    assert method("fedsmoo").parts == (SmooDual(rho=0.1), Dyn(beta=10.0))


def test_a_term_by_itself():
    assert built("lowpass(0.3)") == LowPass(0.3)
    assert built("lesam") == Lesam()


def test_a_sum_runs(tmp_path, monkeypatch):
    """Two rounds on digits; the store's key is of the parts, so that the filter's ratio makes another run."""
    import fednb

    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    setting = Setting(clients=2, participation=1.0, rounds=1, epochs=1, batch=50, samples=100, partition="iid")
    runs = [fednb.run(setting, f"fedsmoo + highpass({r})", engine="loop", progress=False) for r in (0.01, 0.5)]
    assert all(r.status == "finished" for r in runs)
    assert len({r.key for r in runs}) == len({r.weights_sha256 for r in runs}) == 2
