"""Launches of ``sparse_linear``, in tiles that suit an H200."""

from __future__ import annotations

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2
from algebranets.ops.launch import overlap_options, overlaps, shared_sums
from algebranets.ops.sparse_linear.kernel import (
    num_fitting,
    sparse_linear_fill_fwd_kernel,
    sparse_linear_pick_fwd_kernel,
)

# These were fast on an H200 in half precision over M2(R), nine of ten tuples zero, at widths 4096 and 8192.
#: Few rows: warps of a program, each of which has one output. There are half as many where programs are few.
NUM_WARPS = 16
#: Rows that a program takes at most, sums that a thread has of them, and words of tuples that it has on their way.
MOST_ROWS, MOST_SUMS, MOST_WORDS = 2, 16, 8
#: More rows: rows, components of outputs, and sums that a program takes at most.
DOT_ROWS, DOT_OUTPUTS, DOT_SUMS = 64, 256, 8192


def picked(
    x: Tensor,
    weight: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    algebra: Algebra,
    longest: int,
    activation: str | None = None,
    frozen: bool = False,
) -> Tensor:
    """``activation(w . x + b)`` for few rows, (batch, features).

    ``weight`` is (starts, indices, values); no output has more tuples than ``longest``.
    """
    starts, indices, values = weight
    x, dim = x.contiguous(), algebra.dim
    batch, num_in, num_out = len(x), x.shape[1] // dim, len(starts) - 1
    y = x.new_empty(batch, dim * num_out)
    if not y.numel():
        return y
    num_words = dim // num_fitting(8 * x.element_size(), dim)
    unroll = max(1, min(next_power_of_2(ceil_div(longest, 32)), MOST_WORDS // num_words))
    rows = min(batch, MOST_ROWS, max(1, MOST_SUMS // dim))
    groups = ceil_div(batch, rows)
    num_warps = NUM_WARPS if ceil_div(num_out, NUM_WARPS) * groups > PROGRAMS // 4 else NUM_WARPS // 2
    terms, places = _table(algebra)
    pdl = overlaps(x)
    with torch.cuda.device_of(x):
        sparse_linear_pick_fwd_kernel[ceil_div(num_out, num_warps), groups](
            x, starts, indices, values, bias, y, batch, terms, places, dim, num_in, num_out, activation, rows,
            num_warps, unroll, longest <= 32 * unroll, pdl, pdl and frozen, x.is_cuda, num_warps=num_warps,
            **overlap_options(pdl),
        )  # fmt: skip
    return y


def filled(
    x: Tensor,
    weight: tuple[Tensor, Tensor],
    bias: Tensor | None,
    algebra: Algebra,
    activation: str | None = None,
    frozen: bool = False,
) -> Tensor:
    """``activation(w . x + b)`` for more rows, (batch, features); ``weight`` is (maps, values)."""
    maps, values = weight
    x, dim = x.contiguous(), algebra.dim
    batch, num_in, num_out = len(x), x.shape[1] // dim, len(maps)
    y = x.new_empty(batch, dim * num_out)
    if not y.numel():
        return y
    rows = min(DOT_ROWS, max(16, next_power_of_2(batch)))
    outputs = min(DOT_OUTPUTS, DOT_SUMS // rows)  # their components
    out = max(16, min(128, next_power_of_2(outputs // dim + 1) // 2))
    inp = 64 if dim <= 8 and dim * rows <= 256 else 32
    groups = ceil_div(num_out, out), ceil_div(batch, rows)
    # Adding up what programs have found takes the longer the more rows it is of.
    splits = max(1, min(8 if rows <= 32 else 4, num_in // inp, PROGRAMS // (groups[0] * groups[1])))
    sums = shared_sums(x, splits, groups[0] * groups[1] * splits, dim * out * rows)
    terms, places = _table(algebra)
    pdl = overlaps(x)
    with torch.cuda.device_of(x):
        sparse_linear_fill_fwd_kernel[groups[0] * splits, groups[1]](
            x, maps, values, bias, y, *sums, batch, terms, places, dim, num_in, num_out, activation, rows,
            out, inp, splits, pdl, pdl and frozen, x.is_cuda, num_warps=4, num_stages=3 if rows <= 32 else 2,
            **overlap_options(pdl),
        )  # fmt: skip
    return y


def _table(algebra: Algebra) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Its terms, one number after the other, and the places of its components in activations."""
    terms = tuple(number for term in algebra.terms for number in term)
    return terms, tuple(algebra.order.index(k) for k in range(algebra.dim))
