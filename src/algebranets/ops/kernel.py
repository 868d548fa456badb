# ruff: noqa: RUF005, Triton knows no (*tuple, one)
"""Triton functions that several kernels use.

Conventions of all kernels: a pointer has the name of its tensor; ``x_at`` are pointers to the elements of a tile of x,
and ``offset``, ``feature`` and the like are counted from a pointer. Masks are named ``is_...``; ``is_here`` says which
elements of a tile exist. ``num_x`` counts, ``x_row`` is a stride. Addresses are 64 bits wide, sums are taken in at
least float32, and every dimension that a tile may overrun is masked.
"""

from __future__ import annotations

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
    """How often ``count`` things must be halved until one is left."""
    return (count - 1).bit_length()


# Programs that wait for each other ------------------------------------------------------------------------------------


@triton.jit
def begin(pdl: tl.constexpr, frozen: tl.constexpr):
    """Let the next kernel start; first wait for the one before, unless weights are to be read ahead of that."""
    if pdl:
        if not frozen:
            cuda.gdc_wait()
        cuda.gdc_launch_dependents()


@triton.jit
def is_last_to_arrive(counter, count):
    """Whether this is the last of ``count`` programs to come here; it then sees what all of them have stored.

    The counter is zero before the first and after the last.
    """
    tl.debug_barrier()  # all threads have stored before one of them says so
    is_last = tl.atomic_add(counter, 1, sem="acq_rel") == count - 1
    if is_last:
        tl.store(counter, 0)
    return is_last


@triton.jit
def sum_of_parts(part_at, stride, is_here, count: tl.constexpr, dtype: tl.constexpr):
    """The sum of what ``count`` programs stored ``stride`` apart, always taken in the same order.

    It is read past the first cache, which other programs do not write into. Without ``is_here``, all of it exists.
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
    """Tensors of one shape joined in pairs, filled up to a power of two: a new axis of 2 for each time."""
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
def plus_bias(total, bias, place, is_here):
    """``total`` plus the bias, where there is one."""
    if bias is not None:
        total += tl.load(bias + place, mask=is_here, other=0).to(total.dtype)
    return total


@triton.jit
def activate(x, activation: tl.constexpr):
    """The activation of this name, in the precision of ``x``."""
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
    """tanh by the exponential, which every backend has; where that overflows, it is 1."""
    return 1 - 2 / (tl.exp(2 * x) + 1)


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on the CPU."""
    return not isinstance(tanh, JITFunction)  # the interpreter's own class is in a module that imports numpy
