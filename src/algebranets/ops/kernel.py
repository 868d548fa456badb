# ruff: noqa: RUF005, Triton does not support (*tuple, one)
"""Triton functions that several kernels use.

Conventions of all kernels: a pointer has the name of its tensor. ``x_at`` are pointers to the elements of a tile of x.
``offset``, ``feature`` and similar names are offsets from a pointer. Masks are named ``is_...``; ``is_here`` says which
elements of a tile exist. ``num_x`` is a count, ``x_row`` is a stride. Addresses are 64 bits wide, sums are taken in at
least float32, and every dimension that a tile may overrun is masked.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda
from triton.runtime.jit import JITFunction

# Constants ------------------------------------------------------------------------------------------------------------


@triton.constexpr_function
def at(numbers, place):
    """``numbers[place]``, known when the kernel is compiled."""
    return numbers[place]


@triton.constexpr_function
def ceil_log2(count):
    """The base-2 logarithm of ``count``, rounded up."""
    return (count - 1).bit_length()


# Programs that wait for each other ------------------------------------------------------------------------------------


@triton.jit
def begin(pdl: tl.constexpr, frozen: tl.constexpr):
    """Let the next kernel start. Wait for the previous kernel first, unless the weights are ``frozen``.

    With frozen weights, the caller waits after it has read them.
    """
    if pdl:
        if not frozen:
            cuda.gdc_wait()
        cuda.gdc_launch_dependents()


@triton.jit
def is_last_to_arrive(counter, count):
    """Whether this program is the last of ``count`` to arrive. If so, it sees what all of them have stored.

    The counter is zero before the first program arrives and after the last one has.
    """
    tl.debug_barrier()  # all threads of this program have stored before it is counted
    is_last = tl.atomic_add(counter, 1, sem="acq_rel") == count - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def sum_of_parts(part_at, stride, is_here, count: tl.constexpr, dtype: tl.constexpr):
    """The sum of the parts that ``count`` programs stored ``stride`` apart, always in the same order.

    Loads bypass the L1 cache, which other programs do not write to. If ``is_here`` is None, there is no mask.
    """
    total = tl.zeros(part_at.shape, dtype)
    for s in tl.static_range(count):
        if is_here is None:
            total += tl.load(part_at + s * stride, cache_modifier=".cg")
        else:
            total += tl.load(part_at + s * stride, mask=is_here, other=0, cache_modifier=".cg")
    return total


# Arithmetic -----------------------------------------------------------------------------------------------------------


@triton.jit
def in_pairs(parts):
    """Join tensors of one shape in pairs until one is left. Each round adds a last axis of size 2.

    The first tensor is repeated to fill up their number to a power of two.
    """
    levels: tl.constexpr = ceil_log2(len(parts))
    for _ in tl.static_range((1 << levels) - len(parts)):
        parts = parts + (parts[0],)
    for _ in tl.static_range(levels):
        pairs = ()
        for j in tl.static_range(len(parts) // 2):
            pairs = pairs + (tl.join(parts[j], parts[j + len(parts) // 2]),)
        parts = pairs
    return parts[0]


@triton.jit
def split_last(x, count: tl.constexpr):
    """Split the columns of a matrix into ``count`` equal parts, a power of two. Each is a matrix."""
    parts = (x,)
    for level in tl.static_range(ceil_log2(count)):
        new = ()
        for n in tl.static_range(len(parts)):
            halves = parts[n].reshape(x.shape[0], 2, x.shape[1] >> level + 1)
            first, second = halves.permute(0, 2, 1).split()
            new = new + (first, second)
        parts = new
    return parts


@triton.jit
def replaced(tensors, n: tl.constexpr, new):
    """The tuple ``tensors`` with ``new`` in place of its tensor number ``n``."""
    return tensors[:n] + (new,) + tensors[n + 1 :]


@triton.jit
def plus_bias(total, bias, place, is_here):
    """``total`` plus the bias, or ``total`` if ``bias`` is None."""
    if bias is not None:
        total += tl.load(bias + place, mask=is_here, other=0).to(total.dtype)
    return total


@triton.jit
def activate(x, activation: tl.constexpr):
    """Apply the activation with this name, in the precision of ``x``."""
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
    """tanh computed from exp, which every backend has. The result is 1 if exp overflows."""
    return 1 - 2 / (tl.exp(2 * x) + 1)


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return not isinstance(tanh, JITFunction)  # importing the interpreter's own class would import numpy


# int8 numbers ---------------------------------------------------------------------------------------------------------

#: Whether kernels are compiled for a GPU of NVIDIA, so that they may contain its instructions.
HAS_PTX = tl.constexpr(torch.version.cuda is not None and not is_interpreted())


@triton.jit
def from_bfloat16(x):
    """bfloat16 numbers in float32, two at once."""
    if HAS_PTX:
        bits = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xFFFF0000;", "=&r,=r,r", [x], tl.uint32, True, 2
        )
        number = bits.to(tl.float32, bitcast=True)
    else:
        number = x.to(tl.float32)
    return number


@triton.jit
def from_words(words):
    """The four int8 numbers of each word in float32, in order: the last axis is four times as long."""
    a, b, c, d = from_word(words)
    return tl.join(tl.join(a, c), tl.join(b, d)).reshape(words.shape[:-1] + [4 * words.shape[-1]])


@triton.jit
def from_word(word):
    """The four int8 numbers of a word in float32.

    The bits of 2^23 + 128 + w are put together. This takes no instruction that converts integers. Those were slower for
    the same tile at width 16384.
    """
    if HAS_PTX:
        a, b, c, d = tl.inline_asm_elementwise(
            """
            {
            .reg .b32 biased;
            xor.b32 biased, $4, 0x80808080;
            prmt.b32 $0, biased, 0x4B000000, 0x7440;
            prmt.b32 $1, biased, 0x4B000000, 0x7441;
            prmt.b32 $2, biased, 0x4B000000, 0x7442;
            prmt.b32 $3, biased, 0x4B000000, 0x7443;
            }
            """,
            "=r,=r,=r,=r,r", [word], (tl.uint32, tl.uint32, tl.uint32, tl.uint32), True, 1,
        )  # fmt: skip
        found = from_bits(a), from_bits(b), from_bits(c), from_bits(d)
    else:
        found = ()
        for k in tl.static_range(4):
            found = found + (from_int8((word >> 8 * k & 0xFF).to(tl.int8)),)
    return found


@triton.jit
def from_int8(w):
    """int8 numbers in float32, in operations that every backend has."""
    return from_bits((w.to(tl.uint8, bitcast=True) ^ 0x80).to(tl.uint32) | 0x4B000000)


@triton.jit
def from_bits(bits):
    """The number w from the bits of 2^23 + 128 + w in float32."""
    return bits.to(tl.float32, bitcast=True) - 8388736.0
