# ruff: noqa: RUF005, Triton knows no (*tuple, one)
"""Decoding kernels: y = w . x for few rows. Compact weights are read once, and expanded where they are multiplied.

Work goes block by block of the algebra (`Plan`). Shapes: rows are batch and copy of the block; p, q are rows and
columns of rho(w), c components of the weight; o, i tuples out and in. Two versions of one sum over (c, q, i):

- `linear_fwd_kernel` multiplies on CUDA cores, each weight from a register into all its places of the block;
- `linear_dot_fwd_kernel` does so on tensor cores, rows padded to a tile.

Kernels of one stream may overlap on Hopper (programmatic dependent launch): each lets the next one start at once, and
waits for the one before it only where it needs what that wrote. Weights that no kernel writes are read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import cuda
from triton.runtime.interpreter import InterpretedFunction

from algebranets.algebra import Algebra
from algebranets.product.kernels.jit import ceil_div, next_power_of_2

#: Multiplies for each weight above which tensor cores are faster; on CUDA cores, sums that a program keeps at most.
DOT_FROM, MAX_SUMS = 8, 16
#: Two programs on each multiprocessor of an H200, or nearly: fewer do not ask for enough at once.
PROGRAMS = 256
#: Bytes that a thread loads at once.
VECTOR = 16


# What is launched -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The product of one block: what its kernel must know of the algebra, as numbers."""

    #: Components of the weight, rows of rho(w), copies: for a folded weight, rho(w) is one number of a larger matrix.
    dim: int
    size: int
    num_copies: int
    #: For each row p of rho(w) its terms (component, column, coefficient), in one tuple; ``starts[p]`` is where.
    table: tuple[int, ...]
    starts: tuple[int, ...]
    #: Tuples in and out, and where the block's channels begin in ``x`` and ``y``, in components.
    num_in: int
    num_out: int
    offset: int

    @property
    def multiplies(self) -> float:
        """For each weight and row."""
        return len(self.table) / 3 / self.dim


class Tile(NamedTuple):
    """What a program takes: ``rows``, ``out`` output tuples and, at a time, ``inp`` input tuples.

    ``lanes`` of a warp lie along the input (0: tensor cores).
    """

    rows: int
    out: int
    inp: int
    lanes: int
    num_warps: int
    num_stages: int = 1


@cache
def plans(algebra: Algebra, num_in: int, num_out: int) -> tuple[Plan, ...]:
    """One for each block of the algebra; ``num_in`` and ``num_out`` count its tuples."""
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


def choose(plan: Plan, num_rows: int, itemsize: int) -> Tile:
    """The tile for ``num_rows`` rows (batch and copy) of numbers of ``itemsize`` bytes."""
    if itemsize == 2 and num_rows * plan.multiplies > DOT_FROM:
        return dot_tile(plan, num_rows)
    return fma_tile(plan, num_rows, itemsize)


def fma_tile(
    plan: Plan, num_rows: int, itemsize: int, per_thread: int = 0, unroll: int = 0, lanes: int = 0, num_warps: int = 0
) -> Tile:
    """For CUDA cores: a thread loads ``unroll`` vectors of ``per_thread`` outputs and each component at a time.

    What is left to us is what was fastest for one row of half precision on an H200, widths 1024 to 16384: as many
    outputs a thread as leave enough programs, and about eight vectors on their way.
    """
    dim, enough = plan.dim, PROGRAMS if plan.dim == 1 else 2 * PROGRAMS
    lanes = lanes or (16 if dim >= 4 and plan.num_out < 4 * PROGRAMS else 8)
    most = min(4 if dim == 1 else 2, 8 // (dim * num_rows))
    fitting = (n for n in (4, 2) if n <= most and plan.num_out >= n * (32 // lanes) * enough)
    per_thread = per_thread or next(fitting, 1)
    has_many = plan.num_out >= 2 * PROGRAMS * per_thread * (32 // lanes)
    num_warps = num_warps or (4 if has_many and dim * num_rows >= 4 else 8)
    vectors = 2 if dim > 1 and per_thread == 1 and num_warps == 8 else 8
    unroll = unroll or (4 if dim == 1 and not has_many else max(1, vectors // (per_thread * dim)))
    width = lanes * VECTOR // itemsize
    while num_warps > 1 and num_warps // 2 * width >= plan.num_in:
        num_warps //= 2
    while unroll > 1 and unroll // 2 * num_warps * width >= plan.num_in:
        unroll //= 2
    rows = max(1, min(num_rows, MAX_SUMS // plan.size))
    return Tile(rows, per_thread * (32 // lanes), unroll * num_warps * width, lanes, num_warps)


def dot_tile(plan: Plan, num_rows: int, out: int = 0, inp: int = 0, num_warps: int = 4, num_stages: int = 0) -> Tile:
    """For tensor cores: ``inp`` counts the inputs of all components of the weight."""
    rows = min(max(16, next_power_of_2(num_rows)), 64)
    few = rows == 16
    out, inp, num_stages = out or (32 if few else 16), inp or (512 if few else 256), num_stages or (3 if few else 4)
    inp = max(16, min(inp // next_power_of_2(plan.dim), next_power_of_2(plan.num_in)))
    return Tile(rows, out, inp, 0, num_warps, num_stages)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
    frozen: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """``activation(w . x + b)`` for (batch, features); weights that are ``frozen`` are read ahead of ``x``."""
    x, weight = x.contiguous(), weight.contiguous()
    batch, num_in = x.shape[0], x.shape[1] // algebra.dim
    num_out = weight.numel() // (stacks * algebra.dim * num_in)
    y = x.new_empty(batch, stacks * algebra.dim * num_out)
    if not y.numel():
        return y
    pdl = overlaps(x)
    for plan in plans(algebra, num_in, num_out):
        num_rows = batch * plan.num_copies
        chosen = tile or choose(plan, num_rows, x.element_size())
        grid = ceil_div(plan.num_out, chosen.out), stacks, ceil_div(num_rows, chosen.rows)
        numbers = (
            num_rows, plan.table, plan.starts, plan.dim, plan.size, plan.num_copies, plan.num_in, plan.num_out,
            x.shape[1], y.shape[1] // stacks, plan.offset * num_in, plan.offset * num_out, stacks,
        )  # fmt: skip
        with torch.cuda.device_of(x):
            if chosen.lanes:
                linear_fwd_kernel[grid](
                    x, weight, bias, y, *numbers, activation, chosen.rows, chosen.out, chosen.inp, chosen.lanes,
                    chosen.num_warps, VECTOR // x.element_size(), pdl, pdl and frozen,
                    num_warps=chosen.num_warps, **options(pdl),
                )  # fmt: skip
            else:
                linear_dot_fwd_kernel[grid](
                    x, weight, bias, y, *numbers, activation, chosen.rows, chosen.out, chosen.inp, pdl, pdl and frozen,
                    num_warps=chosen.num_warps, num_stages=chosen.num_stages, **options(pdl),
                )  # fmt: skip
    return y


def step(
    mode: str,
    gates: int,
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    algebra: Algebra,
    frozen: bool = False,
) -> tuple[Tensor, ...]:
    """The next states of a recurrent cell, for (batch, features): see `product.cells`."""
    x, state = x.contiguous(), [s.contiguous() for s in state]
    (batch, x_features), h_features = x.shape, state[0].shape[1]
    num_in, num_hidden = x_features // algebra.dim, h_features // algebra.dim
    new = tuple(torch.empty_like(s) for s in state)
    if not batch:
        return new
    pdl = overlaps(x)
    for plan in plans(algebra, num_in, num_hidden):
        num_rows = batch * plan.num_copies
        tile = fma_tile(plan, num_rows, x.element_size(), per_thread=1, unroll=1)  # a thread has those of all gates
        rows = max(1, min(num_rows, MAX_SUMS // (gates * plan.size)))
        with torch.cuda.device_of(x):
            step_fwd_kernel[ceil_div(plan.num_out, tile.out), 1, ceil_div(num_rows, rows)](
                x, state[0], state[-1], *(w.contiguous() for w in weights), *biases, new[0], new[-1], num_rows,
                mode, gates, plan.table, plan.starts, plan.dim, plan.size, plan.num_copies, plan.num_in, plan.num_out,
                x_features, h_features, plan.offset * num_in, plan.offset * num_hidden, rows, tile.out,
                tile.inp, tile.lanes, tile.num_warps, VECTOR // x.element_size(), pdl, pdl and frozen,
                num_warps=tile.num_warps, **options(pdl),
            )  # fmt: skip
    return new


def overlaps(x: Tensor) -> bool:
    """Whether kernels where ``x`` is may start before those before them have ended."""
    return x.is_cuda and not isinstance(linear_fwd_kernel, InterpretedFunction) and _is_hopper(x.device)


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)


def options(pdl: bool) -> dict[str, Any]:
    """Options of a launch that only CUDA's compiler knows."""
    return {"launch_pdl": True} if pdl else {}


# CUDA cores -----------------------------------------------------------------------------------------------------------

# A tile of weights is (lane along out, warp, out per thread, input): a thread has whole vectors of several rows, so
# that what it multiplies them by is read once, and few sums are left for threads to exchange. The axes are in the order
# in which Triton 3.6 deals out lanes and warps. A tile of x is the same without ``out per thread``; that every lane
# along out reads it, not one, keeps the two layouts alike.


@triton.jit
def linear_fwd_kernel(
    x, weight, bias, y, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, stacks: tl.constexpr, activation: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr,
    vector: tl.constexpr, pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """A program: ``out`` output tuples of one stack, for ``rows`` rows."""
    begin(pdl, frozen)
    tile, stack, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * rows
    (total,) = product(
        x + x_offset, weight, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_in, num_out,
        x_features, 1, rows, out, inp, lanes, warps, vector, frozen,
    )  # fmt: skip
    row, to, is_here = places(tile, first, num_rows, size, num_copies, num_out, rows, out, lanes)
    to += stack * y_features + y_offset
    total = plus_bias(total, bias, to, is_here)
    tl.store(y + row.to(tl.int64) * (stacks * y_features) + to, activate(total, activation), mask=is_here)


@triton.jit
def begin(pdl: tl.constexpr, frozen: tl.constexpr):
    """Let the next kernel start; first wait for the one before, unless weights are to be read ahead of that."""
    if pdl:
        if not frozen:
            cuda.gdc_wait()
        cuda.gdc_launch_dependents()


@triton.jit
def places(
    tile, first, num_rows, size: tl.constexpr, num_copies: tl.constexpr, num_out: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """Where the sums of `product` belong: the row of the batch, the feature, and whether there is such a place."""
    across: tl.constexpr = 32 // lanes
    o = tile * out + tl.arange(0, out // across)[None, :, None] * across + tl.arange(0, across)[:, None, None]
    j = tl.arange(0, triton.next_power_of_2(rows * size))[None, None, :]
    row = first + j // size
    is_here = (o < num_out) & (j < rows * size) & (row < num_rows)
    return row // num_copies, (row % num_copies * size + j % size) * num_out + o, is_here


@triton.jit
def product(
    x, weight, tile, stack, first, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, stacks: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr,
    vector: tl.constexpr, wait: tl.constexpr,
):  # fmt: skip
    """The sums of each stack, of ``stacks`` from ``stack`` on: (lane along out, out per thread, row and p)."""
    across: tl.constexpr = 32 // lanes
    width: tl.constexpr = lanes * vector
    o = tl.arange(0, out // across)[None, None, :, None] * across + tl.arange(0, across)[:, None, None, None]
    i = tl.arange(0, inp // width)[None, :, None] * width + tl.arange(0, width)[None, None, :]
    i = i + tl.zeros([across, 1, 1], tl.int32)
    here = weight + (stack.to(tl.int64) * (dim * num_out) + tile * out) * num_in
    room = num_out - tile * out
    tiles = weights_at(here, o, i[:, :, None, :], 0, room, dim * stacks, num_in, num_out, out, inp)
    if wait:
        cuda.gdc_wait()
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    sums = ()
    for _ in tl.static_range(stacks * rows * size):
        sums = sums + (tl.zeros([across, warps, out // across, lanes], dtype),)
    for start in tl.range(inp, num_in, inp):
        # The next weights are on their way while these are multiplied.
        ahead = weights_at(here, o, i[:, :, None, :], start, room, dim * stacks, num_in, num_out, out, inp)
        sums = add(
            sums, tiles, x, i, start - inp, first, num_rows, table, starts, dim, size, num_copies, num_in, x_features,
            stacks, rows, out, inp, lanes, warps, vector, False,
        )  # fmt: skip
        tiles = ahead
    last: tl.constexpr = (num_in - 1) // inp * inp
    sums = add(
        sums, tiles, x, i, last, first, num_rows, table, starts, dim, size, num_copies, num_in, x_features,
        stacks, rows, out, inp, lanes, warps, vector, num_in % inp != 0,
    )  # fmt: skip
    totals = ()
    for s in tl.static_range(stacks):
        totals = totals + (over_threads(sums[s * rows * size : (s + 1) * rows * size]),)
    return totals


@triton.jit
def weights_at(
    here, o, i, start, room, count: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    out: tl.constexpr, inp: tl.constexpr,
):  # fmt: skip
    """The tiles of ``count`` components, from input ``start`` on; of the outputs, ``room`` are left."""
    tiles = ()
    for c in tl.static_range(count):
        there = here + tl.full([], c * num_out, tl.int64) * num_in + start + (o * num_in + i)
        if num_in % inp == 0 and num_out % out == 0:
            w = tl.load(there, eviction_policy="evict_first")
        else:
            w = tl.load(there, mask=(o < room) & (start + i < num_in), other=0, eviction_policy="evict_first")
        tiles = tiles + (w,)
    return tiles


@triton.jit
def add(
    sums, tiles, x, i, start, first, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, x_features: tl.constexpr, stacks: tl.constexpr, rows: tl.constexpr, out: tl.constexpr,
    inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr, vector: tl.constexpr, is_cut: tl.constexpr,
):  # fmt: skip
    """``sums`` and the products of these tiles; a thread sums its vectors at once, so that it keeps few numbers."""
    xs = ()
    for r in tl.static_range(rows):
        row = tl.minimum(first + r, num_rows - 1)
        here = x + (row // num_copies).to(tl.int64) * x_features + row % num_copies * (size * num_in) + start
        for q in tl.static_range(size):
            if is_cut:
                xs = xs + (tl.load(here + q * num_in + i, mask=start + i < num_in, other=0),)
            else:
                xs = xs + (tl.load(here + q * num_in + i),)
    across: tl.constexpr = 32 // lanes
    unroll: tl.constexpr = inp // (warps * lanes * vector)
    new = ()
    for s in tl.static_range(stacks):
        for r in tl.static_range(rows):
            for p in tl.static_range(size):
                total = sums[(s * rows + r) * size + p]
                for t in tl.static_range(at(starts, p), at(starts, p + 1)):
                    w = tiles[s * dim + at(table, 3 * t)].to(total.dtype)
                    xq = xs[r * size + at(table, 3 * t + 1)].to(total.dtype)
                    value = at(table, 3 * t + 2) * xq[:, :, None, :] * w
                    value = value.reshape(across, unroll, warps, out // across, lanes, vector)
                    total += tl.sum(tl.sum(value, 5), 1)
                new = new + (total,)
    return new


@triton.jit
def over_threads(sums):
    """Each of ``sums`` over warps and lanes, on a new last axis: joined in pairs, so that threads meet once."""
    count: tl.constexpr = len(sums)
    levels: tl.constexpr = ceil_log2(count)
    for _ in tl.static_range((1 << levels) - count):
        sums = sums + (sums[0],)
    for _ in tl.static_range(levels):
        pairs = ()
        for j in tl.static_range(len(sums) // 2):
            pairs = pairs + (tl.join(sums[j], sums[j + len(sums) // 2]),)
        sums = pairs
    total = tl.sum(tl.sum(sums[0], 3), 1)
    return total.reshape(total.shape[0], total.shape[1], 1 << levels)


@triton.constexpr_function
def at(numbers, place):
    """``numbers[place]``, known when the kernel is compiled."""
    return numbers[place]


@triton.constexpr_function
def ceil_log2(count):
    """How often ``count`` things must be halved."""
    return (count - 1).bit_length()


@triton.jit
def plus_bias(total, bias, at, is_here):
    """With the bias, where there is one."""
    if bias is not None:
        total += tl.load(bias + at, mask=is_here, other=0).to(total.dtype)
    return total


@triton.jit
def activate(x, activation: tl.constexpr):
    """A layer's activation, in the precision of its sums."""
    if activation == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif activation == "silu":
        x = x * tl.sigmoid(x)
    elif activation == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif activation == "sigmoid":
        x = tl.sigmoid(x)
    elif activation == "tanh":
        x = tanh(x)
    return x


@triton.jit
def tanh(x):
    """By the exponential, which every backend has; no overflow: it ends in 1 or -1."""
    return 1 - 2 / (tl.exp(2 * x) + 1)


# Recurrent cells ------------------------------------------------------------------------------------------------------


@triton.jit
def step_fwd_kernel(
    x, h, c, w_ih, w_hh, b_ih, b_hh, new_h, new_c, num_rows,
    mode: tl.constexpr, gates: tl.constexpr, table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr,
    size: tl.constexpr, num_copies: tl.constexpr, num_in: tl.constexpr, num_hidden: tl.constexpr,
    x_features: tl.constexpr, h_features: tl.constexpr, x_offset: tl.constexpr, h_offset: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr,
    vector: tl.constexpr, pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """A program: ``out`` hidden tuples for ``rows`` rows, all gates of both products and the cell's equations."""
    begin(pdl, frozen)
    tile, stack, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * rows
    from_x = product(
        x + x_offset, w_ih, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_in, num_hidden,
        x_features, gates, rows, out, inp, lanes, warps, vector, frozen,
    )  # fmt: skip
    from_h = product(
        h + h_offset, w_hh, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_hidden, num_hidden,
        h_features, gates, rows, out, inp, lanes, warps, vector, False,
    )  # fmt: skip
    row, feature, is_here = places(tile, first, num_rows, size, num_copies, num_hidden, rows, out, lanes)
    feature += h_offset
    gx = ()
    gh = ()
    for g in tl.static_range(gates):
        gx = gx + (plus_bias(from_x[g], b_ih, g * h_features + feature, is_here),)
        gh = gh + (plus_bias(from_h[g], b_hh, g * h_features + feature, is_here),)
    to = row.to(tl.int64) * h_features + feature
    if mode == "GRU":
        old = tl.load(h + to, mask=is_here, other=0).to(gx[0].dtype)
        z = tl.sigmoid(gx[1] + gh[1])
        n = tanh(gx[2] + tl.sigmoid(gx[0] + gh[0]) * gh[2])
        new = (1 - z) * n + z * old
    elif mode == "LSTM":
        old = tl.load(c + to, mask=is_here, other=0).to(gx[0].dtype)
        cell = tl.sigmoid(gx[1] + gh[1]) * old + tl.sigmoid(gx[0] + gh[0]) * tanh(gx[2] + gh[2])
        tl.store(new_c + to, cell, mask=is_here)
        new = tl.sigmoid(gx[3] + gh[3]) * tanh(cell)
    else:
        new = activate(gx[0] + gh[0], "tanh" if mode == "RNN_TANH" else "relu")
    tl.store(new_h + to, new, mask=is_here)


# Tensor cores ---------------------------------------------------------------------------------------------------------


@triton.jit
def linear_dot_fwd_kernel(
    x, weight, bias, y, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, stacks: tl.constexpr, activation: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """The same, with a dot of (row, input) and (input, output) for each term of the table."""
    begin(pdl, frozen)
    stack = tl.program_id(1)
    row = tl.program_id(2) * rows + tl.arange(0, rows)[:, None]
    o = tl.program_id(0) * out + tl.arange(0, out)
    i = tl.arange(0, inp)
    batch, copy, is_row = (row // num_copies).to(tl.int64), row % num_copies, row < num_rows
    here = weight + stack.to(tl.int64) * (dim * num_out * num_in)
    cells = o.to(tl.int64)[None, :] * num_in + i[:, None]
    x += x_offset + batch * x_features + copy * (size * num_in) + i[None, :]
    if frozen:
        for c in tl.static_range(dim):
            read_ahead(here + tl.full([], c * num_out, tl.int64) * num_in, o, num_in, num_out)
        cuda.gdc_wait()
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    sums = ()
    for _ in tl.static_range(size):
        sums = sums + (tl.zeros([rows, out], dtype),)
    for start in tl.range(0, num_in, inp):
        xs = ()
        for q in tl.static_range(size):
            is_here = is_row & (start + i[None, :] < num_in)
            xs = xs + (tl.load(x + q * num_in + start, mask=is_here, other=0),)
        tiles = ()
        for c in tl.static_range(dim):
            component = here + tl.full([], c * num_out, tl.int64) * num_in + start
            is_here = (o[None, :] < num_out) & (start + i[:, None] < num_in)
            tiles = tiles + (tl.load(component + cells, mask=is_here, other=0, eviction_policy="evict_first"),)
        new = ()
        for p in tl.static_range(size):
            total = sums[p]
            for t in tl.static_range(at(starts, p), at(starts, p + 1)):
                w, xq, by = tiles[at(table, 3 * t)], xs[at(table, 3 * t + 1)], at(table, 3 * t + 2)
                if by == 1:
                    total = tl.dot(xq, w, total, input_precision="ieee", out_dtype=dtype)
                else:
                    total += by * tl.dot(xq, w, input_precision="ieee", out_dtype=dtype)
            new = new + (total,)
        sums = new
    is_here = is_row & (o[None, :] < num_out)
    for p in tl.static_range(size):
        to = stack * y_features + y_offset + (copy * size + p) * num_out + o[None, :]
        total = plus_bias(sums[p], bias, to, is_here)
        tl.store(y + batch * (stacks * y_features) + to, activate(total, activation), mask=is_here)


@triton.jit
def read_ahead(weight, o, num_in: tl.constexpr, num_out: tl.constexpr):
    """Ask for rows ``o`` of a component to be brought to the L2 cache, a line of 128 bytes at a time."""
    line: tl.constexpr = 1024 // weight.dtype.element_ty.primitive_bitwidth
    row = weight + tl.minimum(o, num_out - 1).to(tl.int64)[:, None] * num_in
    for start in tl.range(0, num_in, 32 * line):
        i = tl.minimum(start + tl.arange(0, 32) * line, num_in - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [(row + i[None, :]).to(tl.int64)], tl.int32, False, 1
        )
