"""Values as they are typed on a command line: numbers and lists, times, parts of a grid."""

from __future__ import annotations

import argparse
import ast
import re
from typing import Any
from warnings import catch_warnings, simplefilter

from fednb.base.inputs import shown
from fednb.base.streams import whole_seeds

MOST_PROCESSES = 1024
MOST_TYPED = 10_000  # letters of a value that may be Python's
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
MOST_TIME = 366 * 86400  # seconds


def parsed(text: str) -> Any:
    """A value as typed: a number, true or false, none, a list, or the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if len(text) > MOST_TYPED:
        return text
    with catch_warnings():
        simplefilter("ignore")  # of the compiler, about texts that are none of Python's
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError):
            return text


def parameters_of(pairs: list[list[str]], option: str = "-p") -> dict[str, Any]:
    """Parameters as typed, -p NAME VALUE several times; a name that stands there twice is refused.

    >>> parameters_of([["rho", "0.05"], ["reading", "printed"]])
    {'rho': 0.05, 'reading': 'printed'}
    """
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{option} {shown(twice[0])} is given {names.count(twice[0])} times; give it once")
    return {name: parsed(value) for name, value in pairs}


CHOICE = re.compile(r"argument (?P<what>.+?): invalid choice: (?P<given>.+?) \(choose from (?P<known>.+)\)", re.DOTALL)
KIND = re.compile(r"argument (?P<what>.+?): invalid (?P<kind>\w+) value: (?P<given>.+)", re.DOTALL)
KINDS = {"int": "must be a whole number", "float": "must be a number", "processes": "must be a whole number",
         "_numbers": "must be whole numbers, such as 10,100"}  # fmt: skip  # by the name of the function that reads it


def in_words(message: str) -> str:
    """What argparse says of a wrong argument, without names of functions and with the right values.

    >>> in_words("argument --seed: invalid int value: 'x'")
    "--seed 'x': must be a whole number"
    >>> in_words("argument ls | run: invalid choice: 'fly' (choose from 'ls', 'run')")
    "'fly': must be one of ls, run"
    """
    if told := CHOICE.fullmatch(message):
        what = f"{told['what']} " * told["what"].startswith("-")
        return f"{what}{told['given']}: must be one of {told['known'].replace(chr(39), '')}"
    if told := KIND.fullmatch(message):
        return f"{told['what']} {told['given']}: {KINDS.get(told['kind'], 'cannot be read')}"
    return message


def processes(text: str) -> int:
    """A number of processes; what is less than one is refused where it is used."""
    if (number := int(text)) > MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{shown(number)}: must be at most {MOST_PROCESSES}")
    return number


def seeds_of(text: str) -> list[int]:
    """Seeds as typed, such as 0,1,2."""
    try:
        return whole_seeds([int(seed) for seed in text.split(",")])
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be whole numbers of at least 0, such as 0,1,2") from None


def rounds_of(text: str) -> list[int]:
    """Rounds as typed, such as 0,9.

    >>> rounds_of("29,59")
    [29, 59]
    """
    if not re.fullmatch(r"\d{1,12}(,\d{1,12})*", text):
        raise argparse.ArgumentTypeError(f"{shown(text)}: must be rounds, counted from 0, such as 0,9")
    return [int(t) for t in text.split(",")]


def seconds_of(text: str) -> float:
    """A time as typed, in seconds.

    >>> seconds_of("25m"), seconds_of("1h30m"), seconds_of("90s")
    (1500.0, 5400.0, 90.0)
    """
    if TIME.fullmatch(text) and len(text) < 50:
        told = sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))
        if 0 < told <= MOST_TIME:
            return told
    raise argparse.ArgumentTypeError(f"{shown(text)}: must be a time such as 25m, 90s or 1h30m")


def part_of(texts: list[str]) -> dict[str, list[Any]]:
    """A part of a grid as typed: NAME=VALUE[,VALUE...] several times, or a dictionary as notebooks have it.

    >>> part_of(["dataset=CIFAR-10", "alpha=0.1,0.6"])
    {'dataset': ['CIFAR-10'], 'alpha': [0.1, 0.6]}
    >>> part_of(['{"dataset": ["CIFAR-10"]}'])
    {'dataset': ['CIFAR-10']}
    """
    part: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        whole = parsed(text)
        if isinstance(whole, dict) and all(
            isinstance(n, str) and isinstance(v, list | tuple) for n, v in whole.items()
        ):
            part |= {tag: list(values) for tag, values in whole.items()}
        elif equals and name.strip() and values and not isinstance(whole, dict):
            part.setdefault(name.strip(), []).extend(parsed(value.strip()) for value in values.split(","))
        else:
            raise ValueError(f"--only {shown(text)}: must be such as dataset=CIFAR-10 or alpha=0.1,0.6")
    return part


def names_of(texts: list[str], known: set[str]) -> tuple[str, ...]:
    """Names as typed, with commas between them; a text that is itself a known name (in lower case) is one name.

    >>> names_of(["FedAvg,FedSAM", "FedProx, pull split"], {"fedprox, pull split"})
    ('FedAvg', 'FedSAM', 'FedProx, pull split')
    """
    pieces = ([text] if text.lower() in known else text.split(",") for text in texts)
    return tuple(piece.strip() for each in pieces for piece in each if piece.strip())
