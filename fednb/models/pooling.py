"""2x2 max-pooling with the bits of torch's, in less time on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional


def halved(x: Tensor) -> Tensor:
    """The largest number of each 2x2 square of images `[n, c, h, w]`; an odd last row or column is left out.

    >>> halved(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
    tensor([[[[4.]]]])
    """
    if x.device.type != "cpu" or is_functorch_wrapped_tensor(x):
        return functional.max_pool2d(x, 2)
    if x.requires_grad:  # torch's loop over channels that lie together is a vectorised one
        return functional.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2).contiguous()
    height, width = (side // 2 * 2 for side in x.shape[-2:])
    wider = torch.maximum(x[..., 0:width:2], x[..., 1:width:2])
    return torch.maximum(wider[..., 0:height:2, :], wider[..., 1:height:2, :])
