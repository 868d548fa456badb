"""What one token goes through besides linear layers: attention to a cache, and a normalised residual addition.

Shapes: B batch, h heads, d = A * tuples per head, E = h * d; planar features are ordered (component, head, tuple).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from algebranets.product.kernels.jit import ceil_div, next_power_of_2

#: Numbers of a ring that a program holds at a time, and how many programs there are at most: several for each
#: multiprocessor of a large GPU, so that enough reads are under way to use its whole bandwidth.
TILE, PROGRAMS = 8192, 1024


def attend(
    query: Float[Tensor, "batch 1 embed"],
    key: Float[Tensor, "batch 1 embed"],
    value: Float[Tensor, "batch 1 embed"],
    u: Float[Tensor, " embed"],
    v: Float[Tensor, " embed"],
    keys: Float[Tensor, "batch heads slots d"],
    values: Float[Tensor, "batch heads slots d"],
    distances: Float[Tensor, "heads slots d"],
    position: Int[Tensor, ""],
    arrivals: Int[Tensor, " counters"],
    dim: int,
) -> Float[Tensor, "batch 1 embed"]:
    """One token's relative attention to the rings it is written into, ``dim`` components a tuple; one launch."""
    batch, heads, slots, size = keys.shape
    width = next_power_of_2(size)
    tile = min(max(1, TILE // width), next_power_of_2(slots))
    most = max(1, PROGRAMS // (batch * heads))  # parts that a head may be cut into
    span = tile * ceil_div(ceil_div(slots, tile), most)
    splits = ceil_div(slots, span)
    precision = _precision(query)
    parts = query.new_empty(batch * heads, splits, size + 2, dtype=precision)
    y = torch.empty_like(query, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(query):
        attend_kernel[batch * heads, splits](
            query.contiguous(), key.contiguous(), value.contiguous(), u.contiguous(), v.contiguous(),
            keys, *keys.stride(), values, *values.stride(), distances, *distances.stride(),
            position, arrivals, parts, y, slots, span, heads, size, size // dim,
            splits, next_power_of_2(splits), tile, width, _NAMES[precision], num_warps=4,
        )  # fmt: skip
    return y


@triton.jit
def attend_kernel(
    query, key, value, u, v,
    keys, keys_batch, keys_head, keys_slot, keys_d,
    values, values_batch, values_head, values_slot, values_d,
    distances, distances_head, distances_slot, distances_d,
    position, arrivals, parts, y, slots, span, heads: tl.constexpr, size: tl.constexpr, each: tl.constexpr,
    splits: tl.constexpr, height: tl.constexpr, tile: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """A program: ``span`` slots of one head. The last one of a head to arrive joins what all of them found."""
    row, split = tl.program_id(0), tl.program_id(1)
    b, h = (row // heads).to(tl.int64), (row % heads).to(tl.int64)
    now = tl.load(position)
    newest = (now % slots).to(tl.int32)
    d = tl.arange(0, width)
    is_d = d < size
    planar = (d // each) * (heads * each) + h * each + d % each
    own = b * heads * size + planar
    scale = 1 / tl.sqrt(tl.full([], size, precision))
    q = tl.load(query + own, mask=is_d, other=0).to(precision)
    to_key = (q + tl.load(u + planar, mask=is_d, other=0).to(precision)) * scale
    to_distance = (q + tl.load(v + planar, mask=is_d, other=0).to(precision)) * scale
    new_key = tl.load(key + own, mask=is_d, other=0).to(keys.dtype.element_ty)
    new_value = tl.load(value + own, mask=is_d, other=0).to(values.dtype.element_ty)
    keys += b * keys_batch + h * keys_head
    values += b * values_batch + h * values_head
    distances += h * distances_head

    first = split * span
    last = tl.minimum(tl.minimum(first + span, slots), now + 1).to(tl.int32)  # slots from now + 1 on are still empty
    if (newest >= first) & (newest < last):
        tl.store(keys + newest.to(tl.int64) * keys_slot + d * keys_d, new_key, mask=is_d)
        tl.store(values + newest.to(tl.int64) * values_slot + d * values_d, new_value, mask=is_d)
    top = tl.full([], -float("inf"), precision)
    total = tl.zeros([], precision)
    sums = tl.zeros([width], precision)
    start = first
    while start < last:
        slot = start + tl.arange(0, tile)
        is_slot, is_new = slot < last, (slot == newest)[:, None]
        is_old = is_slot[:, None] & is_d[None, :] & (slot != newest)[:, None]  # the new one may not be there yet
        at, distance = slot.to(tl.int64)[:, None], ((newest - slot + slots) % slots).to(tl.int64)[:, None]
        k = tl.load(keys + at * keys_slot + d[None, :] * keys_d, mask=is_old, other=0)
        r = tl.load(
            distances + distance * distances_slot + d[None, :] * distances_d,
            mask=is_slot[:, None] & is_d[None, :], other=0,
        )  # fmt: skip
        w = tl.load(values + at * values_slot + d[None, :] * values_d, mask=is_old, other=0)
        k, w = tl.where(is_new, new_key[None, :], k), tl.where(is_new, new_value[None, :], w)
        scores = tl.sum(k.to(precision) * to_key[None, :] + r.to(precision) * to_distance[None, :], 1)
        scores = tl.where(is_slot, scores, -float("inf"))
        highest = tl.maximum(top, tl.max(scores, 0))
        weights, kept = tl.exp(scores - highest), tl.exp(top - highest)
        total = total * kept + tl.sum(weights, 0)
        sums = sums * kept + tl.sum(weights[:, None] * w.to(precision), 0)
        top = highest
        start += tile

    part = parts + (row.to(tl.int64) * splits + split) * (size + 2)
    tl.store(part + d, sums, mask=is_d)
    tl.store(part + size, top)
    tl.store(part + size + 1, total)
    tl.debug_barrier()  # every thread has written its share before one of them says so
    if tl.atomic_add(arrivals + row, 1) == splits - 1:
        i = tl.arange(0, height)
        is_part = i < splits
        each_part = parts + (row.to(tl.int64) * splits + i) * (size + 2)
        # Read past the first cache, which other programs do not write into.
        tops = tl.load(each_part + size, mask=is_part, other=-float("inf"), cache_modifier=".cg")
        totals = tl.load(each_part + size + 1, mask=is_part, other=0, cache_modifier=".cg")
        here = each_part[:, None] + d[None, :]
        found = tl.load(here, mask=is_part[:, None] & is_d[None, :], other=0, cache_modifier=".cg")
        share = tl.exp(tops - tl.max(tops, 0))
        result = tl.sum(share[:, None] * found, 0) / tl.sum(share * totals, 0)
        tl.store(y + own, result.to(y.dtype.element_ty), mask=is_d)
        tl.store(arrivals + row, 0)
        # All programs have read the position once the last head is done: only then may it change.
        rows = tl.num_programs(0)
        if tl.atomic_add(arrivals + rows, 1) == rows - 1:
            tl.store(arrivals + rows, 0)
            tl.store(position, now + 1)


def add_norm(
    x: Float[Tensor, "*batch feat"],
    y: Float[Tensor, "*batch feat"],
    weight: Float[Tensor, " feat"],
    bias: Float[Tensor, " feat"],
    eps: float,
) -> tuple[Float[Tensor, "*batch feat"], Float[Tensor, "*batch feat"]]:
    """``x + y`` and its layer norm; one launch."""
    features = x.shape[-1]
    total, out = (torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))
    width = next_power_of_2(features)
    if rows := x.numel() // features:
        with torch.cuda.device_of(x):
            add_norm_kernel[rows,](
                x.contiguous(), y.contiguous(), weight, bias, total, out, features, eps, width, _NAMES[_precision(x)],
                num_warps=min(max(width // 256, 1), 16),
            )  # fmt: skip
    return total, out


@triton.jit
def add_norm_kernel(x, y, weight, bias, total, out, features, eps, width: tl.constexpr, precision: tl.constexpr):
    """A program: one row."""
    i = tl.arange(0, width)
    is_feature = i < features
    row = tl.program_id(0).to(tl.int64) * features
    scale = tl.load(weight + i, mask=is_feature, other=0).to(precision)
    offset = tl.load(bias + i, mask=is_feature, other=0).to(precision)
    t = tl.load(x + row + i, mask=is_feature, other=0).to(precision)
    t += tl.load(y + row + i, mask=is_feature, other=0).to(precision)
    tl.store(total + row + i, t.to(total.dtype.element_ty), mask=is_feature)
    t = tl.where(is_feature, t - tl.sum(t, 0) / features, 0)
    t *= 1 / tl.sqrt(tl.sum(t * t, 0) / features + eps)
    tl.store(out + row + i, (t * scale + offset).to(out.dtype.element_ty), mask=is_feature)


_NAMES = {torch.float32: tl.float32, torch.float64: tl.float64}


def _precision(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype.itemsize >= 4 else torch.float32
