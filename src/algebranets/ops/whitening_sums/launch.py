"""The launch of ``whitening_sums``: programs share the batch, and torch adds up their sums."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2
from algebranets.ops.whitening_sums.kernel import whitening_sums_fwd_kernel

#: The numbers that a program loads at a time, and the most channels of a program.
TILE, MAX_WIDTH = 4096, 32
#: The most programs: enough to fill a GPU. More would only leave more sums to add up.
MAX_PROGRAMS = 4 * PROGRAMS


def whitening_sums(left: Tensor | None, x: Tensor, scale: Tensor, center: Tensor) -> Tensor:
    """The sums, (component of ``left``, component of ``x``, channel)."""
    dim, num_channels = center.shape
    batch, num_places = len(x), prod(x.shape[2:])
    images = (x if left is None else left, x)
    first, second = (image.reshape(batch, dim, num_channels, num_places) for image in images)
    num_rows = batch * num_places
    width, depth = min(next_power_of_2(num_channels), MAX_WIDTH), next_power_of_2(dim)
    height = max(1, TILE // (width * depth))
    across = ceil_div(num_channels, width)
    parts = max(1, min(ceil_div(num_rows, height), MAX_PROGRAMS // (across * dim)))
    sums = center.new_empty(parts, dim, dim, num_channels)
    with torch.cuda.device_of(x):
        whitening_sums_fwd_kernel[parts, across, dim](
            first, *first.stride(), second, *second.stride(), scale.contiguous(), center.contiguous(), sums,
            num_rows, num_places, num_channels, dim, left is None, height, depth, width, num_warps=4,
        )  # fmt: skip
    return sums.sum(0)
