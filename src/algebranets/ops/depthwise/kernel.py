"""Kernels of ``depthwise`` and ``depthwise_sums``: activations are read and written once.

A thread computes a *run* of adjacent outputs for a few channels. It loads each row of the image once for all taps in
that row, and changes each tuple once if the product has changes. With blocks of one row, each step of its loop takes a
row of taps. With larger blocks, its steps go down the image: each takes the next rows of the image and adds to a window
of unfinished rows of the output. So it loads the rows of a block once. Loops over constants are unrolled:

- A table has, for each component of the result, ``left, right, coefficient`` of each of its terms.
- A change has ``left, right, factor`` of each of its additions ``left + factor * right``, whose results are numbered
  after the components. Last come ``number, factor`` of each component of the changed tuple. No change is ().
- Taps have, for each source row (column), the tap that each output row (column) meets there, or -1.

Triton only accepts tuples of flat tuples.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def depthwise_fwd_kernel(
    x, x_batch, x_comp: tl.constexpr, x_chan, x_row, x_column: tl.constexpr, w,
    y, y_batch, y_comp: tl.constexpr, y_chan, y_row, y_column: tl.constexpr,
    num_places, blocks, runs, height, width, out_height, out_width, column_step,
    first: tl.constexpr, last: tl.constexpr, row_step, row_shift, row_pace, row_every: tl.constexpr,
    rows: tl.constexpr, row_taps: tl.constexpr, row_shift_out: tl.constexpr, done: tl.constexpr,
    channels: tl.constexpr, dim: tl.constexpr, rank: tl.constexpr,
    table: tl.constexpr, inputs: tl.constexpr, outputs: tl.constexpr,
    column_sources: tl.constexpr, column_taps: tl.constexpr, num_rows: tl.constexpr, num_columns: tl.constexpr,
    is_double: tl.constexpr, places: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Each program computes some blocks, for all components of some channels. A step finishes ``done`` rows."""
    across: tl.constexpr = (channels + wide - 1) // wide
    window: tl.constexpr = len(row_taps[0])
    columns: tl.constexpr = len(column_taps[0])
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    image, block, run, is_place = _place(tile, places, num_places, blocks, runs)
    # Broadcast to the size of an image tile, so that weights are in the registers of the same threads.
    chan = tl.broadcast_to(part * wide + tl.arange(0, wide)[None, :], (places, wide))
    is_chan = (chan < channels) | (channels % wide == 0)
    x_at = x + image * x_batch + run * column_step * x_column + chan * x_chan
    y_at = y + image * y_batch + run * columns * y_column + chan * y_chan
    exact: tl.constexpr = tl.float64 if is_double else tl.float32
    zero = ((tl.zeros([places, wide], dtype=exact),) * len(table),) * columns
    totals = (zero,) * window
    row_of_taps: tl.constexpr = num_columns * rank * channels
    kept = ()
    for t in tl.static_range(num_rows if done > 0 else 0):
        kept += (_weights(w + t * row_of_taps + chan, is_chan, channels, num_columns, rank),)
    for step in range(first, last):
        weights = kept if done > 0 else (_weights(w + step * row_of_taps + chan, is_chan, channels, num_columns, rank),)
        for s in tl.static_range(len(row_taps)):
            source = block * row_step + row_shift + step * row_pace + s
            is_row = is_place & is_chan & (source >= 0) & (source % row_every == 0) & (source // row_every < height)
            row_at = x_at + source // row_every * x_row
            tuples = _row(row_at, is_row, run * column_step, width, x_column, column_sources, x_comp, dim)
            for c in tl.static_range(len(column_sources)):
                right = _changed(tuples[c], inputs, exact)
                sums = ()
                for o in tl.static_range(window):
                    if row_taps[s][o] >= 0:
                        sums += (_add_products(totals[o], weights[row_taps[s][o]], right, column_taps, c, table),)
                    else:
                        sums += (totals[o],)
                totals = sums
        for o in tl.static_range(done):
            row = block * rows + (step * done + row_shift_out + o)
            is_row = is_place & is_chan & _is_in_block(row, block, rows, out_height)
            _store_row(
                y_at + row * y_row, totals[o], outputs, is_row, run * columns, out_width, y_comp, y_column, dim, exact
            )
        for _ in tl.static_range(done):
            totals = _shifted(totals, zero)
    for o in tl.static_range(window - done):
        row = block * rows + (last * done + row_shift_out + o)
        is_row = is_place & is_chan & _is_in_block(row, block, rows, out_height)
        _store_row(
            y_at + row * y_row, totals[o], outputs, is_row, run * columns, out_width, y_comp, y_column, dim, exact
        )


@triton.jit
def depthwise_sums_kernel(
    dy, dy_batch, dy_comp: tl.constexpr, dy_chan, dy_row, dy_column: tl.constexpr,
    x, x_batch, x_comp: tl.constexpr, x_chan, x_row, x_column: tl.constexpr, partial,
    num_places, blocks, runs, height, width, x_height, x_width, column_step,
    start: tl.constexpr, stop: tl.constexpr, row_step, row_shift, row_pace, tap_pace,
    rows: tl.constexpr, row_taps: tl.constexpr, row_shift_out: tl.constexpr,
    channels: tl.constexpr, dim: tl.constexpr,
    table: tl.constexpr, inputs: tl.constexpr, outputs: tl.constexpr,
    column_sources: tl.constexpr, column_taps: tl.constexpr,
    num_rows: tl.constexpr, num_columns: tl.constexpr, group: tl.constexpr, places: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Each program sums every ``parts``-th tile of blocks, for all components of some channels and rows of taps."""
    rank: tl.constexpr = len(table)
    window: tl.constexpr = len(row_taps[0])
    columns: tl.constexpr = len(column_taps[0])
    exact: tl.constexpr = partial.dtype.element_ty
    part, parts, first = tl.program_id(0), tl.num_programs(0), tl.program_id(2) * group
    chan = tl.broadcast_to(tl.program_id(1) * wide + tl.arange(0, wide)[None, :], (places, wide))
    is_chan = (chan < channels) | (channels % wide == 0)
    totals = ((tl.zeros([places, wide], dtype=exact),) * rank,) * (group * num_columns)
    for tile in range(part, tl.cdiv(num_places, places), parts):
        image, block, run, is_place = _place(tile, places, num_places, blocks, runs)
        is_place = is_place & is_chan
        x_at = x + image * x_batch + run * column_step * x_column + chan * x_chan
        dy_at = dy + image * dy_batch + run * columns * dy_column + chan * dy_chan
        # The rows before the first step are not part of the block.
        grads = (((tl.zeros([places, wide], dtype=exact),) * rank,) * columns,) * window
        for steps in range(start, stop, window):
            for n in tl.static_range(window):  # then the rows of the window are back in the same registers
                row = block * rows + (steps + n) + (row_shift_out + window - 1)
                is_row = is_place & _is_in_block(row, block, rows, height)
                at = dy_at + row * dy_row
                new = ()
                for v in tl.static_range(columns):
                    is_output = is_row & (run * columns + v < width)
                    new += (_changed(_tuple(at + v * dy_column, is_output, dy_comp, dim), outputs, exact),)
                grads = _shifted(grads, new)
                for s in tl.static_range(len(row_taps)):
                    source = block * row_step + row_shift + (steps + n) * row_pace + (first + s) * tap_pace
                    is_row = is_place & (source >= 0) & (source < x_height)
                    row_at = x_at + source * x_row
                    tuples = _row(row_at, is_row, run * column_step, x_width, x_column, column_sources, x_comp, dim)
                    for c in tl.static_range(len(column_sources)):
                        right = _changed(tuples[c], inputs, exact)
                        sums = ()
                        for t in tl.static_range(group):
                            for k in tl.static_range(num_columns):
                                total = totals[t * num_columns + k]
                                for o in tl.static_range(window):
                                    for v in tl.static_range(columns):
                                        if row_taps[s][o] == t and column_taps[c][v] == k:
                                            total = _add_product(total, grads[o][v], right, table)
                                sums += (total,)
                        totals = sums
    partial_at = partial + ((part * num_rows + first) * num_columns).to(tl.int64) * rank * channels
    at = tl.program_id(1) * wide + tl.arange(0, wide)
    for t in tl.static_range(group * num_columns):
        for i in tl.static_range(rank):
            tl.store(partial_at + (t * rank + i) * channels + at, tl.sum(totals[t][i], 0), mask=at < channels)


@triton.jit
def _place(tile, places: tl.constexpr, num_places, blocks, runs):
    """For each place of a tile, the image, the block of rows, the run of columns, and whether the place exists."""
    at = tile * places + tl.arange(0, places)[:, None]
    return (at // runs // blocks).to(tl.int64), at // runs % blocks, at % runs, at < num_places


@triton.jit
def _is_in_block(row, block, rows: tl.constexpr, height):
    """Whether a row is in the image and in the block, as it always is if blocks have one row."""
    is_here = row < height
    if rows > 1:
        is_here = is_here & (row >= block * rows) & (row < block * rows + rows)
    return is_here


@triton.jit
def _weights(at, is_chan, step, num_columns: tl.constexpr, rank: tl.constexpr):
    """Load a row of taps."""
    weights = ()
    for t in tl.static_range(num_columns):
        weights += (_tuple(at + t * rank * step, is_chan, step, rank),)
    return weights


@triton.jit
def _add_products(totals, weights, right, taps: tl.constexpr, source: tl.constexpr, table: tl.constexpr):
    """The sums of a run of outputs, plus the products of those that meet ``right`` with their taps."""
    sums = ()
    for v in tl.static_range(len(totals)):
        if taps[source][v] >= 0:
            sums += (_add_product(totals[v], weights[taps[source][v]], right, table),)
        else:
            sums += (totals[v],)
    return sums


@triton.jit
def _shifted(window, new):
    """The window without its first row, and with a new last row."""
    rows = ()
    for o in tl.static_range(1, len(window)):
        rows += (window[o],)
    rows += (new,)
    return rows


@triton.jit
def _store_row(
    to, totals, outputs: tl.constexpr, is_row, column, width, step, pace, dim: tl.constexpr, exact: tl.constexpr
):
    """Store the changed sums of a run of outputs. Components are ``step`` apart, and columns ``pace``."""
    for v in tl.static_range(len(totals)):
        result = _changed(totals[v], outputs, exact)
        for k in tl.static_range(dim):
            tl.store(to + v * pace + k * step, result[k].to(to.dtype.element_ty), mask=is_row & (column + v < width))


@triton.jit
def _row(row_at, is_row, first, width, x_column, sources: tl.constexpr, step, dim: tl.constexpr):
    """Load the sources of a run, all before the first is used, so that they are in flight together."""
    tuples = ()
    for c in tl.static_range(len(sources)):
        is_source = is_row & (first + sources[c] >= 0) & (first + sources[c] < width)
        tuples += (_tuple(row_at + sources[c] * x_column, is_source, step, dim),)
    return tuples


@triton.jit
def _tuple(x_at, is_here, step, dim: tl.constexpr):
    """Load the components of a tuple, which are ``step`` apart."""
    components = ()
    for k in tl.static_range(dim):
        components += (tl.load(x_at + k * step, mask=is_here, other=0),)
    return components


@triton.jit
def _changed(components, change: tl.constexpr, exact: tl.constexpr):
    """The combinations of a tuple's components that ``change`` describes, in the dtype of sums."""
    values = ()
    for k in tl.static_range(len(components)):
        values += (components[k].to(exact),)
    if len(change) > 0:
        for n in tl.static_range(len(change) - 1):
            values += (values[change[n][0]] + change[n][2] * values[change[n][1]],)
        results = ()
        for k in tl.static_range(0, len(change[-1]), 2):
            results += (change[-1][k + 1] * values[change[-1][k]],)
    else:
        results = values
    return results


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
