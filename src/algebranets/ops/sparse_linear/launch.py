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

# These were fast on an H200 in half precision over M2(R), with nine of ten tuples zero, at widths 4096 and 8192.
#: For few rows: the warps of a program, each with one output. If there are few programs, they have half as many warps.
NUM_WARPS = 16
#: For few rows: the most rows of a program, sums of a thread, and words of tuples that a thread has in flight.
MOST_ROWS, MOST_SUMS, MOST_WORDS = 2, 16, 8
#: For more rows: the most rows, components of outputs, and sums of a program.
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

    ``weight`` is (starts, indices, values). No output has more than ``longest`` tuples.
    """
    starts, indices, values = (t.contiguous() for t in weight)
    x, dim = x.contiguous(), algebra.dim
    bias = None if bias is None else bias.contiguous()
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
    """``activation(w . x + b)`` for more rows, (batch, features). ``weight`` is (maps, values)."""
    maps, values = (t.contiguous() for t in weight)
    x, dim = x.contiguous(), algebra.dim
    bias = None if bias is None else bias.contiguous()
    batch, num_in, num_out = len(x), x.shape[1] // dim, len(maps)
    y = x.new_empty(batch, dim * num_out)
    if not y.numel():
        return y
    rows = min(DOT_ROWS, max(16, next_power_of_2(batch)))
    outputs = min(DOT_OUTPUTS, DOT_SUMS // rows)  # components of outputs
    out = max(16, min(128, next_power_of_2(outputs // dim + 1) // 2))
    inp = 64 if dim <= 8 and dim * rows <= 256 else 32
    groups = ceil_div(num_out, out), ceil_div(batch, rows)
    # Adding up the results of programs takes longer if they have more rows.
    splits = max(1, min(8 if rows <= 32 else 4, num_in // inp, PROGRAMS // (groups[0] * groups[1])))
    sums = shared_sums(x, splits, groups[0] * groups[1] * splits, dim * out * rows)
    terms, places = _table(algebra)
    pdl = overlaps(x)
    with torch.cuda.device_of(x):
        sparse_linear_fill_fwd_kernel[groups[0] * splits, groups[1]](
            x, maps, values, bias, y, *sums, batch, terms, places, dim, num_in, num_out, activation, rows,
            out, inp, splits, pdl, pdl and frozen, x.is_cuda, num_warps=4, num_stages=2,
            **overlap_options(pdl),
        )  # fmt: skip
    return y


def _table(algebra: Algebra) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The terms of the algebra as a flat tuple, and the place of each component in activations."""
    terms = tuple(number for term in algebra.terms for number in term)
    return terms, tuple(algebra.order.index(k) for k in range(algebra.dim))
