"""Kernel of ``decode_attention``: one token is written into a ring of keys and values and attends to it.

Shapes: B batch, h heads, S slots, d = A * tuples features of a head (``size``, rounded up to a power of two ``width``),
E = h * d. Planar features are ordered (component, head, tuple).
"""

from __future__ import annotations

import triton
import triton.language as tl

from algebranets.ops.kernel import is_last_to_arrive


@triton.jit
def decode_attention_fwd_kernel(
    query, key, value, u, v,
    keys, keys_batch, keys_head, keys_slot, keys_d,
    values, values_batch, values_head, values_slot, values_d,
    distances, distances_head, distances_slot, distances_d,
    position, parts, arrived, y, num_slots, span,
    num_heads: tl.constexpr, size: tl.constexpr, tuples: tl.constexpr, splits: tl.constexpr,
    tile: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Each program attends to ``span`` slots of one head. The last program of a head to arrive joins their results.

    ``parts`` stores the result of each program. ``arrived`` counts the finished programs of each head, and then the
    finished heads. It is zero before and after the kernel.
    """
    row, split = tl.program_id(0), tl.program_id(1)
    b, h = (row // num_heads).to(tl.int64), (row % num_heads).to(tl.int64)
    now = tl.load(position)
    newest = (now % num_slots).to(tl.int32)
    d = tl.arange(0, width)
    is_d = d < size
    planar = (d // tuples) * (num_heads * tuples) + h * tuples + d % tuples
    own = b * num_heads * size + planar
    dtype: tl.constexpr = parts.dtype.element_ty
    scale = 1 / tl.sqrt(tl.full([], size, dtype))
    q = tl.load(query + own, mask=is_d, other=0).to(dtype)
    to_key = (q + tl.load(u + planar, mask=is_d, other=0).to(dtype)) * scale
    to_distance = (q + tl.load(v + planar, mask=is_d, other=0).to(dtype)) * scale
    new_key = tl.load(key + own, mask=is_d, other=0).to(keys.dtype.element_ty)
    new_value = tl.load(value + own, mask=is_d, other=0).to(values.dtype.element_ty)
    keys += b * keys_batch + h * keys_head
    values += b * values_batch + h * values_head
    distances += h * distances_head

    first = split * span
    # Slots from now + 1 on are still empty.
    last = tl.minimum(tl.minimum(first + span, num_slots), now + 1).to(tl.int32)
    if (newest >= first) & (newest < last):
        tl.store(keys + newest.to(tl.int64) * keys_slot + d * keys_d, new_key, mask=is_d)
        tl.store(values + newest.to(tl.int64) * values_slot + d * values_d, new_value, mask=is_d)
    top = tl.full([], -float("inf"), dtype)
    total = tl.zeros([], dtype)
    sums = tl.zeros([width], dtype)
    start = first
    while start < last:
        slot = start + tl.arange(0, tile)
        is_slot, is_new = slot < last, (slot == newest)[:, None]
        is_old = is_slot[:, None] & is_d[None, :] & (slot != newest)[:, None]  # the newest slot may not be written yet
        distance = ((newest - slot + num_slots) % num_slots).to(tl.int64)[:, None]
        keys_at = keys + slot.to(tl.int64)[:, None] * keys_slot + d[None, :] * keys_d  # (slot, d)
        values_at = values + slot.to(tl.int64)[:, None] * values_slot + d[None, :] * values_d
        distances_at = distances + distance * distances_slot + d[None, :] * distances_d
        k = tl.load(keys_at, mask=is_old, other=0)
        r = tl.load(distances_at, mask=is_slot[:, None] & is_d[None, :], other=0)
        w = tl.load(values_at, mask=is_old, other=0)
        k, w = tl.where(is_new, new_key[None, :], k), tl.where(is_new, new_value[None, :], w)
        scores = tl.sum(k.to(dtype) * to_key[None, :] + r.to(dtype) * to_distance[None, :], 1)
        scores = tl.where(is_slot, scores, -float("inf"))
        highest = tl.maximum(top, tl.max(scores, 0))
        weights, kept = tl.exp(scores - highest), tl.exp(top - highest)
        total = total * kept + tl.sum(weights, 0)
        sums = sums * kept + tl.sum(weights[:, None] * w.to(dtype), 0)
        top = highest
        start += tile

    parts += row.to(tl.int64) * splits * (size + 2)
    part = parts + split * (size + 2)
    tl.store(part + d, sums, mask=is_d)
    tl.store(part + size, top)
    tl.store(part + size + 1, total)
    if is_last_to_arrive(arrived + row, splits):
        result = joined(parts, d, size, splits)
        tl.store(y + own, result.to(y.dtype.element_ty), mask=is_d)
        # The position may change only when the last head is done, because then all programs have read it.
        num_rows = tl.num_programs(0)
        if is_last_to_arrive(arrived + num_rows, num_rows):
            tl.store(position, now + 1)


@triton.jit
def joined(parts, d, size: tl.constexpr, splits: tl.constexpr):
    """The output of a head, (d,), from the weighted sum, the highest score and the total weight of each program.

    Loads bypass the L1 cache, which other programs do not write to.
    """
    i = tl.arange(0, triton.next_power_of_2(splits))
    is_part, is_d = i < splits, d < size
    part_at = parts + i * (size + 2)
    tops = tl.load(part_at + size, mask=is_part, other=-float("inf"), cache_modifier=".cg")
    totals = tl.load(part_at + size + 1, mask=is_part, other=0, cache_modifier=".cg")
    sums = tl.load(part_at[:, None] + d[None, :], mask=is_part[:, None] & is_d[None, :], other=0, cache_modifier=".cg")
    share = tl.exp(tops - tl.max(tops, 0))
    return tl.sum(share[:, None] * sums, 0) / tl.sum(share * totals, 0)
