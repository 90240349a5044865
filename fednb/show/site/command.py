"""The verb `fednb publish`: what can be asked, and what is printed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fednb.runs.grid import SCALES


def add_publish(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--out", type=Path, default=Path("build/site"), help="the site's folder; default build/site")
    verb.add_argument(
        "--scale", default="", help=f"{' | '.join(SCALES)}; default: of each notebook the largest executed"
    )
    verb.set_defaults(do=do_publish)


def do_publish(asked: argparse.Namespace) -> int:
    if asked.scale and asked.scale not in SCALES:
        raise ValueError(f"scale = {asked.scale!r}: must be one of {', '.join(SCALES)}")
    from fednb.show.site.publish import publish

    site = publish(asked.out, asked.scale)
    files = [file for file in site.first.parent.rglob("*") if file.is_file()]
    pages = sum(file.suffix == ".html" for file in files)
    print(f"{pages} pages, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
    print(f"the site  {site.first}")
    for line in site.wrong:
        print(f"fednb: {line}", file=sys.stderr)
    return 1 if site.wrong else 0
