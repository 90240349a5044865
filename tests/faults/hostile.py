"""Hostile inputs, drawn by a seeded generator: values, method texts, partition texts, files of a small made paper."""

from __future__ import annotations

import random
from copy import deepcopy
from math import inf, nan
from typing import Any

import numpy as np

LONG_TEXT = "a" * 100_000


def nested(depth: int) -> list:
    """Lists inside each other."""
    out: list = []
    for _ in range(depth):
        out = [out]
    return out


NUMBERS = [
    nan, inf, -inf, -1, 0, 1, 2, 3, 0.5, 1.5, -0.0, 1e300, -1e300, 1e-300, 10**7, 10**9, 3_000_000_000, 10**18, 10**400,
    -(10**400), 2**63, 10**5000,
]  # fmt: skip
TEXTS = [
    "", " ", "nan", "inf", "-inf", "none", "None", "true", "0", "1e300", "1e999", "9" * 5000, LONG_TEXT, "a\nb",
    "\r\n", "\x00", "\x1b[31mred", "é", "💥", "\ud800", "\u2028", "../../etc/passwd", "'; --", "{}", "%s%n%d", "[[[[[",
    "((((((", "+" * 3000, "1,2,3", "[1, 2]", "{'a': 1}", "{[]: 1}", "--help", "*", "?" * 50, "a=" * 500, "0x10",
    "1_000", "٣", "1j", "1+1", "lambda: 0", "__import__('os')", "[" * 500 + "]" * 500, "1" + "+1" * 2000,
    "-" * 5000 + "1",
]  # fmt: skip
THINGS = [
    True, False, None, [], [0], [nan], {}, {"a": 1}, (), (0, 1), object(), b"x", 1j, nested(50), nested(900),
    np.float64("nan"), np.float32(0.5), np.int64(5), np.array([1.0, 2.0]), range(3), len, int, {1, 2},
]  # fmt: skip
VALUES = [*NUMBERS, *TEXTS, *THINGS]


def typed(rng: random.Random) -> str:
    """A value as somebody types it."""
    value = rng.choice([*TEXTS, *NUMBERS, *THINGS[:14]])
    if isinstance(value, int) and abs(value) > 10**4000:
        return "9" * 5000
    text = value if isinstance(value, str) else str(value)
    return text.replace("\x00", "\\0").encode("utf-8", "replace").decode()


NAMES = [
    "fedavg", "fedsam", "fedfft", "FedFFT-D", "fedawa", "fedscam", "fedala", "fedcr", "sam", "dyn", "scaffold",
    "prox", "highpass", "lowpass", "permuted", "gradient", "perturbation", "fsa", "adaptiveweights", "localaverage",
    "filter", "gaussiandetrend", "randomband", "normmatched", "uniform", "privatehead", "servermomentum", "fedavgg",
    "part", "_band",
]  # fmt: skip
PARAMETERS = [
    "rho", "ratio", "beta", "mu", "learning_steps", "filter", "where", "order", "seed", "reading", "d", "rh", "",
]  # fmt: skip


ARGUMENTS = [
    "0.1", "nan", "inf", "1e300", "-1", "1e999", "'a'", "'*'", "[1]", "9" * 400, "True", "None", "1j", "**{}", "*[1]",
    "1-1", "-0.0", "0.5", "2", "10000000000", "'random'", '"', "'", "{}", "{[]:0}",
]  # fmt: skip
PIECES = [
    *"()+=,'\"[]{}.#\n\t\\-*", "\x00", "💥", "\ud800", "((((", "))))", "nan", "1e999", "\u00a0", "= ", "#",
]  # fmt: skip


def term(rng: random.Random, depth: int = 0) -> str:
    """A term of a method's text, such as highpass(ratio=nan), right or wrong."""
    name = rng.choice(NAMES)
    if rng.random() < 0.3 or depth > 3:
        return name
    given = []
    for _ in range(rng.randrange(4)):
        value = term(rng, depth + 1) if rng.random() < 0.3 else rng.choice(ARGUMENTS)
        given.append(f"{rng.choice(PARAMETERS)}={value}" if rng.random() < 0.4 else value)
    return f"{name}({', '.join(given)})"


def method_text(rng: random.Random) -> str:
    """A sum of terms, often with something broken in it."""
    text = " + ".join(term(rng) for _ in range(rng.choice([1, 2, 2, 3, 4, 60])))
    return text if rng.random() < 0.4 else broken(rng, text)


def broken(rng: random.Random, text: str) -> str:
    """A text with letters taken out, put in, doubled, or with much of one thing in it."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(text) + 1)
        piece = rng.choice(PIECES)
        how = rng.randrange(6)
        if how == 0:
            text = text[:at] + text[at + rng.randrange(1, 9) :]
        elif how <= 2:
            text = text[:at] + piece + text[at:]
        elif how == 3:
            text = text[:at] + text[at : at + 30] + text[at:]
        elif how == 4:
            text = text[:at]
        elif rng.random() < 0.2:
            text = text[:at] + piece * rng.choice([50, 1000, 10_000]) + text[at:]
    return text


def partition_text(rng: random.Random) -> str:
    """A partition's text, mostly wrong."""
    kind = rng.choice(["iid", "dirichlet", "dirichlet-client", "dirichlet-equal", "pathological", "pathological-shards",
                       "natural", "feature-shift", "domains", "dirichlt", ""])  # fmt: skip
    values = [
        "nan",
        "inf",
        "0",
        "-1",
        "1e-300",
        "1e300",
        "0.1",
        "2",
        "10",
        "9" * 50,
        "9" * 5000,
        "true",
        "",
        "x",
        "1e-6",
        "1e6",
    ]
    names = ["alpha", "minimum", "classes", "share", "target", "severity", "fewest", "most", "quirk", "seen", "beta"]
    given = [
        f"{rng.choice(names)}={rng.choice(values)}" if rng.random() < 0.6 else rng.choice(values)
        for _ in range(rng.randrange(4))
    ]
    text = f"{kind}({', '.join(given)})" if rng.random() < 0.9 else kind
    return broken(rng, text) if rng.random() < 0.2 else text


PAPER = """
title = "Made"
authors = "A, B"
venue = "nowhere"
year = 2026
citation = "Made."
code = "none"
[setting]
rounds = 9
clients = 20
[smoke]
samples = 100
clients = 4
rounds = 1
epochs = 1
[laptop]
samples = 200
clients = 4
rounds = 2
[sections.table1]
title = "Table 1"
notebook = "made/01_table1"
[sections.fig2]
title = "Figure 2"
notebook = "made/02_fig2"
grid = false
evidence = { variance_by_band = { bands = 10 }, accuracy = {} }
"""
GRID = """
methods = [{ name = "FedAvg", label = "Base" }, "FedSAM", { name = "fedfft", ratio = 0.02, setting = { epochs = 2 } }]
[setting]
lr = 0.05
[smoke]
seeds = [0, 1]
vary = { partition = ["iid", "dirichlet(alpha=0.6, minimum=1)"] }
probe = { what = ["perturbation", "global"], rounds = [0], batches = 1 }
[laptop]
sweep = { rho = [0.1, 0.2] }
cases = [{ case = "A", setting = { clients = 3 } }, { case = "B", methods = ["fedavg"], vary = { clients = [2, 5] } }]
[paper]
seeds = [0]
setting = { rounds = 3 }
"""
SUMS = """
[smoke]
sums = { ascent = { none = "", SAM = "sam(0.1)" }, correction = { none = "", dual = "dyn(10)" } }
[laptop]
sums = { ascent = { none = "" } }
[paper]
sums = { ascent = { none = "" } }
"""
TABLE = """method,dataset,model,setting,metric,value,std,note
A,CIFAR-10,x,alpha=0.1;rho=0.05,accuracy,50,0.1,
A,CIFAR-10,x,alpha=0.6;rho=5%,accuracy,52.5,,bold
B,CIFAR-10 (implied),x,alpha=0.1,accuracy,49,,Fig 2 left
B,CIFAR-10,not printed,Dir(0.3),accuracy_fraction,0.48,0.01,
C,,,domain=Art; x,words,none,,
"""


def toml(value: Any) -> str:
    """A value in TOML's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return (
            '"'
            + "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\' else c for c in value if ord(c) < 0xD800)
            + '"'
        )
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return "nan" if value != value else ("inf" if value == inf else "-inf" if value == -inf else repr(value))
    return str(value)


TOML_VALUES: list[Any] = [
    nan, inf, -inf, -1, 0, 1, 0.5, 1e300, 10**18, 2**62, True, False, "", "x", "a" * 3000, "nan", "../../x", "a\nb",
    "💥", [], {}, [[]], [1, "a"], {"a": 1}, {"a": []}, {"a": {"b": {"c": 1}}}, [{}], [{"name": 1}], ["a", "b"],
    nested(15), nested(200), [0, 0], [-1], [1.5], list(range(100)),
]  # fmt: skip


def changed(rng: random.Random, tree: Any) -> Any:
    """A tree of tables and lists with one thing in it wrong: replaced, taken out, renamed, doubled, put in."""
    places: list[tuple[Any, Any]] = []
    seen = [tree]
    while seen:
        here = seen.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        places += [(here, key) for key in keys]
        seen += [here[key] for key in keys if isinstance(here[key], dict | list)]
    if not places:
        return tree
    here, key = rng.choice(places)
    how = rng.randrange(6)
    if how <= 2:
        here[key] = deepcopy(rng.choice(TOML_VALUES))
    elif how == 3:
        del here[key]
    elif isinstance(here, dict):
        name = rng.choice(["x", "kind", "left", "setting", "methods", "", "a b", "💥"])
        here[name] = deepcopy(rng.choice([here[key], *TOML_VALUES]))
    else:
        here += [deepcopy(here[key]) for _ in range(rng.choice([1, 3]))]
    return tree
