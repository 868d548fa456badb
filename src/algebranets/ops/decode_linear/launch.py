"""Launches of ``decode_linear``, one for each block of the algebra, in tiles that suit an H200."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise, zip_longest
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.decode_linear.kernel import decode_linear_dot_fwd_kernel, decode_linear_fwd_kernel
from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2
from algebranets.ops.launch import overlap_options, overlaps, shared_sums

#: Tensor cores are faster from this many multiplies for each number of the weight. On CUDA cores, a program keeps at
#: most this many sums for an output tuple.
DOT_FROM, MAX_SUMS = 8, 16
#: Tiles for tensor cores by the rows of a dot: the outputs of a program, the numbers that it loads at a time, and the
#: most programs that share a sum.
DOT_TILES = {16: (32, 18 << 10, 8), 64: (16, 12 << 10, 4), 128: (32, 18 << 10, 4)}
#: The numbers in flight for a program.
NUM_LOADED = 54 << 10
#: Bytes that a thread loads at once.
VECTOR = 16


@dataclass(frozen=True)
class Plan:
    """The product of one block of the algebra, as numbers for its kernel."""

    #: The components of the weight, the rows of rho(w) and the copies of the block. A folded weight is a plain matrix
    #: with one component, and its rho(w) is 1 x 1.
    dim: int
    size: int
    num_copies: int
    #: The terms (component, column, coefficient) of all rows of rho(w), one after the other. The terms of row p begin
    #: at ``starts[p]``.
    table: tuple[int, ...]
    starts: tuple[int, ...]
    #: The input and output tuples, and the offset of the block in ``x`` and ``y``, in components.
    num_in: int
    num_out: int
    offset: int

    @cached_property
    def by_component(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The table and its starts, ordered by component: the (column, coefficient) of a component in every row p.

        The coefficient is 0 if the component is not in the row. A component that is in a row twice is listed twice.
        """
        found: list[tuple[tuple[int, ...], ...]] = []
        starts = [0]
        for c in range(self.dim):
            rows = [
                [self.table[3 * t + 1 : 3 * t + 3] for t in range(first, last) if self.table[3 * t] == c]
                for first, last in pairwise(self.starts)
            ]
            found += zip_longest(*rows, fillvalue=(0, 0))
            starts.append(len(found))
        return tuple(number for rows in found for term in rows for number in term), tuple(starts)

    @property
    def multiplies(self) -> float:
        """The number of multiplies for each number of the weight and each row."""
        return len(self.table) / 3 / self.dim


class Tile(NamedTuple):
    """The share of one program: ``rows`` rows, ``out`` output tuples and, at a time, ``inp`` input tuples.

    ``lanes`` is the number of a warp's lanes along the input, or 0 for tensor cores. The input is split among
    ``splits`` programs.
    """

    rows: int
    out: int
    inp: int
    lanes: int
    num_warps: int
    num_stages: int = 1
    splits: int = 1


@cache
def plans(algebra: Algebra, num_in: int, num_out: int) -> tuple[Plan, ...]:
    """A plan for each block of the algebra. ``num_in`` and ``num_out`` are the numbers of tuples."""
    if algebra.folded:
        block = algebra.blocks[0]
        return (Plan(1, 1, block.num_copies, (0, 0, 1), (0, 1), block.size * num_in, block.size * num_out, 0),)
    found, offset = [], 0
    for block in algebra.blocks:
        rows = [[(c, q, by) for q, entry in enumerate(row) for c, by in entry] for row in block.entries]
        starts = tuple(sum(map(len, rows[:p])) for p in range(block.size + 1))
        table = tuple(number for row in rows for term in row for number in term)
        found.append(Plan(algebra.dim, block.size, block.num_copies, table, starts, num_in, num_out, offset))
        offset += block.dim
    return tuple(found)


def choose(plan: Plan, num_rows: int, itemsize: int, stacks: int = 1) -> Tile:
    """The tile for ``num_rows`` rows (batch and copy), with numbers of ``itemsize`` bytes."""
    if itemsize == 2 and num_rows * plan.multiplies >= DOT_FROM:
        return dot_tile(plan, num_rows, stacks)
    if plan.dim > 1 and num_rows == plan.num_copies:
        return row_tile(plan, itemsize)
    return fma_tile(plan, num_rows, itemsize)


def row_tile(plan: Plan, itemsize: int) -> Tile:
    """The tile for one row and several components on CUDA cores, with all lanes of a warp along the input.

    These sizes were fast for C, H and M2(C) in half precision on an H200, at widths 1024 to 16384. Programs have one
    warp for large weights and four for small ones. A thread has eight loads in flight if there are many programs, and
    sixteen if there are few. A long input takes at least two rounds.
    """
    dim, num_rows = plan.dim, plan.num_copies
    num_warps = 1 if dim >= 4 and dim * plan.num_out >= 32 * PROGRAMS else 4
    per_thread = 2 if dim * num_rows <= 4 and plan.num_out >= (16 if num_warps == 1 else 4) * PROGRAMS else 1
    vectors = 8 if num_warps == 1 and plan.num_out >= 8 * PROGRAMS * per_thread else 16
    unroll = max(1, vectors // (per_thread * next_power_of_2(dim)))
    return _within(plan, num_rows, itemsize, (per_thread, unroll, 32, num_warps), rounds=2)


def fma_tile(plan: Plan, num_rows: int, itemsize: int, per_thread: int = 0, unroll: int = 0) -> Tile:
    """The tile for CUDA cores. A thread loads ``unroll`` vectors at once for each of its outputs and components.

    The defaults (for arguments that are 0) were fast in half precision on an H200, at widths 1024 to 16384. With
    them, a thread has as many outputs as possible without leaving too few programs, and about eight loads in flight.
    """
    dim, enough = plan.dim, PROGRAMS if plan.dim == 1 else 2 * PROGRAMS
    lanes = 16 if dim >= 4 and plan.num_out < 4 * PROGRAMS else 8
    most = min(4 if dim == 1 else 2, 8 // (dim * num_rows))
    fitting = (n for n in (4, 2) if n <= most and plan.num_out >= n * (32 // lanes) * enough)
    per_thread = per_thread or next(fitting, 1)
    has_many = plan.num_out >= 2 * PROGRAMS * per_thread * (32 // lanes)
    num_warps = 4 if has_many and dim * num_rows >= 4 else 8
    vectors = 2 if dim > 1 and per_thread == 1 and num_warps == 8 else 8
    unroll = unroll or (4 if dim == 1 and not has_many else max(1, vectors // (per_thread * dim)))
    return _within(plan, num_rows, itemsize, (per_thread, unroll, lanes, num_warps))


def _within(plan: Plan, num_rows: int, itemsize: int, threads: tuple[int, int, int, int], rounds: int = 1) -> Tile:
    """A tile for CUDA cores, with fewer warps and vectors if the input is too short for ``rounds`` rounds.

    ``threads`` are the outputs and the vectors of a thread, the lanes along the input, and the warps.
    """
    per_thread, unroll, lanes, num_warps = threads
    width = lanes * VECTOR // itemsize
    while num_warps > 1 and num_warps // 2 * width >= plan.num_in:
        num_warps //= 2
    while unroll > 1 and rounds * unroll // 2 * num_warps * width >= plan.num_in:
        unroll //= 2
    rows = max(1, min(num_rows, MAX_SUMS // plan.size))
    return Tile(rows, per_thread * (32 // lanes), unroll * num_warps * width, lanes, num_warps)


def dot_tile(
    plan: Plan,
    num_rows: int,
    stacks: int = 1,
    out: int = 0,
    inp: int = 0,
    splits: int = 0,
    num_warps: int = 4,
    num_stages: int = 0,
) -> Tile:
    """The tile for tensor cores. A program loads ``inp`` inputs at once, of its rows and of all weight components.

    The defaults (for arguments that are 0) leave room for the loads of two programs on a multiprocessor of an H200, of
    this kernel or the next. The input is split if there would be too few programs otherwise.
    """
    height = next((h for h in DOT_TILES if num_rows * plan.size <= h), max(DOT_TILES))
    rows = max(1, height // plan.size)
    most_out, most_loaded, most_splits = DOT_TILES[height]
    out = out or (16 if height * plan.dim >= 1024 else most_out)
    numbers = height + plan.dim * out
    chunk = next_power_of_2(most_loaded // numbers + 1) // 2
    num_tiles = ceil_div(plan.num_out, out) * ceil_div(num_rows, rows) * stacks
    # Adding up parts takes longer if they have more rows, so each program must have enough to multiply.
    least = inp or (chunk if height == 16 else max(256, 1024 // plan.dim))
    splits = splits or max(1, min(most_splits, plan.num_in // least, PROGRAMS // num_tiles))
    if splits * num_tiles <= PROGRAMS // 2:  # each program has a multiprocessor to itself
        chunk *= 2
    inp = max(16, min(inp or chunk, next_power_of_2(ceil_div(plan.num_in, splits))))
    num_stages = num_stages or max(2, min(4, NUM_LOADED // (inp * numbers) - height // 64))
    return Tile(rows, out, inp, 0, num_warps, num_stages, splits)


def decode_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
    frozen: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """``activation(w . x + b)`` for ``x`` (batch, features). If ``frozen``, weights are read before ``x`` is ready."""
    x, weight = x.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    batch, num_in = x.shape[0], x.shape[1] // algebra.dim
    num_out = weight.numel() // (stacks * algebra.dim * num_in)
    y = x.new_empty(batch, stacks * algebra.dim * num_out)
    if not y.numel():
        return y
    pdl = overlaps(x)
    for plan in plans(algebra, num_in, num_out):
        num_rows = batch * plan.num_copies
        chosen = tile or choose(plan, num_rows, x.element_size(), stacks)
        grid = ceil_div(plan.num_out, chosen.out) * chosen.splits, stacks, ceil_div(num_rows, chosen.rows)
        table = (plan.table, plan.starts) if chosen.lanes else plan.by_component
        numbers = (
            num_rows, *table, plan.dim, plan.size, plan.num_copies, plan.num_in, plan.num_out,
            x.shape[1], y.shape[1] // stacks, plan.offset * num_in, plan.offset * num_out, stacks,
        )  # fmt: skip
        room = next_power_of_2(chosen.rows * plan.size) * chosen.out
        with torch.cuda.device_of(x):
            if chosen.lanes:
                decode_linear_fwd_kernel[grid](
                    x, weight, bias, y, *numbers, activation, chosen.rows, chosen.out, chosen.inp, chosen.lanes,
                    chosen.num_warps, VECTOR // x.element_size(), pdl, pdl and frozen,
                    num_warps=chosen.num_warps, **overlap_options(pdl),
                )  # fmt: skip
            else:
                decode_linear_dot_fwd_kernel[grid](
                    x, weight, bias, y, *shared_sums(x, chosen.splits, prod(grid), room), *numbers, activation,
                    chosen.rows, chosen.out, chosen.inp, chosen.splits, pdl, pdl and frozen,
                    num_warps=chosen.num_warps, num_stages=chosen.num_stages, **overlap_options(pdl),
                )  # fmt: skip
    return y
