# ruff: noqa: RUF005, Triton does not support (*tuple, one)
"""Kernels of ``decode_linear``: y = w . x for few rows.

The compact weights are read once and expanded in registers. Each block of the algebra is a launch of its own
(`launch.Plan`). int8 weights are multiplied as whole numbers, and each sum by the scale of its output tuple at the end.
The input and the sums of an algebra that is stored in another basis change their basis in registers (`Algebra.change`).
Shapes: rows are batch and copy of the block; p, q are rows and columns of rho(w), c components of the weight; o, i
output and input tuples. There are two versions of one sum over (c, q, i):

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
    table: tl.constexpr, starts: tl.constexpr, dim: tl.constexpr, size: tl.constexpr, num_copies: tl.constexpr,
    num_in: tl.constexpr, num_out: tl.constexpr, x_features: tl.constexpr, y_features: tl.constexpr,
    x_offset: tl.constexpr, y_offset: tl.constexpr, num_tuples: tl.constexpr, stacks: tl.constexpr,
    fold: tl.constexpr, is_whole: tl.constexpr, activation: tl.constexpr,
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
    weight_at = weight + (stack.to(tl.int64) * (dim * num_out) + tile * out * fold) * num_in
    x += x_offset + batch * x_features + component * num_in + i[None, :]
    # The first weights are in flight while the previous kernel ends. They are multiplied last.
    tiles = weights_at(weight_at, o, i[:, None], first, room, dim, num_in, num_out, out, inp * splits, 0, fold)
    if frozen:
        if chunks > 1:
            read_ahead(weight_at, first + inp, (chunks - 1) * inp, room, dim, num_in, num_out, out, fold)
        cuda.gdc_wait()
    xs = tl.load(x + first, mask=is_row & (first + i[None, :] < num_in), other=0)
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    products = ()
    for _ in tl.static_range(dim):
        products = products + (tl.zeros([j.shape[0], out], dtype),)
    for chunk in tl.range(1, chunks):
        start = first + chunk * inp
        more = tl.load(x + start, mask=is_row & (start + i[None, :] < num_in), other=0)
        ahead = weights_at(weight_at, o, i[:, None], start, room, dim, num_in, num_out, out, inp * splits, 0, fold)
        products = add_dots(products, more, ahead)
    total = combined(add_dots(products, xs, tiles), j, table, starts, size, is_whole)
    is_here, is_last = is_row & (o < room), True
    if splits > 1:
        group = (tl.program_id(2) * stacks + stack) * tl.cdiv(num_out, out) + tile
        partial += group.to(tl.int64) * (splits * j.shape[0] * out) + j * out + o
        tl.store(partial + split * (j.shape[0] * out), total, mask=is_here)
        is_last = is_last_to_arrive(arrived + group, splits)
    if is_last:
        if splits > 1:
            total = sum_of_parts(partial, j.shape[0] * out, is_here, splits, dtype)
        feature = component * num_out + tile * out + o
        if scale is not None:
            total *= scales_of(scale, stack, feature, is_here, num_tuples)
        feature = stack * y_features + y_offset + component * num_out + tile * out + o
        total = plus_bias(total, bias, feature, is_here)
        tl.store(y + batch * (stacks * y_features) + feature, activate(total, activation), mask=is_here)


@triton.jit
def add_dots(products, x, tiles):
    """Add to ``products``, for each component of the weight, the dot of (row and q, input) and (input, output)."""
    new = ()
    for c in tl.static_range(len(tiles)):
        w = from_int8(tiles[c]).to(x.dtype) if tiles[c].dtype == tl.int8 else tiles[c]
        new = new + (tl.dot(x, w, products[c], input_precision="ieee", out_dtype=products[c].dtype),)
    return new


@triton.jit
def combined(products, j, table: tl.constexpr, starts: tl.constexpr, size: tl.constexpr, is_whole: tl.constexpr):
    """Add up ``products``, (row and q, output) for each component of the weight, to sums (row and p, output).

    ``table`` and ``starts`` are `launch.Plan.by_component`. ``is_whole`` says whether the coefficients are whole
    numbers. ``j`` is row and p.
    """
    number: tl.constexpr = tl.int32 if is_whole else products[0].dtype
    p, last = j % size, products[0].shape[0] - 1
    total = tl.zeros_like(products[0])
    for c in tl.static_range(len(products)):
        for t in tl.static_range(at(starts, c), at(starts, c + 1)):
            q = tl.zeros_like(p)
            by = tl.zeros(p.shape, number)
            for k in tl.static_range(size):
                q = tl.where(p == k, at(table, 2 * (t * size + k)), q)
                by = tl.where(p == k, tl.full([], at(table, 2 * (t * size + k) + 1), number), by)
            found = products[c]
            if size > 1:
                source = tl.minimum(j - p + q, last)
                found = tl.gather(found, tl.broadcast_to(source, found.shape), 0)
            total += tl.where(by == 0, 0, by.to(total.dtype) * found)
    return total


@triton.jit
def read_ahead(
    weight_at, start, count: tl.constexpr, room, dim: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    out: tl.constexpr, fold: tl.constexpr,
):  # fmt: skip
    """Prefetch ``count`` inputs of all components into the L2 cache, in lines of 128 bytes."""
    line: tl.constexpr = 1024 // weight_at.dtype.element_ty.primitive_bitwidth
    lines: tl.constexpr = min(32, triton.next_power_of_2(triton.cdiv(count, line)))
    o = tl.minimum(tl.arange(0, out), room - 1)[:, None]
    for c in tl.static_range(dim):
        component = weight_at + tl.full([], rows_before(c, num_out, fold), tl.int64) * num_in
        for ahead in tl.range(0, count, lines * line):
            i = tl.minimum(start + ahead + tl.arange(0, lines) * line, num_in - 1)[None, :]
            tl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
                [(component + o * (fold * num_in) + i).to(tl.int64)], tl.int32, False, 1,
            )  # fmt: skip
