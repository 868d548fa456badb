"""Depthwise convolution of tuples: activations read and written once, components mixed in registers.

A thread has a run of outputs side by side and a few channels of each, so that what a row of the image holds is loaded
once for all taps in it; a program has a patch of such runs, one below the other, so that it reads rows again from L1.
Tables and taps are constants, and written out in the code; as triton takes tuples of flat tuples only,

- a table holds, for each component of the result, ``left, right, coefficient`` of each of its terms;
- taps hold, for each output of a run, ``tap, source`` of each tap that it meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from algebranets.product.kernels.jit import ceil_div, next_power_of_2

Flat = tuple[tuple[int, ...], ...]

#: Programs that sum gradients of a weight: enough to fill a GPU, and no more, for what each has summed is summed in
#: turn.
PROGRAMS = 528
#: Numbers that a thread sums for outputs, and at most for weights, where it sums to the end: of 255 registers.
SUMS, MOST_SUMS = 32, 96
#: Components up to which a thread has many outputs at once; with more, the code would take long to compile.
FEW = 5


class Tile(NamedTuple):
    """The channels of a program and of a thread, a thread's outputs side by side, a program's rows, and its warps."""

    width: int
    vector: int
    run: int
    patch: int
    num_warps: int

    @property
    def places(self) -> int:
        """Runs of a program."""
        return self.num_warps * 32 * self.vector // self.width


def correlate(
    x: Float[Tensor, "batch feat high wide"],
    w: Float[Tensor, "down along comp chan"],
    y: Float[Tensor, "batch feat outhigh outwide"],
    table: Flat,
    adjoint: bool,
    slides: Sequence[tuple[int, int, int]],
    tile: Tile | None = None,
) -> None:
    """Writes the convolution of ``x`` by ``w``, or its adjoint, into ``y``; images are read as they lie in memory.

    ``slides`` are the stride, padding and dilation of each axis.
    """
    dim, channels = w.shape[2:]
    tile = tile or tile_of_images(x, dim, y.shape[3], slides[1][0] if adjoint else 1)
    down, along = (
        (1, padding, -dilation, stride) if adjoint else (stride, -padding, dilation, 1)
        for stride, padding, dilation in slides
    )
    run = ceil_div(tile.run, along[3]) * along[3]  # so that each run meets taps as the first does
    sources, column_taps = taps(run, w.shape[1], *along)
    rows, runs = y.shape[2], ceil_div(y.shape[3], run)
    patch = _even(rows, tile.patch)
    places = len(x) * ceil_div(rows, patch) * patch * runs
    if not places:
        return
    grid = (ceil_div(places, tile.places) * ceil_div(channels, tile.width),)
    with torch.cuda.device_of(x):
        depthwise_kernel[grid](
            x, *_strides(x, channels), w.contiguous(), y, *_strides(y, channels),
            places, runs, patch, ceil_div(rows, patch), *x.shape[2:], *y.shape[2:],
            *down, along[0] * run // along[3], channels, table, sources, column_taps, *w.shape[:2],
            x.dtype == torch.float64, tile.places, tile.width, num_warps=tile.num_warps,
        )  # fmt: skip


def sums(
    dy: Float[Tensor, "batch feat outhigh outwide"],
    x: Float[Tensor, "batch feat high wide"],
    dw: Float[Tensor, "down along comp chan"],
    table: Flat,
    slides: Sequence[tuple[int, int, int]],
    tile: Tile | None = None,
) -> None:
    """Writes into ``dw``, for each tap, the products of ``dy`` and what the tap meets of ``x``, over all places."""
    num_rows, num_columns, dim, channels = dw.shape
    tile = tile or tile_of_sums(x, dim, num_rows, num_columns, slides[1][0])
    (row_step, row_shift, row_pace), (step, shift, pace) = slides
    sources, column_taps = taps(tile.run, num_columns, step, -shift, pace, 1)
    rows, runs = dy.shape[2], ceil_div(dy.shape[3], tile.run)
    patch = _even(rows, tile.patch)
    places = len(x) * ceil_div(rows, patch) * patch * runs
    group = rows_of_taps(dim, num_rows, num_columns)
    across = ceil_div(channels, tile.width)
    parts = min(ceil_div(places, tile.places), ceil_div(PROGRAMS, across * (num_rows // group)))
    partial = dw.new_empty(parts, *dw.shape)
    if places:
        with torch.cuda.device_of(x):
            depthwise_sums_kernel[parts, across, num_rows // group](
                dy, *_strides(dy, channels), x, *_strides(x, channels), partial,
                places, runs, patch, ceil_div(rows, patch), *dy.shape[2:], *x.shape[2:],
                row_step, row_shift, row_pace, step * tile.run,
                channels, table, sources, column_taps, num_rows, num_columns, group,
                tile.places, tile.width, num_warps=tile.num_warps,
            )  # fmt: skip
    torch.sum(partial, 0, out=dw)


# Of M2(R)'s layers in MobileNet-v1 on an H200, tiles of one row and two warps were the fastest, or nearly.


def tile_of_images(x: Tensor, dim: int, columns: int, every: int) -> Tile:
    """A thread has about `SUMS`: four outputs of two channels over an algebra of four components.

    It has twice as many where outputs share sources, ``every`` so many of them, or where channels are so few that
    threads side by side read from different places anyway.
    """
    if x.stride(1) != 1:  # channels are far apart: lanes lie along rows
        return Tile(1, 1, 2, 1, 4)
    run = 4 if dim <= FEW and columns % 4 == 0 else 2
    vector = min(16 // x.itemsize, _power_of_2(SUMS // (run * dim)))
    width = _width(x.shape[1] // dim)
    if run == 4 and columns % 8 == 0 and (every == 2 or width <= 8):
        run = 8
    return Tile(width, vector, run, 1, 2)


def tile_of_sums(x: Tensor, dim: int, num_rows: int, num_columns: int, step: int) -> Tile:
    """A thread sums for each tap, as many channels as it can; outputs a ``step`` of 1 apart share most sources."""
    if x.stride(1) != 1:
        return Tile(1, 1, 2, 1, 4)
    sums = rows_of_taps(dim, num_rows, num_columns) * num_columns * dim
    vector = min(16 // x.itemsize, _power_of_2(MOST_SUMS // sums))
    run = 1 if dim > FEW else 8 if step == 1 else 4
    return Tile(_width(x.shape[1] // dim), vector, run, 1, 2)


def rows_of_taps(dim: int, num_rows: int, num_columns: int) -> int:
    """Rows of taps that a program sums for: all, unless a thread could not hold their sums."""
    return num_rows if num_rows * num_columns * dim <= MOST_SUMS else 1


def _power_of_2(most: int) -> int:
    return 1 << max(0, most.bit_length() - 1)


def _width(channels: int) -> int:
    """Channels of a program: a whole part of them, if that is not too few."""
    return min(next_power_of_2(channels), max(16, min(64, channels & -channels)))


def _even(rows: int, patch: int) -> int:
    """Rows of a patch, ``patch`` or fewer, such that patches are of like size."""
    return max(1, ceil_div(rows, max(1, ceil_div(rows, patch))))


def _strides(x: Tensor, channels: int) -> tuple[int, ...]:
    """Of batch, component, channel, row and column."""
    batch, channel, row, column = x.stride()
    return batch, channel * channels, channel, row, column


@cache
def table_of(terms: tuple[int, ...], dim: int, left: int, right: int, out: int) -> Flat:
    """The table by which factors ``left`` and ``right`` of each of ``terms`` sum into factor ``out``."""
    rows: list[list[int]] = [[] for _ in range(dim)]
    for term in zip(*[iter(terms)] * 4, strict=True):
        rows[term[out]] += [term[left], term[right], term[3]]
    return tuple(map(tuple, rows))


@cache
def taps(run: int, num_taps: int, step: int, shift: int, pace: int, every: int) -> tuple[tuple[int, ...], Flat]:
    """Sources that a run of outputs reads along an axis, and for each output taps and the places of their sources.

    Output o meets tap t where ``o * step + shift + t * pace`` is a multiple of ``every``: the source is the quotient.
    """
    met = [[(t, o * step + shift + t * pace) for t in range(num_taps)] for o in range(run)]
    hits = [[(t, at // every) for t, at in row if at % every == 0] for row in met]
    sources = sorted({source for row in hits for _, source in row})
    return tuple(sources), tuple(tuple(chain(*((t, sources.index(s)) for t, s in row))) for row in hits)


@triton.jit
def depthwise_kernel(
    x, x_batch, x_comp: tl.constexpr, x_chan, x_row, x_column: tl.constexpr, w,
    y, y_batch, y_comp: tl.constexpr, y_chan, y_row, y_column: tl.constexpr,
    num_places, runs, patch, patches, height, width, out_height, out_width,
    row_step, row_shift, row_pace, row_every: tl.constexpr, column_step,
    channels: tl.constexpr, table: tl.constexpr, sources: tl.constexpr, taps: tl.constexpr,
    num_rows: tl.constexpr, num_columns: tl.constexpr,
    is_double: tl.constexpr, places: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """A program: some runs, all components of some channels."""
    dim: tl.constexpr = len(table)
    across: tl.constexpr = (channels + wide - 1) // wide
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    image, row, run, inside = _place(tile, places, num_places, runs, patch, patches)
    # As large as a tile of the image, that weights may be in the same threads' registers.
    chan = tl.broadcast_to(part * wide + tl.arange(0, wide)[None, :], (places, wide))
    is_chan = (chan < channels) | (channels % wide == 0)
    here = x + image * x_batch + run * column_step * x_column + chan * x_chan
    exact: tl.constexpr = tl.float64 if is_double else tl.float32
    totals = ((tl.zeros([places, wide], dtype=exact),) * dim,) * len(taps)
    for s in range(num_rows):
        source = row * row_step + row_shift + s * row_pace
        is_row = inside & is_chan & (source >= 0) & (source % row_every == 0) & (source // row_every < height)
        at_row = here + source // row_every * x_row
        weights = ()
        for t in tl.static_range(num_columns):
            at = w + (s * num_columns + t) * dim * channels + chan
            weights += (_tuple(at, is_chan, channels, dim),)
        tuples = ()
        for c in tl.static_range(len(sources)):
            column = run * column_step + sources[c]
            is_here = is_row & (column >= 0) & (column < width)
            tuples += (_tuple(at_row + sources[c] * x_column, is_here, x_comp, dim),)
        sums = ()
        for v in tl.static_range(len(taps)):
            total = totals[v]
            for t in tl.static_range(0, len(taps[v]), 2):
                total = _add_product(total, weights[taps[v][t]], tuples[taps[v][t + 1]], table)
            sums += (total,)
        totals = sums
    there = y + image * y_batch + row * y_row + run * len(taps) * y_column + chan * y_chan
    for v in tl.static_range(len(taps)):
        is_there = inside & is_chan & (row < out_height) & (run * len(taps) + v < out_width)
        for k in tl.static_range(dim):
            tl.store(there + v * y_column + k * y_comp, totals[v][k].to(y.dtype.element_ty), mask=is_there)


@triton.jit
def depthwise_sums_kernel(
    dy, dy_batch, dy_comp: tl.constexpr, dy_chan, dy_row, dy_column: tl.constexpr,
    x, x_batch, x_comp: tl.constexpr, x_chan, x_row, x_column: tl.constexpr, partial,
    num_places, runs, patch, patches, height, width, x_height, x_width, row_step, row_shift, row_pace, column_step,
    channels: tl.constexpr, table: tl.constexpr, sources: tl.constexpr, taps: tl.constexpr,
    num_rows: tl.constexpr, num_columns: tl.constexpr, group: tl.constexpr, places: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """A program: every so many-th tile of runs, all components of some channels, some rows of taps."""
    dim: tl.constexpr = len(table)
    part, parts, first = tl.program_id(0), tl.num_programs(0), tl.program_id(2) * group
    chan = tl.broadcast_to(tl.program_id(1) * wide + tl.arange(0, wide)[None, :], (places, wide))
    is_chan = (chan < channels) | (channels % wide == 0)
    zero = tl.zeros([places, wide], dtype=partial.dtype.element_ty)
    totals = ((zero,) * dim,) * (group * num_columns)
    for tile in range(part, tl.cdiv(num_places, places), parts):
        image, row, run, inside = _place(tile, places, num_places, runs, patch, patches)
        inside = inside & is_chan
        here = x + image * x_batch + run * column_step * x_column + chan * x_chan
        there = dy + image * dy_batch + row * dy_row + run * len(taps) * dy_column + chan * dy_chan
        outputs = ()
        for v in tl.static_range(len(taps)):
            is_there = inside & (row < height) & (run * len(taps) + v < width)
            outputs += (_tuple(there + v * dy_column, is_there, dy_comp, dim),)
        sums = ()
        for s in tl.static_range(group):
            source = row * row_step - row_shift + (first + s) * row_pace
            is_row = inside & (source >= 0) & (source < x_height)
            tuples = ()
            for c in tl.static_range(len(sources)):
                column = run * column_step + sources[c]
                is_here = is_row & (column >= 0) & (column < x_width)
                tuples += (_tuple(here + source * x_row + sources[c] * x_column, is_here, x_comp, dim),)
            for t in tl.static_range(num_columns):
                total = totals[s * num_columns + t]
                for v in tl.static_range(len(taps)):
                    total = _add_product(total, outputs[v], tuples[taps[v][2 * t + 1]], table)
                sums += (total,)
        totals = sums
    into = partial + ((part * num_rows + first) * num_columns).to(tl.int64) * dim * channels
    at = tl.program_id(1) * wide + tl.arange(0, wide)
    for t in tl.static_range(group * num_columns):
        for i in tl.static_range(dim):
            tl.store(into + (t * dim + i) * channels + at, tl.sum(totals[t][i], 0), mask=at < channels)


@triton.jit
def _place(tile, places: tl.constexpr, num_places, runs, patch, patches):
    """Image, row and run of each place of a tile, and whether it is one: down a patch first, then across, then down."""
    at = tile * places + tl.arange(0, places)[:, None]
    above = at // (patch * runs)
    return (above // patches).to(tl.int64), above % patches * patch + at % patch, at // patch % runs, at < num_places


@triton.jit
def _tuple(at, inside, step, dim: tl.constexpr):
    """The components of a tuple, ``step`` apart."""
    components = ()
    for k in tl.static_range(dim):
        components += (tl.load(at + k * step, mask=inside, other=0),)
    return components


@triton.jit
def _add_product(total, left, right, table: tl.constexpr):
    """``total`` and the product of two tuples by ``table``."""
    sums = ()
    for k in tl.static_range(len(table)):
        s = total[k]
        for t in tl.static_range(0, len(table[k]), 3):
            factor = table[k][t + 2] * left[table[k][t]].to(s.dtype)
            s = tl.fma(factor, right[table[k][t + 1]].to(s.dtype), s)
        sums += (s,)
    return sums
