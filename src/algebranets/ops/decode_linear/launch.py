"""Launches of ``decode_linear``, one for each block of the algebra, in tiles that suit an H200."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, pairwise, product
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
#: On tensor cores: the output tuples of a program, and the most numbers of a product in a row (columns times rows).
DOT_OUT, DOT_WIDTH = 64, 64
#: The most weights that a program loads at once, if they are all that it needs. Otherwise it loads half as many at a
#: time.
MOST_LOADED = 32 << 10
#: The most programs that share a sum, and the most numbers that the last of them adds up.
MOST_SPLITS, MOST_ADDED = 8, 16 << 10
#: The sums of a thread on tensor cores, of its 255 registers, and the bytes of a multiprocessor's shared memory that a
#: program may use.
DOT_SUMS, SHARED_BYTES = 128, 220 << 10
#: Bytes that a thread loads at once.
VECTOR = 16


class Dots(NamedTuple):
    """The product of a block on tensor cores. A component of the weight meets several columns of the input at once.

    Components that meet different columns in the same way are added to one product, as in M2(C).

    Args:
        columns: The groups of columns, of equal size.
        places: For each component, its group of columns and its product, one after the other.
        sums: For each column of each product, ``row, coefficient`` of each row of rho(w) that it is part of.
        shares: The number of equal parts of the rows of rho(w), each with components of its own. The other arguments
            are those of the first part.
    """

    columns: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]
    sums: tuple[tuple[float, ...], ...]
    shares: int

    @property
    def width(self) -> int:
        """The columns of a group."""
        return len(self.columns[0])


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
    #: For an algebra that is stored in another basis, the changes of basis of inputs and outputs, row by row, or None.
    #: Then the block is the whole algebra, and if its weights are folded, ``fold`` is the size of their matrices.
    inputs: tuple[float, ...] | None = None
    outputs: tuple[float, ...] | None = None
    fold: int = 1

    @cached_property
    def dots(self) -> Dots:
        """How `decode_linear_dot_fwd_kernel` multiplies the components of the weight by the columns of its input."""
        shares = self._shares()
        found: list[list[list[tuple[float, ...]]]] = []  # for each component, the terms (row, coefficient) by column
        for c in range(self.dim // shares):
            rows: list[list[tuple[float, ...]]] = [
                [self.table[3 * t + 1 : 3 * t + 3] for t in range(first, last) if self.table[3 * t] == c]
                for first, last in pairwise(self.starts)
            ]
            if self.inputs is not None:
                rows = self._in_table_basis(rows)
            found.append([[(p, by) for p, row in enumerate(rows) for q, by in row if q == k] for k in range(self.size)])
        width = next_power_of_2(max(sum(map(bool, terms)) for terms in found))
        columns, sums, places = [], [], []
        for terms in found:
            met = tuple(q for q, here in enumerate(terms) if here)
            group = met + (0,) * (width - len(met))
            summed = tuple(tuple(chain(*terms[q])) for q in met) + ((),) * (width - len(met))
            columns += [group] * (group not in columns)
            sums += [summed] * (summed not in sums)
            places += [columns.index(group), sums.index(summed)]
        return Dots(tuple(columns), tuple(places), tuple(chain(*sums)), shares)

    def _shares(self) -> int:
        """Into how many equal parts, each with components of its own, the rows of rho(w) can be split.

        A part has the same columns and coefficients as the first one. For example, M2(C) has two parts.
        """
        if self.inputs is not None:
            return 1
        triples = [self.table[3 * t : 3 * t + 3] for t in range(len(self.table) // 3)]
        rows = [triples[first:last] for first, last in pairwise(self.starts)]
        for shares in range(min(self.dim, self.size), 1, -1):
            if self.dim % shares == 0 and self.size % shares == 0:
                high, deep = self.size // shares, self.dim // shares
                moved = [[(c + p // high * deep, q, by) for c, q, by in rows[p % high]] for p in range(self.size)]
                if [sorted(row) for row in moved] == [sorted(row) for row in rows]:
                    return shares
        return 1

    def _in_table_basis(self, rows: list[list[tuple[float, ...]]]) -> list[list[tuple[float, ...]]]:
        """The terms (column, coefficient) of the rows of a matrix, between changes of basis."""
        size = self.size
        assert self.inputs is not None
        assert self.outputs is not None
        dense = [[0.0] * size for _ in range(size)]
        for k, p in product(range(size), repeat=2):
            for q, by in rows[p]:
                for j in range(size):
                    dense[k][j] += self.outputs[k * size + p] * by * self.inputs[int(q) * size + j]
        return [[(j, by) for j, by in enumerate(row) if abs(by) > 1e-12] for row in dense]

    @property
    def multiplies(self) -> float:
        """The number of multiplies for each number of the weight and each row."""
        changes = sum(map(bool, self.inputs or ()))
        return (len(self.table) / 3 + changes) / self.dim


class Tile(NamedTuple):
    """The share of one program: ``rows`` rows, ``out`` output tuples and, at a time, ``inp`` input tuples.

    ``lanes`` is the number of a warp's lanes along the input, or 0 for tensor cores. The input is split among
    ``splits`` programs. A thread has at most ``most_registers`` registers, so that more programs fit, or any number.
    """

    rows: int
    out: int
    inp: int
    lanes: int
    num_warps: int
    num_stages: int = 1
    splits: int = 1
    most_registers: int | None = None


@cache
def plans(algebra: Algebra, num_in: int, num_out: int) -> tuple[Plan, ...]:
    """A plan for each block of the algebra. ``num_in`` and ``num_out`` are the numbers of tuples.

    An algebra that is stored in another basis has one plan.
    """
    if algebra.change is not None:
        return (_changed_plan(algebra, num_in, num_out),)
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


def _changed_plan(algebra: Algebra, num_in: int, num_out: int) -> Plan:
    """The plan of an algebra that is stored in another basis."""
    stored, change = algebra.stored, algebra.change
    assert change is not None
    place = {k: n for n, k in enumerate(stored.order)}
    rows = [[(i, place[j], by) for i, j, k, by in stored.terms if k == row] for row in stored.order]
    starts = tuple(sum(map(len, rows[:p])) for p in range(stored.dim + 1))
    table = tuple(number for row in rows for term in row for number in term)
    inputs, outputs = (tuple(c for row in matrix for c in row) for matrix in (change.inputs, change.outputs))
    fold = stored.blocks[0].size if stored.folded else 1
    return Plan(stored.dim, stored.dim, 1, table, starts, num_in, num_out, 0, inputs, outputs, fold)


def choose(plan: Plan, num_rows: int, itemsize: int, stacks: int = 1) -> Tile:
    """The tile for ``num_rows`` rows (batch and copy), with numbers of ``itemsize`` bytes."""
    changes_one = plan.inputs is not None and num_rows == 1  # faster on CUDA cores, also with 16 components
    if itemsize == 2 and num_rows * plan.multiplies >= DOT_FROM and not changes_one:
        return dot_tile(plan, num_rows, stacks)
    if plan.dim > 1 and num_rows == plan.num_copies:
        return row_tile(plan, itemsize)
    return fma_tile(plan, num_rows, itemsize)


def int8_tile(plan: Plan, num_rows: int, itemsize: int, stacks: int = 1) -> Tile:
    """The tile for weights of one byte a number, and rows with numbers of ``itemsize`` bytes.

    These sizes were the fastest of those tried for one row in bfloat16 on an H200: over M2R at widths 4096, 8192 and
    16384, and over R, C, H, M4R and M2C at width 8192.
    """
    dim, num_out = plan.dim, plan.num_out
    if itemsize == 2 and num_rows * plan.multiplies >= DOT_FROM and num_rows > plan.num_copies:
        return dot_tile(plan, num_rows, stacks, most_loaded=MOST_LOADED // 2)  # a byte takes a register of its own
    if dim > 1:
        fitting = (n for n in (4, 2) if n * dim * num_rows <= 8 and num_out >= 2 * n * PROGRAMS)
        threads = (next(fitting, 1), 1, 16, 4 if dim == 2 else 2)
    elif num_rows == 2 and num_out >= 8 * PROGRAMS:
        threads = (4, 1, 8 if num_out >= 16 * PROGRAMS else 16, 8)
    elif num_rows <= 2 and num_out >= 16 * PROGRAMS:
        threads = (4, 2, 32, 4)
    elif num_rows <= 2:
        threads = (2, 1, 16, 8)
    else:
        threads = (2, 1, 32, 4)
    tile = _within(plan, num_rows, itemsize, threads, parts=2 if plan.num_in % 4 == 0 and itemsize <= 4 else 1)
    return tile._replace(most_registers=128) if dim == 1 and threads[:2] == (4, 1) else tile


def row_tile(plan: Plan, itemsize: int) -> Tile:
    """The tile for one row and several components on CUDA cores, with all lanes of a warp along the input.

    These sizes were fast for C, H and M2(C) in half precision on an H200, at widths 1024 to 16384. Programs have one
    warp for large weights and four for small ones. A thread has eight loads in flight if there are many programs, and
    sixteen if there are few. A long input takes at least two rounds.

    Algebras that are stored in another basis need more registers. For these, the sizes were fast for C (x) C and for
    H (x) H and clifford(1,3), which have 16 components, at width 8192.
    """
    dim, num_rows = plan.dim, plan.num_copies
    if plan.inputs is not None and dim > 8:
        return _within(plan, num_rows, itemsize, (1, 1, 16, 4))
    num_warps = 1 if dim >= 4 and dim * plan.num_out >= 32 * PROGRAMS else 4
    if plan.inputs is not None and plan.fold == 1 and dim == 4 and num_warps == 1:
        return _within(plan, num_rows, itemsize, (1, 2, 32, 2))
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


def _within(
    plan: Plan, num_rows: int, itemsize: int, threads: tuple[int, int, int, int], rounds: int = 1, parts: int = 1
) -> Tile:
    """A tile for CUDA cores, with fewer warps and vectors if the input is too short for ``rounds`` rounds.

    ``threads`` are the outputs and the vectors of a thread, the lanes along the input, and the warps. A vector of
    weights has as many numbers as ``parts`` vectors of a row.
    """
    per_thread, unroll, lanes, num_warps = threads
    width = lanes * VECTOR // itemsize * parts
    while num_warps > 1 and num_warps // 2 * width >= plan.num_in:
        num_warps //= 2
    while unroll > 1 and rounds * unroll // 2 * num_warps * width >= plan.num_in:
        unroll //= 2
    rows = max(1, min(num_rows, MAX_SUMS // plan.size))
    return Tile(rows, per_thread * (32 // lanes), unroll * num_warps * width, lanes, num_warps)


def dot_tile(
    plan: Plan, num_rows: int, stacks: int = 1, inp: int = 0, splits: int = 0, most_loaded: int = MOST_LOADED
) -> Tile:
    """The tile for tensor cores, in half precision.

    If the programs can load all of their weights at once, they do so before the previous kernel has ended. Otherwise
    there is one program for each multiprocessor, with as many loads in flight as fit. ``inp`` and ``splits`` that are 0
    are chosen. The choices were fast over C, H, M2R, M4R and M2C, at widths 4096 to 16384 and with 2 to 32 rows, on an
    H200.
    """
    dots = plan.dots
    rows = min(max(next_power_of_2(num_rows), 8 // dots.width), max(1, DOT_WIDTH // dots.width))
    most_out = DOT_SUMS * 128 // (len(dots.sums) * rows)
    out = max(16, min(DOT_OUT, next_power_of_2(plan.num_out), next_power_of_2(most_out + 1) // 2))
    weights = plan.dim // dots.shares * out  # of one input
    num_tiles = ceil_div(plan.num_out, out) * ceil_div(num_rows, rows) * stacks * dots.shares
    most = max(1, min(MOST_SPLITS, MOST_ADDED // (plan.size // dots.shares * rows * out)))
    at_once = max(ceil_div(weights * plan.num_in, most_loaded), min(most, PROGRAMS // 4 // num_tiles))
    if at_once > most or at_once * num_tiles > PROGRAMS:
        splits = splits or max(1, min(most, PROGRAMS // 2 // num_tiles))
        inp = inp or max(16, next_power_of_2(most_loaded // 2 // weights + 1) // 2)
    splits = splits or at_once
    most_inp = max(16, next_power_of_2(ceil_div(plan.num_in, splits)))
    inp = min(inp or most_inp, most_inp)
    num_bytes = 2 * inp * (weights + rows * dots.width * len(dots.columns))
    return Tile(rows, out, inp, 0, 4, max(2, min(4, SHARED_BYTES // num_bytes - 1)), splits)


def decode_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
    frozen: bool = False,
    scale: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """``activation(w . x + b)`` for ``x`` (batch, features). If ``frozen``, weights are read before ``x`` is ready.

    int8 weights have a ``scale`` for each output tuple of each stack.
    """
    x, weight = x.contiguous(), weight.contiguous()
    scale, bias = (None if t is None else t.contiguous() for t in (scale, bias))
    if scale is not None and weight.data_ptr() % 4:  # the kernel reads words
        weight = weight.clone()
    batch, num_in = x.shape[0], x.shape[1] // algebra.dim
    num_out = weight.numel() // (stacks * algebra.dim * num_in)
    y = x.new_empty(batch, stacks * algebra.dim * num_out)
    if not y.numel():
        return y
    pdl = overlaps(x)
    for plan in plans(algebra, num_in, num_out):
        num_rows = batch * plan.num_copies
        chosen = tile or (choose if scale is None else int8_tile)(plan, num_rows, x.element_size(), stacks)
        shares = 1 if chosen.lanes else plan.dots.shares
        grid = ceil_div(plan.num_out, chosen.out) * chosen.splits, stacks * shares, ceil_div(num_rows, chosen.rows)
        numbers = (
            plan.dim, plan.size, plan.num_copies, plan.num_in, plan.num_out,
            x.shape[1], y.shape[1] // stacks, plan.offset * num_in, plan.offset * num_out, num_out, stacks, plan.fold,
        )  # fmt: skip
        with torch.cuda.device_of(x):
            if chosen.lanes:
                decode_linear_fwd_kernel[grid](
                    x, weight, scale, bias, y, num_rows, plan.table, plan.starts, *numbers, plan.inputs, plan.outputs,
                    activation, chosen.rows, chosen.out, chosen.inp, chosen.lanes, chosen.num_warps,
                    VECTOR // x.element_size(), pdl, pdl and frozen,
                    num_warps=chosen.num_warps, maxnreg=chosen.most_registers, **overlap_options(pdl),
                )  # fmt: skip
            else:
                room = plan.size // shares * chosen.rows * chosen.out
                decode_linear_dot_fwd_kernel[grid](
                    x, weight, scale, bias, y, *shared_sums(x, chosen.splits, prod(grid), room), num_rows, *plan.dots,
                    *numbers, activation, chosen.rows, chosen.out, chosen.inp, chosen.splits, pdl, pdl and frozen,
                    num_warps=chosen.num_warps, num_stages=chosen.num_stages, **overlap_options(pdl),
                )  # fmt: skip
    return y
