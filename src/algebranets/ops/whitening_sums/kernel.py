"""Kernel of ``whitening_sums``: sums of the products of components.

Images are (batch, component, channel, place). A row is one place of one image. Tiles are (row, component j, channel),
with sizes ``height``, ``depth`` and ``width``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def whitening_sums_fwd_kernel(
    left, left_batch, left_comp: tl.constexpr, left_chan, left_place,
    x, x_batch, x_comp: tl.constexpr, x_chan, x_place,
    scale, center, sums, num_rows, num_places, num_channels: tl.constexpr, dim: tl.constexpr,
    is_left_centered: tl.constexpr, height: tl.constexpr, depth: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Each program sums component i of ``left`` times all components of ``x``, for its channels and its rows."""
    part, i = tl.program_id(0), tl.program_id(2)
    r = tl.arange(0, height)[:, None, None]
    j = tl.arange(0, depth)[None, :, None]
    chan = tl.program_id(1) * width + tl.arange(0, width)[None, None, :]
    is_chan, is_comp = chan < num_channels, j < dim
    factor = tl.load(scale + chan, mask=is_chan, other=1)
    mean = tl.load(center + j * num_channels + chan, mask=is_comp & is_chan, other=0)
    left_mean = tl.load(center + i * num_channels + chan, mask=is_chan, other=0)
    total = tl.zeros([height, depth, width], dtype=sums.dtype.element_ty)
    for start in range(part * height, num_rows, tl.num_programs(0) * height):
        row = start + r
        is_row, n, place = row < num_rows, (row // num_places).to(tl.int64), row % num_places
        x_at = x + (n * x_batch + place * x_place + j * x_comp + chan * x_chan)
        t = tl.load(x_at, mask=is_row & is_comp & is_chan, other=0).to(total.dtype) * factor - mean
        left_at = left + (n * left_batch + place * left_place + i * left_comp + chan * left_chan)
        s = tl.load(left_at, mask=is_row & is_chan, other=0).to(total.dtype)
        if is_left_centered:
            s = tl.where(is_row, s * factor - left_mean, 0)
        total += s * t
    sums_at = sums + (((part * dim + i) * dim + j) * num_channels + chan)
    tl.store(sums_at, tl.sum(total, 0)[None], mask=is_comp & is_chan)
