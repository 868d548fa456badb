"""``decode_attention``: attention of one token to a ring of earlier keys and values. Inference only."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def decode_attention(
    token: tuple[Tensor, Tensor, Tensor],
    biases: tuple[Tensor, Tensor],
    rings: tuple[Tensor, Tensor],
    distances: Float[Tensor, "heads slots d"],
    position: Int[Tensor, ""],
    *,
    dim: int,
) -> Float[Tensor, "batch 1 embed"]:
    """The attention of one token with relative positions, without gradients. The token also attends to itself.

    The score of the key n positions back is ``((query + u) key + (query + v) distances[n]) / sqrt(d)``, in each head.

    Args:
        token: The token's query, key and value, planar: (batch, 1, embed), features ordered (component, head, tuple).
        biases: u and v, planar, (embed,) each.
        rings: The keys and the values of the last positions, (batch, heads, slots, d) each. Position p is in slot
            p mod slots. The token's key and value are written over those of the position that leaves the window.
        distances: One vector for each distance, 0 first.
        position: The position of the token: the number of tokens before it. It is increased by one in place.
        dim: The number of components of a tuple.
    """
    return _decode_attention(*token, *biases, *rings, distances, position, dim)


@torch.library.custom_op(
    "algebranets::decode_attention",
    mutates_args=("keys", "values", "position"),
    schema="(Tensor query, Tensor key, Tensor value, Tensor u, Tensor v, Tensor(a!) keys, Tensor(b!) values, "
    "Tensor distances, Tensor(c!) position, int dim) -> Tensor",
)
def _decode_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    u: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    distances: Tensor,
    position: Tensor,
    dim: int,
) -> Tensor:
    from algebranets.ops.decode_attention import launch  # needs triton

    return launch.decode_attention((query, key, value), (u, v), (keys, values), distances, position, dim)


@_decode_attention.register_fake
def _(query: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)


def flops(_query: Any, _key: Any, _value: Any, _u: Any, _v: Any, keys: tuple[int, ...], *_: Any, **__: Any) -> int:
    """The FLOPs of three products for each slot: with its key, its value and the vector of its distance."""
    return 3 * 2 * prod(keys)
