# ruff: noqa: RUF005, Triton knows no (*tuple, one)
"""Decoding kernels: y = w . x for few rows. Compact weights are read once, and expanded where they are multiplied.

Work goes block by block of the algebra (`decode.Plan`). Shapes: rows are batch and copy of the block; p, q are rows and
columns of rho(w), c components of the weight; o, i tuples out and in. Two versions of one sum over (c, q, i):

- `linear_fwd_kernel` multiplies on CUDA cores, each weight from a register into all its places of the block;
- `linear_dot_fwd_kernel` does so on tensor cores, rows padded to a tile.

Kernels of one stream may overlap on Hopper (programmatic dependent launch): each lets the next one start at once, and
waits for the one before it only where it needs what that wrote. Weights that no kernel writes are read before.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

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
