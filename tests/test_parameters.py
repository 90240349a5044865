"""What a notebook can be given: names that it has, values like its defaults; anything else is one line."""

import re

import pytest

from fednb.study.parameters import BadNotebookParameter, checked

KNOWN = {"scale": "smoke", "seed": 0, "seeds": None, "device": "auto", "x": 1, "ratio": 0.5, "name": "a", "on": True,
         "alphas": [0.1], "only": None}  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"scale": "papers"}, {"scale": "../smoke"}, {"scale": "/tmp"}, {"scale": ["smoke"]}, {"scale": None},
        {"seed": -1}, {"seed": 1.5}, {"seed": "a"}, {"seed": [0, 1]}, {"seed": True}, {"seed": None},
        {"seeds": 3}, {"seeds": []}, {"seeds": [0, -1]}, {"seeds": "0,1"}, {"seeds": [0, 1.5]},
        {"device": "gpu"}, {"device": "cuda:x"}, {"device": 0}, {"device": None},
        {"x": 1.5}, {"x": "1"}, {"x": True}, {"ratio": "half"}, {"ratio": float("nan")}, {"ratio": float("inf")},
        {"ratio": 10**400}, {"name": 3}, {"name": None}, {"on": 1}, {"alphas": 0.1}, {"alphas": ["a"]}, {"alphas": []},
        {"only": {1: 2}}, {"only": {"a": float("nan")}}, {"only": object()}, {"none": 1},
    ],
    ids=lambda given: re.sub(" at 0x[0-9a-f]+", "", str(given)),
)  # fmt: skip
def test_a_wrong_parameter_is_refused_in_one_line(given):
    with pytest.raises(BadNotebookParameter) as refused:
        checked("made/01_x", KNOWN, given)
    assert "made/01_x" in str(refused.value) and next(iter(given)) in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "given, taken",
    [
        ({"scale": "laptop"}, "laptop"), ({"seed": 3}, 3), ({"seeds": (0, 1)}, [0, 1]), ({"seeds": None}, None),
        ({"device": "cuda:1"}, "cuda:1"), ({"x": -2}, -2), ({"ratio": 1}, 1), ({"name": "FedAvg + Sam(0.1)"}, None),
        ({"alphas": (0.1, 1)}, [0.1, 1]), ({"only": {"dataset": ("A", "B")}}, {"dataset": ["A", "B"]}),
    ],
    ids=str,
)  # fmt: skip
def test_a_parameter_like_its_default_is_taken(given, taken):
    (value,) = checked("made/01_x", KNOWN, given).values()
    assert value == (taken if taken is not None else next(iter(given.values())))
