"""Launches of ``depthwise`` and ``depthwise_sums``, in tiles that suit an H200."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.depthwise.kernel import depthwise_fwd_kernel, depthwise_sums_kernel
from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2

Flat = tuple[tuple[int, ...], ...]

#: The sums that a thread keeps for outputs, and the most for weights, of its 255 registers. Sums for weights are kept
#: to the end of the program.
SUMS, MOST_SUMS = 32, 96
#: The most components with which a thread has many outputs at once. With more, the code would take long to compile.
MAX_COMPONENTS = 5


class Tile(NamedTuple):
    """The channels of a program and of a thread, the adjacent outputs of a thread, and a program's rows and warps."""

    width: int
    vector: int
    run: int
    patch: int
    num_warps: int

    @property
    def places(self) -> int:
        """The number of runs of a program."""
        return self.num_warps * 32 * self.vector // self.width


def depthwise(
    x: Float[Tensor, "batch feat high wide"],
    w: Float[Tensor, "down along comp chan"],
    y: Float[Tensor, "batch feat outhigh outwide"],
    table: Flat,
    slides: Sequence[tuple[int, ...]],
    adjoint: bool = False,
    tile: Tile | None = None,
) -> None:
    """Write the convolution of ``x`` by ``w``, or its adjoint, into ``y``. Images may have any memory format.

    ``slides`` are the stride, padding and dilation of each axis.
    """
    dim, channels = w.shape[2:]
    tile = tile or tile_of_images(x, dim, y.shape[3], slides[1][0] if adjoint else 1)
    down, along = (
        (1, padding, -dilation, stride) if adjoint else (stride, -padding, dilation, 1)
        for stride, padding, dilation in slides
    )
    run = ceil_div(tile.run, along[3]) * along[3]  # so that all runs meet the same taps
    sources, column_taps = taps(run, w.shape[1], *along)
    rows, runs = y.shape[2], ceil_div(y.shape[3], run)
    patch = _even(rows, tile.patch)
    places = len(x) * ceil_div(rows, patch) * patch * runs
    if not places:
        return
    grid = (ceil_div(places, tile.places) * ceil_div(channels, tile.width),)
    with torch.cuda.device_of(x):
        depthwise_fwd_kernel[grid](
            x, *_strides(x, channels), w.contiguous(), y, *_strides(y, channels),
            places, runs, patch, ceil_div(rows, patch), *x.shape[2:], *y.shape[2:],
            *down, along[0] * run // along[3], channels, table, sources, column_taps, *w.shape[:2],
            x.dtype == torch.float64, tile.places, tile.width, num_warps=tile.num_warps,
        )  # fmt: skip


def depthwise_sums(
    dy: Float[Tensor, "batch feat outhigh outwide"],
    x: Float[Tensor, "batch feat high wide"],
    dw: Float[Tensor, "down along comp chan"],
    table: Flat,
    slides: Sequence[tuple[int, ...]],
    tile: Tile | None = None,
) -> None:
    """Write into ``dw``, for each tap, the sum over all places of ``dy`` times the part of ``x`` that the tap meets."""
    num_rows, num_columns, dim, channels = dw.shape
    tile = tile or tile_of_sums(x, dim, num_rows, num_columns, slides[1][0])
    (row_step, row_shift, row_pace), (step, shift, pace) = slides
    sources, column_taps = taps(tile.run, num_columns, step, -shift, pace, 1)
    rows, runs = dy.shape[2], ceil_div(dy.shape[3], tile.run)
    patch = _even(rows, tile.patch)
    places = len(x) * ceil_div(rows, patch) * patch * runs
    group = rows_of_taps(dim, num_rows, num_columns)
    across = ceil_div(channels, tile.width)
    # Just enough programs to fill a GPU, because their sums have to be added up afterwards.
    parts = min(ceil_div(places, tile.places), ceil_div(2 * PROGRAMS, across * (num_rows // group)))
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


# For the M2(R) layers of MobileNet-v1 on an H200, tiles of one row and two warps were the fastest, or nearly so.


def tile_of_images(x: Tensor, dim: int, columns: int, every: int) -> Tile:
    """The tile for images. A thread keeps about `SUMS` sums: four outputs of two channels for four components.

    It keeps twice as many if two adjacent outputs share their sources (``every`` is 2, the stride of an adjoint), or if
    there are so few channels that adjacent threads read from different places anyway.
    """
    if x.stride(1) != 1:  # channels are far apart, so lanes are along rows
        return Tile(1, 1, 2, 1, 4)
    run = 4 if dim <= MAX_COMPONENTS and columns % 4 == 0 else 2
    vector = min(16 // x.itemsize, _power_of_2(SUMS // (run * dim)))
    width = _width(x.shape[1] // dim)
    if run == 4 and columns % 8 == 0 and (every == 2 or width <= 8):
        run = 8
    return Tile(width, vector, run, 1, 2)


def tile_of_sums(x: Tensor, dim: int, num_rows: int, num_columns: int, step: int) -> Tile:
    """The tile for sums. A thread keeps sums for each tap, for as many channels as fit.

    Its runs are longer if ``step`` is 1, because then adjacent outputs share most of their sources.
    """
    if x.stride(1) != 1:
        return Tile(1, 1, 2, 1, 4)
    sums = rows_of_taps(dim, num_rows, num_columns) * num_columns * dim
    vector = min(16 // x.itemsize, _power_of_2(MOST_SUMS // sums))
    run = 1 if dim > MAX_COMPONENTS else 8 if step == 1 else 4
    return Tile(_width(x.shape[1] // dim), vector, run, 1, 2)


def rows_of_taps(dim: int, num_rows: int, num_columns: int) -> int:
    """The number of tap rows of a program: all rows, or one if a thread cannot keep the sums of all."""
    return num_rows if num_rows * num_columns * dim <= MOST_SUMS else 1


def _power_of_2(most: int) -> int:
    return 1 << max(0, most.bit_length() - 1)


def _width(channels: int) -> int:
    """The channels of a program: the largest power of two from 16 to 64 that divides ``channels``, or 16 if none does.

    It is smaller if there are 8 channels or fewer.
    """
    return min(next_power_of_2(channels), max(16, min(64, channels & -channels)))


def _even(rows: int, patch: int) -> int:
    """The rows of a patch: at most ``patch``, such that all patches have about the same size."""
    return max(1, ceil_div(rows, max(1, ceil_div(rows, patch))))


def _strides(x: Tensor, channels: int) -> tuple[int, ...]:
    """The strides of batch, component, channel, row and column."""
    batch, channel, row, column = x.stride()
    return batch, channel * channels, channel, row, column


@cache
def table_of(terms: tuple[int, ...], dim: int, left: int, right: int, out: int) -> Flat:
    """The table of a product. ``left``, ``right`` and ``out`` are the places of its factors and result in a term."""
    rows: list[list[int]] = [[] for _ in range(dim)]
    for term in zip(*[iter(terms)] * 4, strict=True):
        rows[term[out]] += [term[left], term[right], term[3]]
    return tuple(map(tuple, rows))


@cache
def taps(run: int, num_taps: int, step: int, shift: int, pace: int, every: int) -> tuple[tuple[int, ...], Flat]:
    """The sources that a run of outputs reads along an axis and, for each output, its taps with the places of sources.

    Output o meets tap t if ``o * step + shift + t * pace`` is a multiple of ``every``. The quotient is the source.
    """
    met = [[(t, o * step + shift + t * pace) for t in range(num_taps)] for o in range(run)]
    hits = [[(t, at // every) for t, at in row if at % every == 0] for row in met]
    sources = sorted({source for row in hits for _, source in row})
    return tuple(sources), tuple(tuple(chain(*((t, sources.index(s)) for t, s in row))) for row in hits)
