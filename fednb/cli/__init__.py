"""The command `fednb`. Imports everything; nothing imports it."""

from fednb.cli.commands import main

__all__ = ["main"]
