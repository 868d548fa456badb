"""Launches of ``window_attention`` and its backward, in tiles that suit an H200."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.device import ceil_div, next_power_of_2
from algebranets.ops.window_attention.kernel import (
    window_attention_bwd_delta_kernel,
    window_attention_bwd_keys_kernel,
    window_attention_bwd_queries_kernel,
    window_attention_fwd_kernel,
)
from algebranets.ops.window_attention.scores import PHASES, Layout


class Tile(NamedTuple):
    """The number of queries and keys that a program has at a time, with its warps and pipeline stages."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int


#: Tiles by the largest head size that they are for. ``bwd_keys`` loops over queries, and the others loop over keys.
FWD_TILES = {64: Tile(64, 64, 4, 3), 128: Tile(128, 32, 4, 3), 256: Tile(128, 32, 8, 2)}
BWD_KEYS_TILES = {64: Tile(64, 64, 4, 3), 128: Tile(32, 64, 4, 2), 256: Tile(32, 64, 8, 2)}
BWD_QUERIES_TILES = {64: Tile(64, 64, 4, 4), 128: Tile(64, 64, 4, 4), 256: Tile(128, 64, 8, 3)}


def choose(tiles: dict[int, Tile], size: int) -> Tile:
    """The tile for heads of ``size`` features."""
    return next(tile for largest, tile in tiles.items() if size <= largest)


def window_attention(
    q: Float[Tensor, "batch time embed"],
    k: Float[Tensor, "batch keys embed"],
    v: Float[Tensor, "batch keys embed"],
    scores: Float[Tensor, "heads_phases batch_rows columns"],
    layout: Layout,
) -> tuple[Float[Tensor, "batch time embed"], Float[Tensor, "batch heads time"]]:
    """The output and, for the backward, the base-2 logarithm of each query's sum of exponentials."""
    batch, time, embed = q.shape
    size = embed // layout.num_heads
    tile = choose(FWD_TILES, size)
    out, lse = q.new_empty(q.shape), q.new_empty(batch, layout.num_heads, time, dtype=torch.float32)
    with torch.cuda.device_of(q):
        window_attention_fwd_kernel[ceil_div(time, tile.queries), batch * layout.num_heads](
            *_rows(q), *_rows(k), *_rows(v), *_rows(out), lse, scores,
            *_counts(q, k, layout), size**-0.5, **_options(tile, size, layout),
        )  # fmt: skip
    return out, lse


def window_attention_backward(
    grad: Float[Tensor, "batch time embed"],
    inputs: tuple[Tensor, Tensor, Tensor],
    outputs: tuple[Float[Tensor, "batch time embed"], Float[Tensor, "batch heads time"]],
    scores: Float[Tensor, "heads_phases batch_rows columns"],
    layout: Layout,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the inputs q, k and v.

    ``outputs`` are the two tensors that `window_attention` returned. ``scores`` are overwritten with their gradients,
    or with zeros in columns that have no key.
    """
    (q, k, v), (out, lse) = inputs, outputs
    batch, num_heads, time = lse.shape
    size = q.shape[2] // num_heads
    keys_tile, queries_tile = choose(BWD_KEYS_TILES, size), choose(BWD_QUERIES_TILES, size)
    num_query_tiles = ceil_div(time, queries_tile.queries)
    delta = torch.empty_like(lse)
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    counts = _counts(q, k, layout)
    with torch.cuda.device_of(q):
        window_attention_bwd_delta_kernel[num_query_tiles, batch * num_heads](
            *_rows(out), *_rows(grad), delta, num_heads, time,
            size, layout.tuples, next_power_of_2(size), queries_tile.queries,
        )  # fmt: skip
        window_attention_bwd_keys_kernel[ceil_div(k.shape[1], keys_tile.keys), batch * num_heads](
            *_rows(q), *_rows(k), *_rows(v), *_rows(grad), *_rows(grad_k), *_rows(grad_v), lse, delta, scores,
            *counts, size**-0.5, **_options(keys_tile, size, layout),
        )  # fmt: skip
        window_attention_bwd_queries_kernel[num_query_tiles, batch * num_heads](
            *_rows(k), *_rows(grad_q), scores, *counts, **_options(queries_tile, size, layout)
        )
    return grad_q, grad_k, grad_v


def _rows(x: Float[Tensor, "batch time embed"]) -> tuple[Tensor | int, ...]:
    """A tensor and its strides of batch and time. It is copied if the features of a position are not contiguous."""
    x = x if x.stride(2) == 1 else x.contiguous()
    return x, *x.stride()[:2]


def _counts(q: Tensor, k: Tensor, layout: Layout) -> tuple[int, ...]:
    batch, time, _ = q.shape
    num_past = k.shape[1] - time
    ahead = layout.nearest - num_past
    assert ahead % PHASES == 0, f"rows must begin at aligned keys: {layout.nearest=}, {num_past=}"
    return batch, layout.num_heads, time, num_past, layout.num_distances, ahead // PHASES, layout.num_columns


def _options(tile: Tile, size: int, layout: Layout) -> dict[str, Any]:
    return {
        "size": size,
        "tuples": layout.tuples,
        "width": next_power_of_2(size),
        "phases": PHASES,
        **tile._asdict(),
    }
