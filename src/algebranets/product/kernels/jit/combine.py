"""Linear combinations of components: every number read once, every result written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

from algebranets.product.kernels.jit import ceil_div, next_power_of_2

#: Numbers of a component that a program holds: eight a thread, so that loads of half precision are 16 bytes wide.
TILE = 1024
#: Components from which on a program holds fewer numbers of each: a thread has 255 registers.
MANY = 16
#: How many programs sum rows: enough to fill a GPU, and no more, for what each has summed is summed in turn.
PROGRAMS = 1024


def combine(
    x: Shaped[Tensor, "stack p row q column"],
    matrix: tuple[float, ...],
    num_out: int,
    across: int,
    dtype: torch.dtype,
    bias: Tensor | None,
) -> Shaped[Tensor, "stack r row s column"]:
    """`product.combine.combine`, for a contiguous ``x``; ``matrix`` is flat, one row an output component."""
    stacks, down, rows, along, columns = x.shape
    y = x.new_empty(stacks, num_out // across, rows, across, columns, dtype=dtype)
    if not y.numel():
        return y
    tile = TILE if max(down * along, num_out) < MANY else TILE // 4
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
    """``x.sum(0)`` of a contiguous ``x``, in at least float32: sums of parts of the rows, then the sum of those."""
    rows, columns = x.shape
    width = min(next_power_of_2(columns), 128)
    height = 2 * TILE // width
    across = ceil_div(columns, width)
    parts = max(1, min(ceil_div(rows, height), PROGRAMS // across))
    sums = x.new_empty(parts, columns, dtype=torch.promote_types(x.dtype, torch.float32))
    with torch.cuda.device_of(x):
        sum_rows_kernel[parts, across](x, sums, rows, columns, height, width, num_warps=4)
    return sums.sum(0)


@triton.jit
def sum_rows_kernel(x, sums, rows, columns, height: tl.constexpr, width: tl.constexpr):
    """A program: every so many-th tile of some columns."""
    column = tl.program_id(1) * width + tl.arange(0, width)[None, :]
    total = tl.zeros([height, width], dtype=sums.dtype.element_ty)
    for start in range(tl.program_id(0) * height, rows, tl.num_programs(0) * height):
        row = (start + tl.arange(0, height)[:, None]).to(tl.int64)
        here = tl.load(x + row * columns + column, mask=(row < rows) & (column < columns), other=0)
        total += here.to(total.dtype)
    into = sums + tl.program_id(0) * columns + column
    tl.store(into, tl.sum(total, 0)[None, :], mask=column < columns)


@triton.jit
def combine_fwd_kernel(
    x, y, bias, rows, columns,
    matrix: tl.constexpr, num_in: tl.constexpr, along: tl.constexpr, num_out: tl.constexpr, across: tl.constexpr,
    has_bias: tl.constexpr, is_double: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """A program: all components of some rows and columns of one stack."""
    wide = tl.cdiv(columns, width)
    column = tl.program_id(0) % wide * width + tl.arange(0, width)[None, :]
    high = tl.cdiv(rows, height)
    stack = (tl.program_id(0) // wide // high).to(tl.int64)
    row = (tl.program_id(0) // wide % high * height + tl.arange(0, height)[:, None]).to(tl.int64)
    inside = (row < rows) & (column < columns)
    exact: tl.constexpr = tl.float64 if is_double else tl.float32
    components = ()
    for c in tl.static_range(num_in):
        at = stack * num_in + c // along * along  # components of the stacks and rows before
        here = (at * rows + row * along + c % along) * columns + column
        components = components + (tl.load(x + here, mask=inside, other=0).to(exact),)  # noqa: RUF005, as triton has it
    for k in tl.static_range(num_out):
        total = tl.zeros([height, width], dtype=exact)
        if has_bias:
            total += tl.load(bias + k * columns + column, mask=column < columns, other=0).to(exact)
        for c in tl.static_range(num_in):
            if matrix[k * num_in + c] != 0:
                total += components[c] * matrix[k * num_in + c]
        at = stack * num_out + k // across * across
        here = (at * rows + row * across + k % across) * columns + column
        tl.store(y + here, total.to(y.dtype.element_ty), mask=inside)
