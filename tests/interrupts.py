"""A run that is interrupted on purpose: `run(..., progress=stop_after(2))` raises Stop after its second round."""


class Stop(Exception):
    """The interrupt that a test asked for."""


def stop_after(rounds):
    """A function for `progress` that raises Stop when so many rounds are finished."""

    def watch(row):
        if row["round"] + 1 == rounds:
            raise Stop

    return watch
