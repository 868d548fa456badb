"""Launches of ``combine`` and ``sum_rows``, in tiles that suit an H200."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor

from algebranets.ops.combine.kernel import combine_fwd_kernel, sum_rows_kernel
from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2, sum_dtype

#: The numbers of a component in a program: eight for each thread, so that loads in half precision are 16 bytes wide.
TILE = 1024
#: With at least this many components a program has fewer numbers of each, because a thread has only 255 registers.
MANY_COMPONENTS = 16


def combine(
    x: Shaped[Tensor, "stack p row q column"],
    matrix: tuple[float, ...],
    num_out: int,
    across: int,
    dtype: torch.dtype,
    bias: Tensor | None,
) -> Shaped[Tensor, "stack r row s column"]:
    """The linear combinations of a contiguous ``x``. ``matrix`` is flat, with one row for each output component."""
    stacks, down, rows, along, columns = x.shape
    y = x.new_empty(stacks, num_out // across, rows, across, columns, dtype=dtype)
    if not y.numel():
        return y
    tile = TILE if max(down * along, num_out) < MANY_COMPONENTS else TILE // 4
    width = min(next_power_of_2(columns), tile)
    height = min(next_power_of_2(rows), tile // width)
    grid = (stacks * ceil_div(rows, height) * ceil_div(columns, width),)
    with torch.cuda.device_of(x):
        combine_fwd_kernel[grid](
            x, y, bias, rows, columns, matrix, down * along, along, num_out, across,
            bias is not None, x.dtype == torch.float64, height, width, num_warps=4,
        )  # fmt: skip
    return y


def sum_rows(x: Shaped[Tensor, "row column"]) -> Shaped[Tensor, " column"]:
    """``x.sum(0)`` of a contiguous ``x``, in at least float32. A kernel sums parts of the rows, and torch adds them."""
    rows, columns = x.shape
    width = min(next_power_of_2(columns), 128)
    height = 2 * TILE // width
    across = ceil_div(columns, width)
    parts = max(1, min(ceil_div(rows, height), 4 * PROGRAMS // across))
    sums = x.new_empty(parts, columns, dtype=sum_dtype(x))
    with torch.cuda.device_of(x):
        sum_rows_kernel[parts, across](x, sums, rows, columns, height, width, num_warps=4)
    return sums.sum(0)
