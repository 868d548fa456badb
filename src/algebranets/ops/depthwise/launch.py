"""Launches of ``depthwise`` and ``depthwise_sums``, in tiles that suit an H200."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.combine import combine
from algebranets.ops.depthwise.constants import Algorithm, Flat, Product, Sweep, product_of, sweep_of, taps
from algebranets.ops.depthwise.kernel import depthwise_fwd_kernel, depthwise_sums_kernel
from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2

#: The sums that a thread keeps for outputs, and the most for weights, of its 255 registers. Sums for weights are kept
#: to the end of the program.
SUMS, MOST_SUMS = 32, 96
#: From this number of channels on, the convolution and its adjoint multiply by the table, even if there is an algorithm
#: with half of the multiplies. In trials over H on an H200, they took the same time or less by the table with 16
#: channels and more, and 1.17 times as long with 8. The gradient of a weight uses the algorithm with stride 1. With
#: stride 2, a training step was faster by the table.
TABLE_CHANNELS = 16
#: If threads go down the image: the most rows of a thread, the most columns for images and for weights, and the fewest
#: warps that do so.
MOST_ROWS, IMAGE_COLUMNS, WEIGHT_COLUMNS, LEAST_WARPS = 28, 4, 3, 8 * PROGRAMS
#: The most components with which a thread has many outputs at once. With more, the code would take long to compile.
MAX_COMPONENTS = 5


class Tile(NamedTuple):
    """The channels of a program and of a thread, the columns and rows of a thread's block, and a program's warps."""

    width: int
    vector: int
    run: int
    rows: int
    num_warps: int

    @property
    def places(self) -> int:
        """The number of blocks of a program."""
        return self.num_warps * 32 * self.vector // self.width


def depthwise(
    x: Float[Tensor, "batch feat high wide"],
    w: Float[Tensor, "down along comp chan"],
    y: Float[Tensor, "batch feat outhigh outwide"],
    terms: tuple[int, ...],
    slides: Sequence[tuple[int, ...]],
    adjoint: bool = False,
    algorithm: Algorithm | None = None,
    tile: Tile | None = None,
) -> None:
    """Write the convolution of ``x`` by ``w``, or its adjoint, into ``y``. Images may have any memory format.

    ``slides`` are the stride, padding and dilation of each axis.
    """
    algorithm = algorithm if w.shape[3] < TABLE_CHANNELS else None
    product = product_of(terms, w.shape[2], (0, 2, 1) if adjoint else (0, 1, 2), algorithm)
    w = w if algorithm is None else _combined(w, algorithm.weights)
    num_rows, num_columns, rank, channels = w.shape
    down, along = (
        (1, padding, -dilation, stride) if adjoint else (stride, -padding, dilation, 1)
        for stride, padding, dilation in slides
    )
    tile = tile or tile_of_images(x, y, product, w.shape, down, along)
    run = ceil_div(tile.run, along[3]) * along[3]  # so that all runs meet the same taps
    high = tile.rows if tile.rows == 1 else ceil_div(tile.rows, down[3]) * down[3]
    blocks, runs = ceil_div(y.shape[2], high), ceil_div(y.shape[3], run)
    places = len(x) * blocks * runs
    if not places:
        return
    loop = _loop_of_images(high, num_rows, down, x.shape[2] if blocks == 1 else None)
    grid = (ceil_div(places, tile.places) * ceil_div(channels, tile.width),)
    with torch.cuda.device_of(x):
        depthwise_fwd_kernel[grid](
            x, *_strides(x, channels), w.contiguous(), y, *_strides(y, channels),
            places, blocks, runs, *x.shape[2:], *y.shape[2:], along[0] * run // along[3], *loop,
            channels, x.shape[1] // channels, rank, *product, *taps(run, num_columns, *along), num_rows, num_columns,
            x.dtype == torch.float64, tile.places, tile.width, num_warps=tile.num_warps,
        )  # fmt: skip


def _loop_of_images(rows: int, num_rows: int, down: Sequence[int], height: int | None) -> tuple[Any, ...]:
    """The arguments of `depthwise_fwd_kernel` from ``first`` to ``done``, for blocks of so many rows.

    With one row, the loop is over rows of taps. With more, it goes down the image, as described in `Sweep`.
    """
    if rows == 1:
        return 0, num_rows, *down, rows, ((0,),), 0, 0
    (step, _, _, every), sweep = down, sweep_of(num_rows, *down)
    ends = sweep.ends(rows, height, step, every)
    return *ends, rows * step // every, 0, step, 1, rows, sweep.taps, sweep.shift, every


def depthwise_sums(
    dy: Float[Tensor, "batch feat outhigh outwide"],
    x: Float[Tensor, "batch feat high wide"],
    dw: Float[Tensor, "down along comp chan"],
    terms: tuple[int, ...],
    slides: Sequence[tuple[int, ...]],
    algorithm: Algorithm | None = None,
    tile: Tile | None = None,
) -> None:
    """Write into ``dw``, for each tap, the sum over all places of ``dy`` times the part of ``x`` that the tap meets."""
    num_rows, num_columns, dim, channels = dw.shape
    algorithm = algorithm if all(stride == 1 for stride, _, _ in slides) else None
    product = product_of(terms, dim, (2, 1, 0), algorithm)
    rank = len(product.table)
    down, along = ((stride, -padding, dilation) for stride, padding, dilation in slides)
    tile = tile or tile_of_sums(x, dy, product, (num_rows, num_columns, rank, channels), down, along)
    blocks, runs = ceil_div(dy.shape[2], tile.rows), ceil_div(dy.shape[3], tile.run)
    places = len(x) * blocks * runs
    group = rows_of_taps(rank, num_rows, num_columns)
    loop = _loop_of_sums(tile.rows, num_rows, group, down)
    across = ceil_div(channels, tile.width)
    # Just enough programs to fill a GPU, because their sums have to be added up afterwards.
    parts = min(ceil_div(places, tile.places), ceil_div(2 * PROGRAMS, across * (num_rows // group)))
    partial = dw.new_empty(parts, num_rows, num_columns, rank, channels)
    if places:
        with torch.cuda.device_of(x):
            depthwise_sums_kernel[parts, across, num_rows // group](
                dy, *_strides(dy, channels), x, *_strides(x, channels), partial,
                places, blocks, runs, *dy.shape[2:], *x.shape[2:], along[0] * tile.run, *loop,
                channels, x.shape[1] // channels, *product, *taps(tile.run, num_columns, *along, 1),
                num_rows, num_columns, group, tile.places, tile.width, num_warps=tile.num_warps,
            )  # fmt: skip
    if algorithm is None:
        torch.sum(partial, 0, out=dw)
    else:
        dw.copy_(_combined(partial.sum(0), tuple(zip(*algorithm.weights, strict=True))))


def _loop_of_sums(rows: int, num_rows: int, group: int, down: Sequence[int]) -> tuple[Any, ...]:
    """The arguments of `depthwise_sums_kernel` from ``start`` to ``row_shift_out``, for blocks of so many rows.

    With one row, there is one step, for ``group`` rows of taps. With more, steps go down the image, as in `Sweep`.
    """
    step, shift, pace = down
    if rows == 1:
        return 0, 1, step, shift, 0, pace, rows, tuple((t,) for t in range(group)), 0
    sweep = sweep_of(num_rows, *down, 1)
    return *sweep.ends(rows, None, step, 1), rows * step, 0, step, 1, rows, sweep.taps, sweep.shift


def _combined(w: Float[Tensor, "down along comp chan"], rows: Flat) -> Float[Tensor, "down along row chan"]:
    """The combinations of the components of a weight with these coefficients."""
    grid = combine(w.reshape(-1, w.shape[2], 1, 1, w.shape[3]), rows)
    return grid.reshape(*w.shape[:2], len(rows), w.shape[3])


# For the M2(R) layers of MobileNet-v1 on an H200, tiles of one row and two warps were the fastest, or nearly so.


def tile_of_images(
    x: Tensor, y: Tensor, product: Product, weight: Sequence[int], down: Sequence[int], along: Sequence[int]
) -> Tile:
    """The tile for images. A thread keeps about `SUMS` sums: four outputs of two channels for four components.

    It keeps twice as many if two adjacent outputs share their sources (the last number of ``along`` is 2, the stride of
    an adjoint), or if there are so few channels that adjacent threads read from different places anyway.
    """
    if x.stride(1) != 1:  # channels are far apart, so lanes are along rows
        return Tile(1, 1, 2, 1, 4)
    num_rows, _, rank, channels = weight
    if product.inputs:
        return tile_of_changes(y, weight, sweep_of(num_rows, *down), IMAGE_COLUMNS, 2)
    width, columns, every = _width(channels), y.shape[3], along[3]
    run = 4 if rank <= MAX_COMPONENTS and columns % 4 == 0 else 2
    vector = min(16 // x.itemsize, _power_of_2(SUMS // (run * rank)))
    if run == 4 and columns % 8 == 0 and (every == 2 or width <= 8):
        run = 8
    return Tile(width, vector, run, 1, 2)


def tile_of_sums(
    x: Tensor, dy: Tensor, product: Product, weight: Sequence[int], down: Sequence[int], along: Sequence[int]
) -> Tile:
    """The tile for sums. A thread keeps sums for each tap, for as many channels as fit.

    Its runs are longer if the stride is 1, because then adjacent outputs share most of their sources.
    """
    if x.stride(1) != 1:
        return Tile(1, 1, 2, 1, 4)
    num_rows, num_columns, rank, channels = weight
    if product.inputs:
        return tile_of_changes(dy, weight, sweep_of(num_rows, *down, 1), WEIGHT_COLUMNS, 8)
    sums = rows_of_taps(rank, num_rows, num_columns) * num_columns * rank
    vector = min(16 // x.itemsize, _power_of_2(MOST_SUMS // sums))
    run = 1 if rank > MAX_COMPONENTS else 8 if along[0] == 1 else 4
    return Tile(_width(channels), vector, run, 1, 2)


def tile_of_changes(y: Tensor, weight: Sequence[int], sweep: Sweep, most: int, windows: int) -> Tile:
    """The tile for products that change their inputs. Their sources should be shared by as many outputs as possible.

    Threads go down the image if they can keep the weights, and if there are enough of them with many rows.

    Args:
        y: The outputs, or their gradients.
        weight: The numbers of taps, products and channels.
        sweep: How threads go down the image.
        most: The most columns of a thread that goes down the image.
        windows: The rows must be at least as many windows of the sweep, because steps at their ends are wasted.
    """
    num_rows, num_columns, rank, channels = weight
    weights, window = num_rows * num_columns * rank, len(sweep.taps[0])
    most = min(most, MOST_SUMS // (window * rank))
    run = _run(y.shape[3], most)
    warps = len(y) * channels * y.shape[2] * ceil_div(y.shape[3], run) // 32
    rows = _even(y.shape[2], max(1, min(MOST_ROWS, warps // LEAST_WARPS)))
    if weights > MOST_SUMS or most < 2 or rows < windows * window:
        return Tile(_width(channels), 1, _run(y.shape[3], 2 * SUMS // rank), 1, 2)
    return Tile(_width(channels), 1, run, rows, 2)


def rows_of_taps(dim: int, num_rows: int, num_columns: int) -> int:
    """The number of tap rows of a program: all rows, or one if a thread cannot keep the sums of all."""
    return num_rows if num_rows * num_columns * dim <= MOST_SUMS else 1


def _power_of_2(most: int) -> int:
    return 1 << max(0, most.bit_length() - 1)


def _run(columns: int, most: int) -> int:
    """The run of at most ``most`` outputs, or 1, for which rows of ``columns`` outputs load the fewest sources."""
    return min(range(max(1, most), 0, -1), key=lambda run: ceil_div(columns, run) * (run + 2))


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
