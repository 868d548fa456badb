"""Decoding: y = w . x for few rows, launched block by block of the algebra, in tiles that suit an H200.

The kernels are in `decode_kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from algebranets.algebra import Algebra
from algebranets.product.kernels.jit import ceil_div, next_power_of_2
from algebranets.product.kernels.jit.decode_kernels import linear_dot_fwd_kernel, linear_fwd_kernel, step_fwd_kernel

#: Multiplies for each weight above which tensor cores are faster; on CUDA cores, sums that a program keeps at most.
DOT_FROM, MAX_SUMS = 8, 16
#: Two programs on each multiprocessor of an H200, or nearly: fewer do not ask for enough at once.
PROGRAMS = 256
#: Bytes that a thread loads at once.
VECTOR = 16


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
