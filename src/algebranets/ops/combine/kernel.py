"""Kernels of ``combine`` and ``sum_rows``: every number is read once and every result is written once.

A grid is (stack, p, row, q, column), with component number p * Q + q at (p, q).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sum_rows_kernel(x, sums, rows, columns, height: tl.constexpr, width: tl.constexpr):
    """Each program sums every n-th tile of some columns, where n is the number of programs for these columns."""
    column = tl.program_id(1) * width + tl.arange(0, width)[None, :]
    total = tl.zeros([height, width], dtype=sums.dtype.element_ty)
    for start in range(tl.program_id(0) * height, rows, tl.num_programs(0) * height):
        row = (start + tl.arange(0, height)[:, None]).to(tl.int64)
        x_at = x + row * columns + column
        total += tl.load(x_at, mask=(row < rows) & (column < columns), other=0).to(total.dtype)
    sum_at = sums + tl.program_id(0) * columns + column
    tl.store(sum_at, tl.sum(total, 0)[None, :], mask=column < columns)


@triton.jit
def combine_fwd_kernel(
    x, y, bias, rows, columns,
    matrix: tl.constexpr, num_in: tl.constexpr, along: tl.constexpr, num_out: tl.constexpr, across: tl.constexpr,
    has_bias: tl.constexpr, is_double: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Each program computes all components of some rows and columns of one stack."""
    wide = tl.cdiv(columns, width)
    column = tl.program_id(0) % wide * width + tl.arange(0, width)[None, :]
    high = tl.cdiv(rows, height)
    stack = (tl.program_id(0) // wide // high).to(tl.int64)
    row = (tl.program_id(0) // wide % high * height + tl.arange(0, height)[:, None]).to(tl.int64)
    is_here = (row < rows) & (column < columns)
    exact: tl.constexpr = tl.float64 if is_double else tl.float32
    components = ()
    for c in tl.static_range(num_in):
        before = stack * num_in + c // along * along  # components of earlier stacks and of smaller p
        offset = (before * rows + row * along + c % along) * columns + column
        components = components + (tl.load(x + offset, mask=is_here, other=0).to(exact),)  # noqa: RUF005, for Triton
    for k in tl.static_range(num_out):
        total = tl.zeros([height, width], dtype=exact)
        if has_bias:
            total += tl.load(bias + k * columns + column, mask=column < columns, other=0).to(exact)
        for c in tl.static_range(num_in):
            if matrix[k * num_in + c] != 0:
                total += components[c] * matrix[k * num_in + c]
        before = stack * num_out + k // across * across
        offset = (before * rows + row * across + k % across) * columns + column
        tl.store(y + offset, total.to(y.dtype.element_ty), mask=is_here)
