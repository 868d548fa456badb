"""The launch of ``decode_attention``: several programs share the slots of a head."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from algebranets.ops.counters import counters
from algebranets.ops.decode_attention.kernel import decode_attention_fwd_kernel
from algebranets.ops.device import PROGRAMS, ceil_div, next_power_of_2, sum_dtype

#: The numbers of a ring that a program loads at a time.
TILE = 8192
#: The most programs: several for each multiprocessor, so that enough loads are in flight to use the whole bandwidth.
MAX_PROGRAMS = 4 * PROGRAMS


def decode_attention(
    token: tuple[Tensor, Tensor, Tensor],
    biases: tuple[Tensor, Tensor],
    rings: tuple[Tensor, Tensor],
    distances: Float[Tensor, "heads slots d"],
    position: Int[Tensor, ""],
    dim: int,
) -> Float[Tensor, "batch 1 embed"]:
    """Write one token into the rings and return its attention to them. A tuple has ``dim`` components."""
    query, (keys, values) = token[0], rings
    batch, num_heads, num_slots, size = keys.shape
    y = torch.empty_like(query, memory_format=torch.contiguous_format)
    if not batch:
        position += 1
        return y
    width = next_power_of_2(size)
    tile = min(max(1, TILE // width), next_power_of_2(num_slots))
    max_splits = max(1, MAX_PROGRAMS // (batch * num_heads))
    span = tile * ceil_div(ceil_div(num_slots, tile), max_splits)
    splits = ceil_div(num_slots, span)
    parts = query.new_empty(batch * num_heads, splits, size + 2, dtype=sum_dtype(query))
    with torch.cuda.device_of(query):
        decode_attention_fwd_kernel[batch * num_heads, splits](
            *(x.contiguous() for x in (*token, *biases)),
            keys, *keys.stride(), values, *values.stride(), distances, *distances.stride(),
            position, parts, counters(query.device, batch * num_heads + 1), y, num_slots, span,
            num_heads, size, size // dim, splits, tile, width, num_warps=4,
        )  # fmt: skip
    return y
