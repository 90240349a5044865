"""Numbers and tensors as Flower's records: arrays as numpy writes them, which no reader unpickles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

NUMBERS, ARRAYS = "numbers", "arrays"


class BadRecord(ValueError):
    """A message that does not hold what it should."""


def record_of(numbers: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> RecordDict:
    """The content of a message: numbers and texts by name, and arrays by name."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    held = {name: Array(x.detach().cpu().numpy()) for name, x in arrays.items()}
    return RecordDict({NUMBERS: ConfigRecord(dict(numbers)), ARRAYS: ArrayRecord(held)})


def opened(message: Message) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Numbers and arrays of a message; BadRecord where it holds anything else."""
    from flwr.app import ArrayRecord, ConfigRecord

    content = message.content
    if set(content) != {NUMBERS, ARRAYS}:
        raise BadRecord(f"a message with {', '.join(map(str, content)) or 'nothing'} in place of numbers and arrays")
    numbers, arrays = content[NUMBERS], content[ARRAYS]
    if not isinstance(numbers, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise BadRecord("a message whose records are of another kind")
    try:
        return dict(numbers), {name: torch.from_numpy(x.numpy().copy()) for name, x in arrays.items()}
    except (TypeError, ValueError, EOFError, OSError) as error:
        raise BadRecord(f"an array that cannot be read ({error})") from None
