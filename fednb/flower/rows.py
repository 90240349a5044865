"""What a client keeps between rounds: a checked file for each round that may count, in a folder of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fednb.base.files import DamagedFile, load_tensors, new_folder, save_tensors, sweep

FILES = "round-*.safetensors"
NEVER = -1  # the last counted round of a client that no round has counted yet


class StateLost(RuntimeError):
    """A client's folder does not hold the state that the server counts on."""


@dataclass(frozen=True)
class ClientRows:
    """The rows of one client in one federation, by the round after which they were saved.

    A client cannot know whether its answer arrives. It keeps the rows of the last round that the server counted, and
    those of the round after it until the server says which of the two it counts.
    """

    folder: Path
    federation: str
    client: int

    @property
    def place(self) -> Path:
        """The folder of this client's files."""
        return self.folder / self.federation / f"client-{self.client:05d}"

    def path(self, t: int) -> Path:
        """The file of the rows as they were after round t."""
        return self.place / f"round-{t:06d}.safetensors"

    def before(self, t: int, counted: int, start: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rows with which a client goes into round t: those after its last counted round, or the start values.

        Rows of rounds that did not count are removed. A task of a round before one that the client has been in is
        refused: it is an old message, or the server's state was put back.
        """
        if not start:
            return {}
        if (newest := max(map(_round, self.place.glob(FILES)), default=NEVER)) > t:
            raise StateLost(f"client {self.client} was in round {newest + 1}, and is asked for round {t + 1} again")
        rows = dict(start) if counted == NEVER else self._load(counted, start)
        for path in self.place.glob(FILES):
            if path != self.path(counted):
                path.unlink()
        return rows

    def _load(self, t: int, start: dict[str, Tensor]) -> dict[str, Tensor]:
        try:
            rows, about = load_tensors(self.path(t))
        except FileNotFoundError:
            raise StateLost(
                f"client {self.client} has no state of round {t} in {self.place}: give the node the folder that it had"
            ) from None
        if (about.get("federation"), about.get("client")) != (self.federation, str(self.client)):
            raise DamagedFile(self.path(t), "is of another client or federation")
        if {name: (x.shape, x.dtype) for name, x in rows.items()} != {n: (x.shape, x.dtype) for n, x in start.items()}:
            raise DamagedFile(self.path(t), "is of another method or model")
        return rows

    def save(self, t: int, rows: dict[str, Tensor]) -> None:
        """Keep the rows as they are after round t, beside those of the last counted round."""
        if rows:
            sweep(new_folder(self.place))
            about = {"federation": self.federation, "client": str(self.client), "round": str(t)}
            save_tensors(self.path(t), rows, about)


def _round(path: Path) -> int:
    """The round that a file of rows is of."""
    return int(path.stem.removeprefix("round-"))
