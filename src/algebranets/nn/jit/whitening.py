"""Whitening's sums over a batch."""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

#: Numbers a program holds at a time, and how many programs there are at most: enough to fill a GPU, and no more, for
#: what each of them has summed is summed in turn.
TILE, PROGRAMS = 4096, 1024


def sums_of_products(
    left: Float[Tensor, "batch feat *size"] | None,
    x: Float[Tensor, "batch feat *size"],
    scale: Float[Tensor, " chan"],
    centre: Float[Tensor, "comp chan"],
) -> Float[Tensor, "comp comp chan"]:
    """The products of each component of ``left`` and each of ``x * scale - centre``, summed over batch and places.

    Without ``left``, both are components of the latter. Sums are in ``centre``'s precision. Images are read as they lie
    in memory: best as channels_last.
    """
    dim, channels = centre.shape
    batch, places = len(x), prod(x.shape[2:])
    first, second = (images.reshape(batch, dim, channels, places) for images in (x if left is None else left, x))
    rows = batch * places
    width, depth = min(triton.next_power_of_2(channels), 32), triton.next_power_of_2(dim)
    height = max(1, TILE // (width * depth))
    across = triton.cdiv(channels, width)
    parts = max(1, min(triton.cdiv(rows, height), PROGRAMS // (across * dim)))
    sums = centre.new_empty(parts, dim, dim, channels)
    with torch.cuda.device_of(x):
        _sums_of_products[parts, across, dim](
            first, *first.stride(), second, *second.stride(), scale.contiguous(), centre.contiguous(), sums,
            rows, places, channels, dim, left is None, height, depth, width, num_warps=4,
        )  # fmt: skip
    return sums.sum(0)


@triton.jit
def _sums_of_products(
    left, left_batch, left_comp: tl.constexpr, left_chan, left_place,
    x, x_batch, x_comp: tl.constexpr, x_chan, x_place,
    scale, centre, sums, rows, places, channels: tl.constexpr, dim: tl.constexpr,
    is_left_centred: tl.constexpr, height: tl.constexpr, depth: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """A program: one component of ``left``, all of ``x``, some channels, every so many-th tile of rows."""
    part, i = tl.program_id(0), tl.program_id(2)
    row = tl.arange(0, height)[:, None, None]
    j = tl.arange(0, depth)[None, :, None]
    chan = tl.program_id(1) * width + tl.arange(0, width)[None, None, :]
    is_chan, is_comp = chan < channels, j < dim
    factor = tl.load(scale + chan, mask=is_chan, other=1)
    mean = tl.load(centre + j * channels + chan, mask=is_comp & is_chan, other=0)
    left_mean = tl.load(centre + i * channels + chan, mask=is_chan, other=0)
    total = tl.zeros([height, depth, width], dtype=sums.dtype.element_ty)
    for start in range(part * height, rows, tl.num_programs(0) * height):
        at = start + row
        is_row, n, place = at < rows, (at // places).to(tl.int64), at % places
        here = n * x_batch + place * x_place + j * x_comp + chan * x_chan
        t = tl.load(x + here, mask=is_row & is_comp & is_chan, other=0).to(total.dtype) * factor - mean
        here = n * left_batch + place * left_place + i * left_comp + chan * left_chan
        s = tl.load(left + here, mask=is_row & is_chan, other=0).to(total.dtype)
        if is_left_centred:
            s = tl.where(is_row, s * factor - left_mean, 0)
        total += s * t
    into = ((part * dim + i) * dim + j) * channels + chan
    tl.store(sums + into, tl.sum(total, 0)[None], mask=is_comp & is_chan)
