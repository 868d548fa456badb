# ruff: noqa: RUF005, Triton does not support (*tuple, one)
"""Kernels of ``sparse_linear``: y = w . x, reading only the tuples that are stored.

The tuples of an output are stored one after the other. The components of a tuple are adjacent, and are loaded as words
of up to 64 bits. Shapes: o output tuples, n tuples of an output, i input tuples. There are two versions of one sum:

- `sparse_linear_pick_fwd_kernel` is for few rows, on CUDA cores. A program keeps the input on the chip, also packed
  into words, and picks the input tuple that each index names.
- `sparse_linear_fill_fwd_kernel` is for more rows, on tensor cores. It fills the tuples into tiles, with zeros between
  them. Bit maps say where they belong.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from algebranets.ops.kernel import activate, at, ceil_log2, in_pairs, is_last_to_arrive, plus_bias, sum_of_parts
from algebranets.ops.sparse_linear.maps import SPAN as INPUTS_A_NUMBER


def num_fitting(bits: int, dim: int) -> int:
    """The components of ``bits`` bits in a word of up to 64 bits, such that all words of ``dim`` components are full.

    >>> num_fitting(16, 4), num_fitting(16, 9), num_fitting(32, 4)
    (4, 1, 2)
    """
    count = 64 // bits
    while dim % count:
        count //= 2
    return count


components_a_word = triton.constexpr_function(num_fitting)

# Few rows -------------------------------------------------------------------------------------------------------------

# A tile of tuples is (output, lane). A warp has whole outputs. A thread has ``unroll`` tiles, which it loads one by one
# and sums without exchanging data with other threads.


@triton.jit
def sparse_linear_pick_fwd_kernel(
    x, starts, indices, values, bias, y, num_rows,
    terms: tl.constexpr, places: tl.constexpr, dim: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    activation: tl.constexpr, rows: tl.constexpr, out: tl.constexpr, unroll: tl.constexpr, once: tl.constexpr,
    pdl: tl.constexpr, frozen: tl.constexpr, native: tl.constexpr,
):  # fmt: skip
    """Each program computes ``out`` output tuples for ``rows`` rows.

    ``places`` are the places of components in activations. ``once`` means that the tuples of every output are loaded at
    once, before ``x`` is ready.
    """
    if pdl and not frozen:
        cuda.gdc_wait()
    o = tl.program_id(0) * out + tl.arange(0, out)
    start = tl.load(starts + o, mask=o < num_out, other=0)
    end = tl.load(starts + o + 1, mask=o < num_out, other=0)
    n = start[:, None] + tl.arange(0, 32)[None, :]
    place, weights = tuples_at(indices, values, n, end[:, None], dim, unroll)
    first = tl.program_id(1) * rows
    x_at = rows_at(x, first, num_rows, dim, num_in, rows)  # before the wait, so that the loads follow it immediately
    if frozen:
        cuda.gdc_wait()
    if pdl:  # not earlier, because the next kernel's loads would delay those of the input
        cuda.gdc_launch_dependents()
    inputs = packed_rows(x_at, places, dim, num_in, rows, native)
    dtype: tl.constexpr = tl.float64 if values.dtype.element_ty == tl.float64 else tl.float32
    sums = ()
    for _ in tl.static_range(rows * dim):
        sums = sums + (tl.zeros([out, 32], dtype),)
    if not once:
        for chunk in tl.range(1, tl.cdiv(tl.max(end - start, 0), unroll * 32)):
            ahead, others = tuples_at(indices, values, n + chunk * (unroll * 32), end[:, None], dim, unroll)
            sums = add(sums, inputs, place, weights, x.dtype.element_ty, terms, places, dim, rows, unroll)
            place, weights = ahead, others
    sums = add(sums, inputs, place, weights, x.dtype.element_ty, terms, places, dim, rows, unroll)
    total = tl.sum(joined(sums), 1)
    j = tl.arange(0, total.shape[1])[None, :]
    row, feature = first + j // dim, j % dim * num_out + o[:, None]
    is_here = (o[:, None] < num_out) & (j < rows * dim) & (row < num_rows)
    total = plus_bias(total, bias, feature, is_here)
    tl.store(y + row.to(tl.int64) * (dim * num_out) + feature, activate(total, activation), mask=is_here)


@triton.jit
def tuples_at(indices, values, n, end, dim: tl.constexpr, unroll: tl.constexpr):
    """Load the indices and the words of the tuples ``n + 32 * u`` for ``u < unroll``, or zeros from ``end`` on.

    The indices are `joined`.
    """
    bits: tl.constexpr = values.dtype.element_ty.primitive_bitwidth
    per_word: tl.constexpr = components_a_word(bits, dim)
    index = indices.to(tl.pointer_type(integers(indices.dtype.element_ty.primitive_bitwidth))) + n
    value_at = values.to(tl.pointer_type(integers(bits * per_word))) + n.to(tl.int64) * (dim // per_word)
    places = ()
    for u in tl.static_range(unroll):
        place = tl.load(index + u * 32, mask=n + u * 32 < end, other=0, eviction_policy="evict_first")
        places = places + (place.to(tl.int32),)
    words = ()
    for u in tl.static_range(unroll):
        for i in tl.static_range(dim // per_word):
            word_at = value_at + u * (32 * dim // per_word) + i
            words = words + (tl.load(word_at, mask=n + u * 32 < end, other=0, eviction_policy="evict_first"),)
    return joined(places), words


@triton.jit
def joined(parts):
    """Stack tensors of two axes along a third, filled up to a power of two. The third axis is within a thread."""
    return in_pairs(parts).reshape(parts[0].shape[0], parts[0].shape[1], 1 << ceil_log2(len(parts)))


@triton.jit
def apart(whole, count: tl.constexpr):
    """The ``count`` tensors that `joined` has stacked. ``count`` is a power of two."""
    parts = (whole,)
    for level in tl.static_range(ceil_log2(count)):
        evens = ()
        odds = ()
        for j in tl.static_range(len(parts)):
            even, odd = tl.split(parts[j].reshape(whole.shape[0], whole.shape[1], count >> (level + 1), 2))
            evens = evens + (even,)
            odds = odds + (odd,)
        parts = evens + odds
    flat = ()
    for j in tl.static_range(count):
        flat = flat + (parts[j].reshape(whole.shape[0], whole.shape[1]),)
    return flat


@triton.jit
def rows_at(x, first, num_rows, dim: tl.constexpr, num_in: tl.constexpr, rows: tl.constexpr):
    """A tuple of pointers to the inputs of ``rows`` rows. The last row is repeated if there are fewer."""
    x_at = ()
    for r in tl.static_range(rows):
        row = tl.minimum(first + r, num_rows - 1).to(tl.int64)
        x_at = x_at + (x + row * (dim * num_in) + tl.arange(0, triton.next_power_of_2(num_in)),)
    return x_at


@triton.jit
def packed_rows(
    x_at, places: tl.constexpr, dim: tl.constexpr, num_in: tl.constexpr, rows: tl.constexpr, native: tl.constexpr
):  # fmt: skip
    """Load the input tuples of ``rows`` rows, packed into words like those of the weight in `tuples_at`."""
    bits: tl.constexpr = x_at[0].dtype.element_ty.primitive_bitwidth
    per_word: tl.constexpr = components_a_word(bits, dim)
    i = tl.arange(0, triton.next_power_of_2(num_in))
    packed = ()
    for r in tl.static_range(rows):
        for w in tl.static_range(dim // per_word):
            numbers = ()
            for c in tl.static_range(per_word):
                number = tl.load(x_at[r] + at(places, w * per_word + c) * num_in, mask=i < num_in, other=0)
                numbers = numbers + (number.to(integers(bits), bitcast=True),)
            packed = packed + (as_word(numbers, native),)
    return packed


@triton.jit
def as_word(parts, native: tl.constexpr):
    """Pack unsigned integers into a wider one. Their number is a power of two."""
    for _ in tl.static_range(ceil_log2(len(parts))):
        wider = ()
        for j in tl.static_range(len(parts) // 2):
            wider = wider + (twice_as_wide(parts[2 * j], parts[2 * j + 1], native),)
        parts = wider
    return parts[0]


@triton.jit
def twice_as_wide(low, high, native: tl.constexpr):
    """Pack two unsigned integers into one. If ``native``, two of 16 bits are packed by one instruction of the GPU."""
    bits: tl.constexpr = low.dtype.primitive_bitwidth
    if native and bits == 16:
        wide = tl.inline_asm_elementwise("mov.b32 $0, {$1, $2};", "=r,h,h", [low, high], tl.uint32, True, 1)
    else:
        wide = low.to(integers(2 * bits)) | high.to(integers(2 * bits)) << bits
    return wide


@triton.jit
def add(
    sums, inputs, place, weights, kind: tl.constexpr, terms: tl.constexpr, places: tl.constexpr, dim: tl.constexpr,
    rows: tl.constexpr, unroll: tl.constexpr,
):  # fmt: skip
    """``sums`` plus the products of these weight tuples and their input tuples."""
    per_word: tl.constexpr = components_a_word(kind.primitive_bitwidth, dim)
    words: tl.constexpr = dim // per_word
    dtype: tl.constexpr = sums[0].dtype
    flat = place.reshape(place.numel)
    w = unpacked(weights, kind, per_word, dtype)
    new = ()
    for r in tl.static_range(rows):
        found = ()
        for word in tl.static_range(words):
            found = found + apart(tl.gather(inputs[r * words + word], flat, 0).reshape(place.shape), unroll)
        totals = sums[r * dim : (r + 1) * dim]
        for u in tl.static_range(unroll):
            x = unpacked(found[u::unroll], kind, per_word, dtype)
            totals = add_product(totals, w[u * dim : (u + 1) * dim], x, terms, places)
        new = new + totals
    return new


@triton.jit
def add_product(totals, w, x, terms: tl.constexpr, places: tl.constexpr):
    """``totals`` plus the components of w . x, both in the order of places."""
    new = ()
    for p in tl.static_range(len(totals)):
        total = totals[p]
        for t in tl.static_range(len(terms) // 4):
            if at(places, at(terms, 4 * t + 2)) == p:
                total += at(terms, 4 * t + 3) * w[at(terms, 4 * t)] * x[at(terms, 4 * t + 1)]
        new = new + (total,)
    return new


@triton.jit
def unpacked(words, kind: tl.constexpr, per_word: tl.constexpr, dtype: tl.constexpr):
    """Unpack the components in ``words``, one tensor for each component."""
    bits: tl.constexpr = kind.primitive_bitwidth
    parts = ()
    for word in tl.static_range(len(words)):
        for c in tl.static_range(per_word):
            if kind == tl.bfloat16 and dtype == tl.float32:  # bfloat16 is the upper half of a float32
                half = (words[word] >> (c // 2 * 32)).to(tl.uint32)
                number = ((half & 0xFFFF0000) if c % 2 else (half << 16)).to(dtype, bitcast=True)
            else:
                number = (words[word] >> (c * bits)).to(integers(bits)).to(kind, bitcast=True).to(dtype)
            parts = parts + (number,)
    return parts


@triton.constexpr_function
def integers(bits):
    """The unsigned integer type with this many bits."""
    return {8: tl.uint8, 16: tl.uint16, 32: tl.uint32, 64: tl.uint64}[bits]


# More rows ------------------------------------------------------------------------------------------------------------

SPAN = tl.constexpr(INPUTS_A_NUMBER)
#: The number of adjacent inputs that a thread fills, so that it stores them as one vector.
RUN = tl.constexpr(8)


@triton.jit
def sparse_linear_fill_fwd_kernel(
    x, maps, values, bias, y, partial, arrived, num_rows,
    terms: tl.constexpr, places: tl.constexpr, dim: tl.constexpr, num_in: tl.constexpr, num_out: tl.constexpr,
    activation: tl.constexpr, rows: tl.constexpr, out: tl.constexpr, inp: tl.constexpr, splits: tl.constexpr,
    pdl: tl.constexpr, frozen: tl.constexpr, native: tl.constexpr,
):  # fmt: skip
    """Each program multiplies one of ``splits`` shares of the input, for ``out`` output tuples and ``rows`` rows.

    The last program to arrive adds up the shares, as in `decode_linear_dot_fwd_kernel`.
    """
    if pdl and not frozen:
        cuda.gdc_wait()
    tile, split = tl.program_id(0) // splits, tl.program_id(0) % splits
    o, i, run = tile * out + tl.arange(0, out), tl.arange(0, inp)[:, None], tl.arange(0, inp // RUN)[:, None] * RUN
    row = tl.program_id(1) * rows + tl.arange(0, rows)[None, :]
    chunks: tl.constexpr = triton.cdiv(num_in, inp * splits)
    first = split * (chunks * inp)
    x += tl.minimum(row, num_rows - 1).to(tl.int64) * (dim * num_in)
    dtype: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    sums = ()
    for _ in tl.static_range(dim):
        sums = sums + (tl.zeros([out, rows], dtype),)
    words = filled(values, map_at(maps, o, first + run, num_in, num_out), run, dim, native)
    found = map_at(maps, o, first + inp + run, num_in, num_out)
    if frozen:
        cuda.gdc_wait()
    for chunk in tl.range(0, chunks):
        # The next tuples, and the map of the tuples after them, are in flight while these are multiplied.
        start = first + chunk * inp
        ahead = filled(values, found, run, dim, native)
        found = map_at(maps, o, start + 2 * inp + run, num_in, num_out)
        sums = add_products(sums, words, x, start + i, terms, places, dim, num_in)
        words = ahead
    if pdl:  # not earlier, because the next kernel's programs would slow down this kernel
        cuda.gdc_launch_dependents()
    is_last = True
    if splits > 1:
        group = tl.program_id(1) * tl.cdiv(num_out, out) + tile
        cell = tl.arange(0, out)[:, None] * rows + tl.arange(0, rows)[None, :]
        partial += group.to(tl.int64) * (splits * dim * out * rows) + cell
        for p in tl.static_range(dim):
            tl.store(partial + (split * dim + p) * (out * rows), sums[p])
        is_last = is_last_to_arrive(arrived + group, splits)
    if is_last:
        is_here = (o[:, None] < num_out) & (row < num_rows)
        for p in tl.static_range(dim):
            total = sums[p]
            if splits > 1:
                total = sum_of_parts(partial + p * (out * rows), dim * out * rows, None, splits, dtype)
            feature = p * num_out + o[:, None]
            total = plus_bias(total, bias, feature, is_here)
            tl.store(y + row.to(tl.int64) * (dim * num_out) + feature, activate(total, activation), mask=is_here)


@triton.jit
def map_at(maps, o, i, num_in: tl.constexpr, num_out: tl.constexpr):
    """Load the numbers of the maps for inputs ``i`` and outputs ``o``: bits, and above them where tuples begin."""
    spans: tl.constexpr = triton.cdiv(num_in, SPAN)
    word_at = maps + o[None, :].to(tl.int64) * spans + i // SPAN
    return tl.load(word_at, mask=(o[None, :] < num_out) & (i < num_in), other=0)


@triton.jit
def filled(values, found, run, dim: tl.constexpr, native: tl.constexpr):
    """Load the words of the tuples in the maps, (output, input), with zeros if there is no tuple.

    ``found`` has one number of a map for each `RUN` of inputs and each output. Triton assigns adjacent threads to the
    first axis, so that they load adjacent tuples.
    """
    bits: tl.constexpr = values.dtype.element_ty.primitive_bitwidth
    per_word: tl.constexpr = components_a_word(bits, dim)
    shift = (run % SPAN).to(tl.uint32)
    present = found.to(tl.uint32)
    below = present & ((tl.full([], 1, tl.uint32) << shift) - 1)
    present >>= shift
    value_at = values.to(tl.pointer_type(integers(bits * per_word)))
    value_at += ((found >> SPAN) + num_bits(below, native)) * (dim // per_word)
    passed = tl.zeros(found.shape, tl.int32)
    parts = ()
    for u in tl.static_range(RUN):
        is_tuple = ((present >> u) & 1).to(tl.int32)
        for w in tl.static_range(dim // per_word):
            parts = parts + (tl.load(value_at + passed * (dim // per_word) + w, mask=is_tuple != 0, other=0),)
        passed += is_tuple
    words = ()
    for w in tl.static_range(dim // per_word):
        word = joined(parts[w :: dim // per_word]).permute(1, 0, 2)
        words = words + (word.reshape(found.shape[1], found.shape[0] * RUN),)
    return words


@triton.jit
def num_bits(word, native: tl.constexpr):
    """The number of bits that are set."""
    if native:
        count = tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [word], tl.int32, True, 1)
    else:
        word = word - ((word >> 1) & 0x55555555)
        word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
        word = (word + (word >> 4)) & 0x0F0F0F0F
        word = word + (word >> 8)
        count = ((word + (word >> 16)) & 0x3F).to(tl.int32)
    return count


@triton.jit
def add_products(
    sums, words, x, i, terms: tl.constexpr, places: tl.constexpr, dim: tl.constexpr, num_in: tl.constexpr
):  # fmt: skip
    """``sums``, in the order of places, plus the products of these tuples and the inputs ``i``."""
    kind: tl.constexpr = x.dtype.element_ty
    w = unpacked(words, kind, components_a_word(kind.primitive_bitwidth, dim), kind)
    xs = ()
    for j in tl.static_range(dim):
        xs = xs + (tl.load(x + at(places, j) * num_in + i, mask=i < num_in, other=0),)
    new = ()
    for p in tl.static_range(dim):
        total = sums[p]
        for t in tl.static_range(len(terms) // 4):
            if at(places, at(terms, 4 * t + 2)) == p:
                total = add_dot(total, w[at(terms, 4 * t)], xs[at(terms, 4 * t + 1)], at(terms, 4 * t + 3))
        new = new + (total,)
    return new


@triton.jit
def add_dot(total, w, x, by: tl.constexpr):
    """``total + by * dot(w, x)``. Only a sign is applied before the product, because it is exact in every precision."""
    if by == 1:
        total = tl.dot(w, x, total, input_precision="ieee", out_dtype=total.dtype)
    elif by == -1:
        total = tl.dot(w, -x, total, input_precision="ieee", out_dtype=total.dtype)
    else:
        total += by * tl.dot(w, x, input_precision="ieee", out_dtype=total.dtype)
    return total
