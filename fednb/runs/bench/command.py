"""The verb `fednb bench`: what can be asked, and what is printed."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fednb.algorithms.catalogue import method
from fednb.base.files import atomically
from fednb.engines import device_of, suits
from fednb.engines.setting import Setting
from fednb.runs.bench import engines, filters, floor, kept, peers, precision, scale
from fednb.runs.bench import table as whole
from fednb.runs.bench.report import Rows, in_words, labelled, machine, table
from fednb.runs.bench.workload import Workload, usual

KINDS = "engines | filters | peers | scale | floor | precision | table | kept"
SIZES = {
    "clients": "how many there are",
    "participants": "how many train in a round",
    "samples": "of each client",
    "batch": "local batch size",
    "epochs": "local epochs",
    "test": "samples of the test set",
}


TRAINED = {
    "data": "fashion-mnist", "model": "resnet20-gn", "partition": "dirichlet(alpha=0.5)", "clients": 100,
    "participation": 0.1, "rounds": 12, "epochs": 5, "batch": 50,
}  # fmt: skip


def add_bench(verb: argparse.ArgumentParser) -> None:
    """The benchmarks under the verb, and what was measured with them."""
    kinds = verb.add_subparsers(required=True, metavar=KINDS)
    _add(kinds.add_parser("engines", help="loop, pool, stacked and a bare PyTorch loop, turn by turn"), do_engines, 5)
    _add(kinds.add_parser("filters", help="what each filter costs, as a share of a gradient"), do_filters, 5)
    _add(kinds.add_parser("peers", help="the same workload with pfl-research, where it is installed"), do_peers, 5)
    grown = kinds.add_parser("scale", help="seconds and memory as clients, participants and weights grow")
    _add(grown, do_scale, 2, several=("model", "clients", "participants"))
    grown.add_argument("--quick", action=argparse.BooleanOptionalAction,
                       help="few steps and participants, so that it ends in minutes; default: on a CPU")  # fmt: skip
    grown.add_argument("--limit", type=float, help="seconds; points that come later are not run; default 300 if quick")

    least = kinds.add_parser("floor", help="the least that a round can take: what products move through memory")
    _add(least, do_floor, 5)
    _add_precision(kinds.add_parser("precision", help="accuracy on real data in every precision, seed by seed"))
    _add_table(kinds.add_parser("table", help="whole runs and a whole table through the real command, cold and warm"))
    kinds.add_parser("kept", help="figures that came with this version").set_defaults(do=do_kept)


def _add(verb: argparse.ArgumentParser, do: Callable, rounds: int, several: tuple[str, ...] = ()) -> None:
    verb.add_argument("--data", help="the set whose shapes the made data have, or a shape such as 3x32x32")
    verb.add_argument("--model", type=_names, help="see `fednb ls models`; filters and scale take several: a,b")
    for name, text in SIZES.items():
        kind = _numbers if name in several else int
        verb.add_argument(f"--{name}", type=kind, help=text + ("; several: 10,100" if name in several else ""))
    verb.add_argument("--precision", help="fp32 | tf32 | bf16 | fp64")
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")
    verb.add_argument("--rounds", type=int, default=rounds, help=f"timed rounds, after a first one; default {rounds}")
    verb.add_argument("--methods", type=_names, help="such as fedavg,fedsam; see `fednb ls methods`; default fedavg")
    verb.add_argument("--engines", type=_names, help=f"of {', '.join(engines.NAMES)}")
    verb.add_argument("--workers", type=int, help="worker processes of the pool engine")
    verb.add_argument("--json", action="store_true", help="end with one line of JSON")
    verb.add_argument("--out", help="write the JSON to this file")
    verb.set_defaults(do=do)


def _add_precision(verb: argparse.ArgumentParser) -> None:
    usual_ones = " or on a GPU ".join(",".join(each) for each in precision.ON.values())
    verb.add_argument("--precisions", type=_names, help=f"compared with the first of them; default {usual_ones}")
    verb.add_argument("--seeds", type=int, default=3, help="how many; default 3")
    verb.add_argument("--method", default="fedavg", help="see `fednb ls methods`; default fedavg")
    for name, default in TRAINED.items():
        verb.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default}")
    verb.add_argument("--samples", type=int, help="of the training set; default: all")
    verb.add_argument("--engine", default="auto", help="see `fednb run`")
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")
    verb.add_argument("--json", action="store_true", help="end with one line of JSON")
    verb.add_argument("--out", help="write the JSON to this file")
    verb.set_defaults(do=do_precision)


def _add_table(verb: argparse.ArgumentParser) -> None:
    here = [f"{name}: " + ", ".join(f"{k} {v}" for k, v in each.items()) for name, each in whole.USUAL.items()]
    for name, example in whole.USUAL["cpu"].items():
        verb.add_argument(f"--{name}", type=type(example), help="see `fednb run`")
    verb.add_argument("--methods", type=_names, default=["fedavg", "fedsam"], help="default fedavg,fedsam")
    verb.add_argument("--seeds", type=int, default=3, help="how many for each method; default 3")
    verb.add_argument("--cases", type=_names, default=list(whole.CASES),
                      help=f"of {','.join(whole.CASES)}; default all; the cold run is always made")  # fmt: skip
    verb.add_argument("--device", default="auto", help="auto | cpu | cuda")
    verb.add_argument("--json", action="store_true", help="end with one line of JSON")
    verb.add_argument("--out", help="write the JSON to this file")
    verb.epilog = f"The usual setting on {'; on '.join(here)}."
    verb.set_defaults(do=do_table)


def _names(text: str) -> list[str]:
    """Names between commas; those inside brackets belong to the name."""
    return [each.strip() for each in re.split(r",(?![^()]*\))", text) if each.strip()]


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def do_engines(asked: argparse.Namespace) -> int:
    work = _workload(asked)
    names = _engines(asked, engines.usual_engines(work.device))
    about, rows = machine(work.device), []
    for chosen in [method(name) for name in asked.methods or ["fedavg"]]:
        rows += engines.raced(work, chosen, names, asked.rounds, asked.workers, say)
    if len(asked.methods or ()) > 1:
        rows = engines.beside_first(rows)
    for name in dict.fromkeys(row["method"] for row in rows):
        print(f"{name}, {work}")
        print(f"{table([labelled(row) for row in rows if row['method'] == name], engines.HEADS)}\n")
    return finish(asked, "engines", rows, about, asdict(work))


def do_filters(asked: argparse.Namespace) -> int:
    if asked.methods or asked.engines:
        raise ValueError("bench filters: filters are timed by themselves, --methods and --engines say nothing here")
    device = str(device_of(asked.device))
    models = asked.model or (["cnn-small", "resnet20-gn"] + ["resnet18-gn"] * device.startswith("cuda"))
    about, rows = machine(device), []
    for name in models:
        batch = asked.batch or 50
        work = _workload(asked, model=name, samples=asked.samples or batch, batch=batch, test=1, epochs=1)
        rows += filters.rows(work, asked.rounds, say=say)
        seen = rows[-1]
        size = f"{seen['clients']} x {min(work.batch, work.samples)} samples, {work.precision}, {device}"
        took = f"a gradient takes {seen['gradient_milliseconds']:.3g} ms"
        print(f"{name} ({seen['weights']:,} weights), {size}: {took}")
        shown = [row | {"percent": f"{row['share']:.1%}"} for row in rows if row["model"] == seen["model"]]
        print(f"{table(shown, filters.HEADS)}\n")
    return finish(asked, "filters", rows, about)


def do_peers(asked: argparse.Namespace) -> int:
    if asked.methods and asked.methods != ["fedavg"]:
        raise ValueError("bench peers: only FedAvg is the same everywhere; leave --methods out")
    work = _workload(asked)
    about = machine(work.device)
    names = _engines(asked, engines.usual_engines(work.device))
    rows = peers.rows(work, names, asked.rounds, asked.workers, say)
    if rows:
        print(f"FedAvg, {work}\n{table([labelled(row) for row in rows], engines.HEADS)}\n")
    print("\n".join(peers.hints()) + "\n")
    return finish(asked, "peers", rows, about, asdict(work))


def do_scale(asked: argparse.Namespace) -> int:
    device = str(device_of(asked.device))
    gpu = device.startswith("cuda")
    quick = not gpu if asked.quick is None else asked.quick
    sizes = {"samples": 20, "batch": 10, "epochs": 1, "test": 100} if quick else {"samples": 100, "batch": 50}
    works = [
        _workload(asked, **(sizes | _given(asked) | dict(zip(scale.NAMES, point, strict=True))))
        for point in _points(asked, quick)
    ]
    limit = asked.limit or (300.0 if quick else float("inf"))
    names, methods = _engines(asked, ["stacked:graph" if gpu else "loop"]), asked.methods or ["fedavg"]
    for name in methods:
        method(name)  # unknown ones are found here, not in every point's own process
    about = machine(device)
    rows = scale.rows(works, names, methods, asked.rounds, asked.workers, limit, say)
    print(f"{table([labelled(row) for row in rows], scale.HEADS)}\n")
    return finish(asked, "scale", rows, about)


def do_floor(asked: argparse.Namespace) -> int:
    if asked.methods or asked.engines:
        raise ValueError("bench floor: one gradient a step, whatever the engine; leave --methods and --engines out")
    device = str(device_of(asked.device))
    about, copied = machine(device), floor.speed(device, asked.rounds)
    models = asked.model or ["resnet20-gn", "resnet18-gn"]
    rows = [floor.row(_workload(asked, model=name), copied, say) for name in models]
    print(f"{table(rows, floor.HEADS)}\n")
    return finish(asked, "floor", rows, about)


def do_precision(asked: argparse.Namespace) -> int:
    if asked.seeds < 1:
        raise ValueError(f"seeds = {asked.seeds}: must be at least 1")
    device = str(device_of(asked.device))
    names = asked.precisions or precision.usual(device)
    given = {name: getattr(asked, name) for name in (*TRAINED, "samples")}
    setting = Setting(**{name: value for name, value in given.items() if value is not None})
    settings = [setting.but(precision=name) for name in names]
    for each in settings:
        suits(each, device_of(asked.device))  # before anything runs
    about, chosen = machine(device), method(asked.method)
    rows = precision.rows(settings, chosen, range(asked.seeds), asked.engine, device, say)
    print(f"{chosen}, {setting.model} on {setting.data}, {setting.rounds} rounds")
    print(f"accuracy in percent, the mean of the last {precision.LAST} rounds\n{table(rows, precision.HEADS)}\n")
    return finish(asked, "precision", rows, about, given)


def do_table(asked: argparse.Namespace) -> int:
    device = device_of(asked.device).type
    given = {name: value for name in whole.USUAL["cpu"] if (value := getattr(asked, name)) is not None}
    setting, methods = whole.usual(device, **given), tuple(asked.methods)
    suits(setting, device_of(asked.device))
    for name in methods:
        method(name)  # unknown ones are found here, not in a process of their own
    work, cases = whole.Work(setting, methods, asked.seeds, device), whole.checked(asked.cases, asked.seeds)
    about, rows = machine(device), whole.rows(work, cases, say)
    print(f"{kept.TITLES['table'].format(**work.plain())}\n{table(rows, whole.HEADS)}\n")
    return finish(asked, "table", rows, about, work.plain())


def do_kept(asked: argparse.Namespace) -> int:
    print(kept.in_tables())
    return 0


def _points(asked: argparse.Namespace, quick: bool) -> list[scale.Point]:
    """The usual sweep; or, where something is named, everything with everything."""
    if not (asked.model or asked.data or asked.clients or asked.participants):
        return scale.sweep(quick)
    models = [(usual("cpu", model=each, data=asked.data).data, each) for each in asked.model or ["cnn-small"]]
    return scale.lattice(models, asked.clients or scale.CLIENTS, asked.participants or [10])


def _engines(asked: argparse.Namespace, usual_ones: list[str]) -> list[str]:
    """The engines asked for, or the usual ones; names are checked before anything runs."""
    if asked.workers is not None and asked.workers < 1:
        raise ValueError(f"workers = {asked.workers}: must be at least 1")
    for name in asked.engines or []:
        engines.check(name, str(device_of(asked.device)))
    return asked.engines or usual_ones


def _given(asked: argparse.Namespace) -> dict[str, Any]:
    names = (*SIZES, "data", "precision")
    return {name: value for name in names if (value := getattr(asked, name)) is not None}


def _workload(asked: argparse.Namespace, **more: Any) -> Workload:
    """What was asked for, and the usual for what was not."""
    if asked.rounds < 1:
        raise ValueError(f"rounds = {asked.rounds}: must be at least 1")
    if "model" not in more and asked.model:
        if len(asked.model) > 1:
            raise ValueError(f"model = {','.join(asked.model)}: one at a time here")
        more["model"] = asked.model[0]
    work = usual(str(device_of(asked.device)), **(_given(asked) | more))
    work.setting  # noqa: B018  says what is wrong with it, before anything is made
    return work


def say(text: str) -> None:
    print(f"fednb: {text}", file=sys.stderr, flush=True)


def _typed() -> list[str]:
    """What was asked on the command line, but for the file, which is nobody else's."""
    words, kept_words = iter(sys.argv[1:]), []
    for word in words:
        if word == "--out":
            next(words, None)
        elif not word.startswith("--out="):
            kept_words.append(word)
    return kept_words


def finish(
    asked: argparse.Namespace, what: str, rows: Rows, about: dict[str, Any], work: dict[str, Any] | None = None
) -> int:
    """The machine, and the JSON where it is wanted."""
    print(in_words(about))
    known = {"bench": what, "rows": rows, "machine": about, "command": f"python -m fednb {shlex.join(_typed())}"}
    result = json.dumps(known | ({"workload": work} if work else {}))
    if asked.out:
        atomically(Path(asked.out), result + "\n")
    if asked.json:
        print(result)
    return 0
