"""Kernels of ``depthwise`` and ``depthwise_sums``: activations are read and written once.

A thread computes a *run* of adjacent outputs for a few channels. It loads each row of the image once for all taps in
that row. A program has a patch of runs, one below the other, so that it reads rows again from the L1 cache. Tables and
taps are constants, and loops over them are unrolled. Triton only accepts tuples of flat tuples:

- A table has, for each component of the result, ``left, right, coefficient`` of each of its terms.
- Taps have, for each output of a run, ``tap, source`` of each tap that the output meets.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def depthwise_fwd_kernel(
    x, x_batch, x_comp: tl.constexpr, x_chan, x_row, x_column: tl.constexpr, w,
    y, y_batch, y_comp: tl.constexpr, y_chan, y_row, y_column: tl.constexpr,
    num_places, runs, patch, patches, height, width, out_height, out_width,
    row_step, row_shift, row_pace, row_every: tl.constexpr, column_step,
    channels: tl.constexpr, table: tl.constexpr, sources: tl.constexpr, taps: tl.constexpr,
    num_rows: tl.constexpr, num_columns: tl.constexpr,
    is_double: tl.constexpr, places: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Each program computes some runs, for all components of some channels."""
    dim: tl.constexpr = len(table)
    across: tl.constexpr = (channels + wide - 1) // wide
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    image, row, run, is_place = _place(tile, places, num_places, runs, patch, patches)
    # Broadcast to the size of an image tile, so that weights are in the registers of the same threads.
    chan = tl.broadcast_to(part * wide + tl.arange(0, wide)[None, :], (places, wide))
    is_chan = (chan < channels) | (channels % wide == 0)
    x_at = x + image * x_batch + run * column_step * x_column + chan * x_chan
    exact: tl.constexpr = tl.float64 if is_double else tl.float32
    totals = ((tl.zeros([places, wide], dtype=exact),) * dim,) * len(taps)
    for s in range(num_rows):
        source = row * row_step + row_shift + s * row_pace
        is_row = is_place & is_chan & (source >= 0) & (source % row_every == 0) & (source // row_every < height)
        row_at = x_at + source // row_every * x_row
        weights = ()
        for t in tl.static_range(num_columns):
            at = w + (s * num_columns + t) * dim * channels + chan
            weights += (_tuple(at, is_chan, channels, dim),)
        tuples = ()
        for c in tl.static_range(len(sources)):
            column = run * column_step + sources[c]
            is_source = is_row & (column >= 0) & (column < width)
            tuples += (_tuple(row_at + sources[c] * x_column, is_source, x_comp, dim),)
        sums = ()
        for v in tl.static_range(len(taps)):
            total = totals[v]
            for t in tl.static_range(0, len(taps[v]), 2):
                total = _add_product(total, weights[taps[v][t]], tuples[taps[v][t + 1]], table)
            sums += (total,)
        totals = sums
    y_at = y + image * y_batch + row * y_row + run * len(taps) * y_column + chan * y_chan
    for v in tl.static_range(len(taps)):
        is_output = is_place & is_chan & (row < out_height) & (run * len(taps) + v < out_width)
        for k in tl.static_range(dim):
            tl.store(y_at + v * y_column + k * y_comp, totals[v][k].to(y.dtype.element_ty), mask=is_output)


@triton.jit
def depthwise_sums_kernel(
    dy, dy_batch, dy_comp: tl.constexpr, dy_chan, dy_row, dy_column: tl.constexpr,
    x, x_batch, x_comp: tl.constexpr, x_chan, x_row, x_column: tl.constexpr, partial,
    num_places, runs, patch, patches, height, width, x_height, x_width, row_step, row_shift, row_pace, column_step,
    channels: tl.constexpr, table: tl.constexpr, sources: tl.constexpr, taps: tl.constexpr,
    num_rows: tl.constexpr, num_columns: tl.constexpr, group: tl.constexpr, places: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Each program sums every ``parts``-th tile of runs, for all components of some channels and some rows of taps."""
    dim: tl.constexpr = len(table)
    part, parts, first = tl.program_id(0), tl.num_programs(0), tl.program_id(2) * group
    chan = tl.broadcast_to(tl.program_id(1) * wide + tl.arange(0, wide)[None, :], (places, wide))
    is_chan = (chan < channels) | (channels % wide == 0)
    zero = tl.zeros([places, wide], dtype=partial.dtype.element_ty)
    totals = ((zero,) * dim,) * (group * num_columns)
    for tile in range(part, tl.cdiv(num_places, places), parts):
        image, row, run, is_place = _place(tile, places, num_places, runs, patch, patches)
        is_place = is_place & is_chan
        x_at = x + image * x_batch + run * column_step * x_column + chan * x_chan
        dy_at = dy + image * dy_batch + row * dy_row + run * len(taps) * dy_column + chan * dy_chan
        outputs = ()
        for v in tl.static_range(len(taps)):
            is_output = is_place & (row < height) & (run * len(taps) + v < width)
            outputs += (_tuple(dy_at + v * dy_column, is_output, dy_comp, dim),)
        sums = ()
        for s in tl.static_range(group):
            source = row * row_step - row_shift + (first + s) * row_pace
            is_row = is_place & (source >= 0) & (source < x_height)
            tuples = ()
            for c in tl.static_range(len(sources)):
                column = run * column_step + sources[c]
                is_source = is_row & (column >= 0) & (column < x_width)
                tuples += (_tuple(x_at + source * x_row + sources[c] * x_column, is_source, x_comp, dim),)
            for t in tl.static_range(num_columns):
                total = totals[s * num_columns + t]
                for v in tl.static_range(len(taps)):
                    total = _add_product(total, outputs[v], tuples[taps[v][2 * t + 1]], table)
                sums += (total,)
        totals = sums
    partial_at = partial + ((part * num_rows + first) * num_columns).to(tl.int64) * dim * channels
    at = tl.program_id(1) * wide + tl.arange(0, wide)
    for t in tl.static_range(group * num_columns):
        for i in tl.static_range(dim):
            tl.store(partial_at + (t * dim + i) * channels + at, tl.sum(totals[t][i], 0), mask=at < channels)


@triton.jit
def _place(tile, places: tl.constexpr, num_places, runs, patch, patches):
    """The image, row and run of each place of a tile, and whether the place exists.

    Places are ordered down a patch first, then across the image, then down the image by patches.
    """
    at = tile * places + tl.arange(0, places)[:, None]
    above = at // (patch * runs)
    return (above // patches).to(tl.int64), above % patches * patch + at % patch, at // patch % runs, at < num_places


@triton.jit
def _tuple(x_at, is_here, step, dim: tl.constexpr):
    """Load the components of a tuple, which are ``step`` apart."""
    components = ()
    for k in tl.static_range(dim):
        components += (tl.load(x_at + k * step, mask=is_here, other=0),)
    return components


@triton.jit
def _add_product(total, left, right, table: tl.constexpr):
    """``total`` plus the product of two tuples, as given by ``table``."""
    sums = ()
    for k in tl.static_range(len(table)):
        s = total[k]
        for t in tl.static_range(0, len(table[k]), 3):
            factor = table[k][t + 2] * left[table[k][t]].to(s.dtype)
            s = tl.fma(factor, right[table[k][t + 1]].to(s.dtype), s)
        sums += (s,)
    return sums
