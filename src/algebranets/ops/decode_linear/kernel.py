# ruff: noqa: RUF005, Triton does not support (*tuple, one)
"""Kernels of ``decode_linear``: y = w . x for few rows.

The compact weights are read once and expanded in registers. Each block of the algebra is a launch of its own
(`launch.Plan`). Shapes: rows are batch and copy of the block; p, q are rows and columns of rho(w), c components of the
weight; o, i output and input tuples. There are two versions of one sum over (c, q, i):

- `decode_linear_fwd_kernel` multiplies on CUDA cores. It uses a weight in a register for all its places in the block.
- `decode_linear_dot_fwd_kernel` multiplies all x_q by each w_c on tensor cores, and adds up by the table at the end.

Kernels of one stream may overlap on Hopper (programmatic dependent launch). Each kernel lets the next one start at
once, and waits for the previous one before it reads what that kernel wrote. Weights that no kernel writes are read
before the wait.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from algebranets.ops.kernel import activate, at, begin, ceil_log2, in_pairs, is_last_to_arrive, plus_bias, sum_of_parts

# CUDA cores -----------------------------------------------------------------------------------------------------------

# A tile of weights is (lane along out, warp, out per thread, input). A thread has whole vectors of several outputs. It
# reads the inputs for them once, and threads exchange few sums. The axes are in the order in which Triton 3.6 assigns
# lanes and warps. A tile of x has the same axes without ``out per thread``. Every lane along out reads all of it, so
# that the two layouts match.


@triton.jit
def decode_linear_fwd_kernel(
    x, weight, bias, y, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, stacks: tl.constexpr, activation: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr,
    vector: tl.constexpr, pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """Each program computes ``out`` output tuples of one stack, for ``rows`` rows."""
    begin(pdl, frozen)
    tile, stack, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * rows
    (total,) = product(
        x + x_offset, weight, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_in, num_out,
        x_features, 1, rows, out, inp, lanes, warps, vector, frozen,
    )  # fmt: skip
    row, feature, is_here = places(tile, first, num_rows, size, num_copies, num_out, rows, out, lanes)
    feature += stack * y_features + y_offset
    total = plus_bias(total, bias, feature, is_here)
    tl.store(y + row.to(tl.int64) * (stacks * y_features) + feature, activate(total, activation), mask=is_here)


@triton.jit
def places(
    tile, first, num_rows, size: tl.constexpr, num_copies: tl.constexpr, num_out: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """The batch row and the feature of each sum that `product` returns, and whether they exist."""
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
    """The sums of ``stacks`` stacks, beginning with ``stack``: each is (lane along out, out per thread, row and p).

    With ``wait``, it waits for the previous kernel after the first loads of weights.
    """
    across: tl.constexpr = 32 // lanes
    width: tl.constexpr = lanes * vector
    o = tl.arange(0, out // across)[None, None, :, None] * across + tl.arange(0, across)[:, None, None, None]
    i = tl.arange(0, inp // width)[None, :, None] * width + tl.arange(0, width)[None, None, :]
    i = i + tl.zeros([across, 1, 1], tl.int32)
    weight_at = weight + (stack.to(tl.int64) * (dim * num_out) + tile * out) * num_in
    room = num_out - tile * out
    tiles = weights_at(weight_at, o, i[:, :, None, :], 0, room, dim * stacks, num_in, num_out, out, inp)
    if wait:
        cuda.gdc_wait()
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    sums = ()
    for _ in tl.static_range(stacks * rows * size):
        sums = sums + (tl.zeros([across, warps, out // across, lanes], dtype),)
    for start in tl.range(inp, num_in, inp):
        # The next weights are in flight while these are multiplied.
        ahead = weights_at(weight_at, o, i[:, :, None, :], start, room, dim * stacks, num_in, num_out, out, inp)
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
    weight_at, o, i, start, room, count: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    out: tl.constexpr, inp: tl.constexpr,
):  # fmt: skip
    """Load the tiles of ``count`` components, beginning at input ``start``. ``room`` outputs are left.

    Loads need no mask if ``out`` and ``inp`` divide the numbers of outputs and inputs.
    """
    tiles = ()
    for c in tl.static_range(count):
        w_at = weight_at + tl.full([], c * num_out, tl.int64) * num_in + start + (o * num_in + i)
        if num_in % inp == 0 and num_out % out == 0:
            w = tl.load(w_at, eviction_policy="evict_first")
        else:
            w = tl.load(w_at, mask=(o < room) & (start + i < num_in), other=0, eviction_policy="evict_first")
        tiles = tiles + (w,)
    return tiles


@triton.jit
def add(
    sums, tiles, x, i, start, first, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, x_features: tl.constexpr, stacks: tl.constexpr, rows: tl.constexpr, out: tl.constexpr,
    inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr, vector: tl.constexpr, is_cut: tl.constexpr,
):  # fmt: skip
    """Add the products of these tiles to ``sums``. A thread sums its vectors at once, so that it keeps few numbers."""
    xs = ()
    for r in tl.static_range(rows):
        row = tl.minimum(first + r, num_rows - 1)
        x_at = x + (row // num_copies).to(tl.int64) * x_features + row % num_copies * (size * num_in) + start
        for q in tl.static_range(size):
            if is_cut:
                xs = xs + (tl.load(x_at + q * num_in + i, mask=start + i < num_in, other=0),)
            else:
                xs = xs + (tl.load(x_at + q * num_in + i),)
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
    """Sum each of ``sums`` over warps and lanes, and stack the results on a new last axis.

    They are joined before the sum, so that threads exchange data only once.
    """
    total = tl.sum(tl.sum(in_pairs(sums), 3), 1)
    return total.reshape(total.shape[0], total.shape[1], 1 << ceil_log2(len(sums)))


# Tensor cores ---------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["num_rows"])
def decode_linear_dot_fwd_kernel(
    x, weight, bias, y, partial, arrived, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, stacks: tl.constexpr, activation: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, splits: tl.constexpr,
    pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """Each program multiplies one of ``splits`` shares of the input, for ``out`` output tuples and ``rows`` rows.

    The last program of a tile to arrive adds up the shares. ``partial`` stores the result of each program. ``arrived``
    counts the finished programs of a tile. It is zero before and after the kernel.
    """
    begin(pdl, frozen)
    tile, split, stack = tl.program_id(0) // splits, tl.program_id(0) % splits, tl.program_id(1)
    j = tl.arange(0, triton.next_power_of_2(rows * size))[:, None]  # row and q of the input, row and p of the output
    row = tl.program_id(2) * rows + j // size
    is_row = (j < rows * size) & (row < num_rows)
    batch, component = (row // num_copies).to(tl.int64), row % num_copies * size + j % size
    i, o = tl.arange(0, inp), tl.arange(0, out)[None, :]
    chunks: tl.constexpr = triton.cdiv(num_in, inp * splits)
    first, room = split * (chunks * inp), num_out - tile * out
    weight_at = weight + (stack.to(tl.int64) * (dim * num_out) + tile * out) * num_in
    x += x_offset + batch * x_features + component * num_in + i[None, :]
    # The first weights are in flight while the previous kernel ends. They are multiplied last.
    tiles = weights_at(weight_at, o, i[:, None], first, room, dim, num_in, num_out, out, inp * splits)
    if frozen:
        if chunks > 1:
            read_ahead(weight_at, first + inp, (chunks - 1) * inp, room, dim, num_in, num_out, out)
        cuda.gdc_wait()
    xs = tl.load(x + first, mask=is_row & (first + i[None, :] < num_in), other=0)
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    products = ()
    for _ in tl.static_range(dim):
        products = products + (tl.zeros([j.shape[0], out], dtype),)
    for chunk in tl.range(1, chunks):
        start = first + chunk * inp
        more = tl.load(x + start, mask=is_row & (start + i[None, :] < num_in), other=0)
        ahead = weights_at(weight_at, o, i[:, None], start, room, dim, num_in, num_out, out, inp * splits)
        products = add_dots(products, more, ahead)
    total = combined(add_dots(products, xs, tiles), j, table, starts, size)
    is_here, is_last = is_row & (o < room), True
    if splits > 1:
        group = (tl.program_id(2) * stacks + stack) * tl.cdiv(num_out, out) + tile
        partial += group.to(tl.int64) * (splits * j.shape[0] * out) + j * out + o
        tl.store(partial + split * (j.shape[0] * out), total, mask=is_here)
        is_last = is_last_to_arrive(arrived + group, splits)
    if is_last:
        if splits > 1:
            total = sum_of_parts(partial, j.shape[0] * out, is_here, splits, dtype)
        feature = stack * y_features + y_offset + component * num_out + tile * out + o
        total = plus_bias(total, bias, feature, is_here)
        tl.store(y + batch * (stacks * y_features) + feature, activate(total, activation), mask=is_here)


@triton.jit
def add_dots(products, x, tiles):
    """Add to ``products``, for each component of the weight, the dot of (row and q, input) and (input, output)."""
    new = ()
    for c in tl.static_range(len(tiles)):
        new = new + (tl.dot(x, tiles[c], products[c], input_precision="ieee", out_dtype=products[c].dtype),)
    return new


@triton.jit
def combined(products, j, table: tl.constexpr, starts: tl.constexpr, size: tl.constexpr):
    """Add up ``products``, (row and q, output) for each component of the weight, to sums (row and p, output).

    ``table`` and ``starts`` are `launch.Plan.by_component`. ``j`` is row and p.
    """
    p, last = j % size, products[0].shape[0] - 1
    total = tl.zeros_like(products[0])
    for c in tl.static_range(len(products)):
        for t in tl.static_range(at(starts, c), at(starts, c + 1)):
            q = tl.zeros_like(p)
            by = tl.zeros_like(p)
            for k in tl.static_range(size):
                q = tl.where(p == k, at(table, 2 * (t * size + k)), q)
                by = tl.where(p == k, at(table, 2 * (t * size + k) + 1), by)
            found = products[c]
            if size > 1:
                source = tl.minimum(j - p + q, last)
                found = tl.gather(found, tl.broadcast_to(source, found.shape), 0)
            total += tl.where(by == 0, 0, by.to(total.dtype) * found)
    return total


@triton.jit
def read_ahead(
    weight_at, start, count: tl.constexpr, room, dim: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    out: tl.constexpr,
):  # fmt: skip
    """Prefetch ``count`` inputs of all components into the L2 cache, in lines of 128 bytes."""
    line: tl.constexpr = 1024 // weight_at.dtype.element_ty.primitive_bitwidth
    lines: tl.constexpr = min(32, triton.next_power_of_2(triton.cdiv(count, line)))
    o = tl.minimum(tl.arange(0, out), room - 1)[:, None]
    for c in tl.static_range(dim):
        component = weight_at + tl.full([], c * num_out, tl.int64) * num_in
        for ahead in tl.range(0, count, lines * line):
            i = tl.minimum(start + ahead + tl.arange(0, lines) * line, num_in - 1)[None, :]
            tl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
                [(component + o * num_in + i).to(tl.int64)], tl.int32, False, 1,
            )  # fmt: skip
