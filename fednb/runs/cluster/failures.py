"""Why runs failed on a cluster, kept in the client's store until they are made: a second look can tell it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from fednb.base.files import DamagedFile, new_folder, read_json, write_json
from fednb.runs.cluster.worker import cluster_folder


def note(key: str, why: str) -> None:
    """Keep the reason why a run failed."""
    write_json(new_folder(cluster_folder() / "failed") / f"{key}.json", {"key": key, "why": why})


def forget(keys: Iterable[str]) -> None:
    """Remove what was kept of these runs: they are made, or are tried again."""
    for key in keys:
        (cluster_folder() / "failed" / f"{key}.json").unlink(missing_ok=True)


def reason(key: str) -> str:
    """Why a run failed when it was last tried on a cluster; nothing where it did not."""
    with suppress(OSError, DamagedFile):
        return str(read_json(cluster_folder() / "failed" / f"{key}.json").get("why", ""))
    return ""
