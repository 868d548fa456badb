# ruff: noqa: RUF005, Triton does not support (*tuple, one)
"""Kernels of ``decode_linear``: y = w . x for few rows.

The compact weights are read once and expanded in registers. Each block of the algebra is a launch of its own
(`launch.Plan`). int8 weights are multiplied as whole numbers, and each sum by the scale of its output tuple at the end.
The input and the sums of an algebra that is stored in another basis change their basis in registers (`Algebra.change`).
Shapes: rows are batch and copy of the block; p, q are rows and columns of rho(w), c components of the weight; o, i
output and input tuples. There are two versions of one sum over (c, q, i):

- `decode_linear_fwd_kernel` multiplies on CUDA cores. It uses a weight in a register for all its places in the block.
- `decode_linear_dot_fwd_kernel` multiplies each w_c by all x_q that it meets, on tensor cores (`launch.Dots`).

Kernels of one stream may overlap on Hopper (programmatic dependent launch). Each kernel lets the next one start at
once, and waits for the previous one before it reads what that kernel wrote. The first weights are read before the wait
if no kernel writes them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from algebranets.ops.kernel import (
    activate,
    at,
    begin,
    ceil_log2,
    from_bfloat16,
    from_int8,
    from_words,
    in_pairs,
    is_last_to_arrive,
    plus_bias,
    replaced,
    split_last,
    sum_of_parts,
)

# CUDA cores -----------------------------------------------------------------------------------------------------------

# A tile of weights is (lane along out, warp, out per thread, input). A thread has whole vectors of several outputs. It
# reads the inputs for them once, and threads exchange few sums. The axes are in the order in which Triton 3.6 assigns
# lanes and warps. A tile of x has the same axes without ``out per thread``. Every lane along out reads all of it, so
# that the two layouts match.


@triton.jit
def decode_linear_fwd_kernel(
    x, weight, scale, bias, y, num_rows,
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, num_tuples: tl.constexpr, stacks: tl.constexpr,
    fold: tl.constexpr, inputs: tl.constexpr, outputs: tl.constexpr,
    activation: tl.constexpr, rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, lanes: tl.constexpr,
    warps: tl.constexpr, vector: tl.constexpr, pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """Each program computes ``out`` output tuples of one stack, for ``rows`` rows."""
    begin(pdl, frozen)
    tile, stack, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * rows
    if scale is not None:  # loaded first, so that they are there when the sums are
        _, feature, is_here = places(tile, first, num_rows, size, num_copies, num_out, rows, out, lanes)
        scales = scales_of(scale, stack, feature, is_here, num_tuples)
    (total,) = product(
        x + x_offset, weight, tile, stack, first, num_rows, table, starts, dim, size, num_copies, num_in, num_out,
        x_features, 1, rows, out, inp, lanes, warps, vector, frozen, fold, inputs, outputs,
    )  # fmt: skip
    row, feature, is_here = places(tile, first, num_rows, size, num_copies, num_out, rows, out, lanes)
    if scale is not None:
        total *= scales
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
    fold: tl.constexpr = 1, inputs: tl.constexpr = None, outputs: tl.constexpr = None,
):  # fmt: skip
    """The sums of ``stacks`` stacks, beginning with ``stack``: each is (lane along out, out per thread, row and p).

    With ``wait``, it waits for the previous kernel after the first loads of weights. ``fold``, ``inputs`` and
    ``outputs`` are those of `launch.Plan`.
    """
    across: tl.constexpr = 32 // lanes
    # If every row of an int8 weight is whole words of 32 bits, words are loaded, because Triton keeps a byte in a
    # register of its own. A vector of weights then has as many numbers as two vectors of x.
    packed: tl.constexpr = weight.dtype.element_ty == tl.int8 and num_in % 4 == 0 and vector % 4 == 0
    pack: tl.constexpr = 4 if packed else 1
    parts: tl.constexpr = 2 if packed else 1
    width: tl.constexpr = lanes * vector * parts
    o = tl.arange(0, out // across)[None, None, :, None] * across + tl.arange(0, across)[:, None, None, None]
    if packed:
        j = tl.arange(0, width // 2)  # the first of the two vectors of each lane
        j = (j // vector * (2 * vector) + j % vector)[None, None, :]
        i = tl.arange(0, inp // width)[None, :, None] * width + j + tl.zeros([across, 1, 1], tl.int32)
        place = tl.arange(0, inp // width)[None, :, None] * (width // 4) + tl.arange(0, width // 4)[None, None, :]
        place = (place + tl.zeros([across, 1, 1], tl.int32))[:, :, None, :]
    else:
        i = tl.arange(0, inp // width)[None, :, None] * width + tl.arange(0, width)[None, None, :]
        i = i + tl.zeros([across, 1, 1], tl.int32)
        place = i[:, :, None, :]
    weight_at = weight + (stack.to(tl.int64) * (dim * num_out) + tile * out * fold) * num_in
    if packed:
        weight_at = weight_at.to(tl.pointer_type(tl.int32), bitcast=True)
    room = num_out - tile * out
    tiles = weights_at(
        weight_at, o, place, 0, room, dim * stacks, num_in // pack, num_out, out, inp // pack,
        vector * parts // pack, fold,
    )  # fmt: skip
    if wait:
        cuda.gdc_wait()
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    sums = ()
    for _ in tl.static_range(stacks * rows * size):
        sums = sums + (tl.zeros([across, warps, out // across, lanes], dtype),)
    for start in tl.range(inp, num_in, inp):
        # The next weights are in flight while these are multiplied.
        ahead = weights_at(
            weight_at, o, place, start // pack, room, dim * stacks, num_in // pack, num_out, out, inp // pack,
            vector * parts // pack, fold,
        )  # fmt: skip
        sums = add(
            sums, tiles, x, i, start - inp, first, num_rows, table, starts, dim, size, num_copies, num_in, x_features,
            stacks, rows, out, inp, lanes, warps, vector, parts, False, inputs,
        )  # fmt: skip
        tiles = ahead
    last: tl.constexpr = (num_in - 1) // inp * inp
    sums = add(
        sums, tiles, x, i, last, first, num_rows, table, starts, dim, size, num_copies, num_in, x_features,
        stacks, rows, out, inp, lanes, warps, vector, parts, num_in % inp != 0, inputs,
    )  # fmt: skip
    if outputs is not None:
        sums = changed(sums, outputs, size, 1)
    totals = ()
    for s in tl.static_range(stacks):
        totals = totals + (over_threads(sums[s * rows * size : (s + 1) * rows * size]),)
    return totals


@triton.jit
def changed(tensors, matrix: tl.constexpr, size: tl.constexpr, parts: tl.constexpr):
    """Change the basis of tuples of ``size`` components. A component has ``parts`` tensors. Sums are in float32."""
    new = ()
    for first in tl.static_range(0, len(tensors), size * parts):
        for k in tl.static_range(size):
            for h in tl.static_range(parts):
                total = tl.zeros(tensors[0].shape, tl.float64 if tensors[0].dtype == tl.float64 else tl.float32)
                for c in tl.static_range(size):
                    if at(matrix, k * size + c) != 0:
                        total += at(matrix, k * size + c) * tensors[first + c * parts + h].to(total.dtype)
                new = new + (total,)
    return new


@triton.constexpr_function
def rows_before(component, num_out, fold):
    """The number of rows of input tuples between the first row of a weight and the first one of a component."""
    return component // fold * (fold * num_out) + component % fold


@triton.jit
def weights_at(
    weight_at, o, i, start, room, count: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    out: tl.constexpr, inp: tl.constexpr, vector: tl.constexpr = 0, fold: tl.constexpr = 1,
):  # fmt: skip
    """Load the tiles of ``count`` components, beginning at input ``start``. ``room`` outputs are left.

    A thread loads at most ``vector`` int8 numbers or words of an output at once, so that it has the same inputs of the
    weight and of x. Loads need no mask if ``out`` and ``inp`` divide the numbers of outputs and inputs.
    """
    tiles = ()
    for c in tl.static_range(count):
        before = tl.full([], rows_before(c, num_out, fold), tl.int64) * num_in
        w_at = weight_at + before + start + (o * (fold * num_in) + i)
        if vector and (weight_at.dtype.element_ty == tl.int8 or weight_at.dtype.element_ty == tl.int32):
            w_at = tl.max_contiguous(w_at, (1, 1, 1, vector))
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
    inp: tl.constexpr, lanes: tl.constexpr, warps: tl.constexpr, vector: tl.constexpr, parts: tl.constexpr,
    is_cut: tl.constexpr, inputs: tl.constexpr,
):  # fmt: skip
    """Add the products of these tiles to ``sums``. A thread sums its vectors at once, so that it keeps few numbers.

    A vector of weights has as many numbers as ``parts`` vectors of x.
    """
    xs = ()
    for r in tl.static_range(rows):
        row = tl.minimum(first + r, num_rows - 1)
        x_at = x + (row // num_copies).to(tl.int64) * x_features + row % num_copies * (size * num_in) + start
        for q in tl.static_range(size):
            for h in tl.static_range(parts):
                if is_cut:
                    is_here = start + i + h * vector < num_in
                    xs = xs + (tl.load(x_at + q * num_in + h * vector + i, mask=is_here, other=0),)
                else:
                    xs = xs + (tl.load(x_at + q * num_in + h * vector + i),)
    if inputs is not None:
        xs = changed(xs, inputs, size, parts)
    across: tl.constexpr = 32 // lanes
    unroll: tl.constexpr = inp // (warps * lanes * vector * parts)
    new = ()
    for s in tl.static_range(stacks):
        for r in tl.static_range(rows):
            for p in tl.static_range(size):
                total = sums[(s * rows + r) * size + p]
                for t in tl.static_range(at(starts, p), at(starts, p + 1)):
                    ws = numbers_of(tiles[s * dim + at(table, 3 * t)], total.dtype, lanes, vector)
                    for h in tl.static_range(parts):
                        xq = xs[(r * size + at(table, 3 * t + 1)) * parts + h]
                        xq = from_bfloat16(xq) if parts > 1 and xq.dtype == tl.bfloat16 else xq.to(total.dtype)
                        value = at(table, 3 * t + 2) * xq[:, :, None, :] * ws[h]
                        value = value.reshape(across, unroll, warps, out // across, lanes, vector)
                        total += tl.sum(tl.sum(value, 5), 1)
                new = new + (total,)
    return new


@triton.jit
def numbers_of(tile, dtype: tl.constexpr, lanes: tl.constexpr, vector: tl.constexpr):
    """The weights of a tile as numbers of ``dtype``: two tensors for words of int8 numbers, and else one."""
    if tile.dtype == tl.int32:
        words = tile.reshape(tile.shape[0], tile.shape[1], tile.shape[2], lanes, 2, vector // 4)
        first, second = words.permute(0, 1, 2, 3, 5, 4).split()
        shape: tl.constexpr = [tile.shape[0], tile.shape[1], tile.shape[2], tile.shape[3] // 2]
        found = from_words(first.reshape(shape)).to(dtype), from_words(second.reshape(shape)).to(dtype)
    elif tile.dtype == tl.int8:
        found = (from_int8(tile).to(dtype),)
    else:
        found = (tile.to(dtype),)
    return found


@triton.jit
def scales_of(scale, stack, feature, is_here, num_tuples: tl.constexpr):
    """The scale of the output tuple of each feature of a stack, which has ``num_tuples`` output tuples."""
    return tl.load(scale + stack * num_tuples + feature % num_tuples, mask=is_here, other=0)


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
    x, weight, scale, bias, y, partial, arrived, num_rows,
    columns: tl.constexpr, places: tl.constexpr, sums: tl.constexpr, shares: tl.constexpr,
    dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, num_tuples: tl.constexpr, stacks: tl.constexpr,
    fold: tl.constexpr, activation: tl.constexpr,
    rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, splits: tl.constexpr,
    pdl: tl.constexpr, frozen: tl.constexpr,
):  # fmt: skip
    """Each program multiplies one of ``splits`` parts of the input, for ``out`` output tuples and ``rows`` rows.

    The last program of a tile to arrive adds up the parts. ``partial`` stores the result of each program. ``arrived``
    counts the finished programs of a tile. It is zero before and after the kernel.
    """
    begin(pdl, frozen)
    tile, split = tl.program_id(0) // splits, tl.program_id(0) % splits
    stack, share = tl.program_id(1) // shares, tl.program_id(1) % shares
    row = tl.program_id(2) * rows + tl.arange(0, rows)[None, :]
    i, o = tl.arange(0, inp)[None, :], tl.arange(0, out)[:, None]
    deep: tl.constexpr = dim // shares  # the components of the weight that are multiplied here
    chunks: tl.constexpr = triton.cdiv(num_in, inp * splits)
    first, room = split * (chunks * inp), num_out - tile * out
    before = stack * (dim * num_out) + share * (deep * num_out) + tile * out * fold
    weight_at = weight + before.to(tl.int64) * num_in
    x_at = rows_at(x + x_offset, num_rows, columns, size, num_copies, num_in, x_features, rows)
    # The first weights are in flight while the previous kernel ends. They are multiplied last.
    tiles = weights_at(weight_at, o, i, first, room, deep, num_in, num_out, out, inp * splits, 0, fold)
    if frozen:
        cuda.gdc_wait()
    xs = rows_of(x_at, first, num_in, inp)
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    products = (tl.zeros([out, rows * len(columns[0])], dtype),) * (len(sums) // len(columns[0]))
    for chunk in tl.range(1, chunks):
        start = first + chunk * inp
        more = rows_of(x_at, start, num_in, inp)
        ahead = weights_at(weight_at, o, i, start, room, deep, num_in, num_out, out, inp * splits, 0, fold)
        products = add_dots(products, ahead, more, places)
    totals = added_up(add_dots(products, tiles, xs, places), sums, len(columns[0]), size // shares)
    is_here, is_last = (row < num_rows) & (o < room), True
    if splits > 1:
        group = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.cdiv(num_out, out) + tile
        partial += group.to(tl.int64) * (splits * len(totals) * out * rows) + tl.arange(0, rows)[None, :] * out + o
        for p in tl.static_range(len(totals)):
            tl.store(partial + (split * len(totals) + p) * (out * rows), totals[p], mask=is_here)
        is_last = is_last_to_arrive(arrived + group, splits)
    if is_last:
        for p in tl.static_range(len(totals)):
            total = totals[p]
            if splits > 1:
                total = sum_of_parts(partial + p * (out * rows), len(totals) * out * rows, is_here, splits, dtype)
            feature = (row % num_copies * size + share * len(totals) + p) * num_out + tile * out + o
            if scale is not None:
                total *= scales_of(scale, stack, feature, is_here, num_tuples)
            feature += stack * y_features + y_offset
            total = plus_bias(total, bias, feature, is_here)
            y_at = y + (row // num_copies).to(tl.int64) * (stacks * y_features) + feature
            tl.store(y_at, activate(total, activation), mask=is_here)


@triton.jit
def rows_at(
    x, num_rows, columns: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr, num_in: tl.constexpr,
    x_features: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """For each group of columns, pointers to x, (1, column and row), and whether the row exists."""
    j = tl.arange(0, rows * len(columns[0]))[None, :]
    row = tl.program_id(2) * rows + j % rows
    found = ()
    for g in tl.static_range(len(columns)):
        q = row % num_copies * size
        for k in tl.static_range(len(columns[g])):
            q += tl.where(j // rows == k, at(columns[g], k), 0)
        found = found + (x + (row // num_copies).to(tl.int64) * x_features + q * num_in,)
    return found, row < num_rows


@triton.jit
def rows_of(x_at, start, num_in: tl.constexpr, inp: tl.constexpr):
    """Load the tiles of x, (input, column and row), beginning at input ``start``."""
    pointers, is_row = x_at
    i = start + tl.arange(0, inp)[:, None]
    xs = ()
    for g in tl.static_range(len(pointers)):
        xs = xs + (tl.load(pointers[g] + i, mask=is_row & (i < num_in), other=0),)
    return xs


@triton.jit
def add_dots(products, tiles, xs, places: tl.constexpr):
    """Add to ``products`` the dots of (output, input) of each component and (input, column and row).

    For each component, ``places`` has its group of columns and its product.
    """
    for c in tl.static_range(len(tiles)):
        x = xs[at(places, 2 * c)]
        w = from_int8(tiles[c]).to(x.dtype) if tiles[c].dtype == tl.int8 else tiles[c]
        total = products[at(places, 2 * c + 1)]
        total = tl.dot(w, x, total, input_precision="ieee", out_dtype=total.dtype)
        products = replaced(products, at(places, 2 * c + 1), total)
    return products


@triton.jit
def added_up(products, sums: tl.constexpr, width: tl.constexpr, size: tl.constexpr):
    """Add up ``products``, (output, column and row), to a sum (output, row) for each of ``size`` rows of rho(w).

    For each column of each product, ``sums`` has ``p, coefficient`` of each sum that it is part of.
    """
    totals = (tl.zeros([products[0].shape[0], products[0].shape[1] // width], products[0].dtype),) * size
    for n in tl.static_range(len(products)):
        parts = split_last(products[n], width)
        for k in tl.static_range(width):
            for t in tl.static_range(0, len(sums[n * width + k]), 2):
                total = totals[at(sums[n * width + k], t)] + at(sums[n * width + k], t + 1) * parts[k]
                totals = replaced(totals, at(sums[n * width + k], t), total)
    return totals
