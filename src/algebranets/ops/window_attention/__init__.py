"""``window_attention``: attention over a sliding window with a score for each distance, for training.

The position scores of a query are one row of the matrix product ``(q + v) r^T``, with the nearest distance last. The
kernels read this row by keys. The key at distance n is n columns before the query's own key, so each row must begin one
column further right than the row above it. A GPU reads vectors of eight numbers only at aligned addresses. So row i is
written (i mod 8) columns further right, and all rows of a group of eight begin at the same key. The rows of one
*phase*, i mod 8, are one matrix product, with r moved by that many columns.

The kernels read and write features in the order of linear layers, (component, head, tuple), so that no features of a
head have to be gathered. Only the factors of the matrix product above are copied, because they are moved anyway.

The backward computes the scores again and overwrites them with their gradients. Three matrix products then read these.
There are no gradients of gradients.

Shapes: B batch, T queries, P past keys, S = P + T keys, h heads, d = A * tuples features of a head, E = h * d, D
distances, 8 phases, ceil(T / 8) rows in each phase.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.window_attention.scores import PHASES, by_head, by_phase, distances_of, layout, moved


def window_attention(
    queries: tuple[Float[Tensor, "batch time embed"], Float[Tensor, "batch time embed"]],
    k: Float[Tensor, "batch keys embed"],
    v: Float[Tensor, "batch keys embed"],
    r: Float[Tensor, "dist embed"],
    num_heads: int,
    *,
    dim: int,
) -> Float[Tensor, "batch time embed"]:
    """Softmax over keys of ``(content_i k_j + position_i r_(i-j)) / sqrt(d)``, times the values, in each head.

    All features are planar: (component, head, tuple).

    Args:
        queries: ``content``, the queries to multiply by keys, and ``position``, the queries to multiply by ``r``.
        k: The keys. The last T keys are at the positions of the queries.
        v: The values.
        r: One vector for each distance, 0 first. A query sees as many keys as there are distances.
        num_heads: The number of heads. On a GPU each must have a multiple of 16 features, at most 256.
        dim: The number of components of a tuple.
    """
    content, position = queries
    rows, distances = by_phase(position, num_heads, dim), by_head(r, num_heads, dim)
    return _window_attention(content, rows, k, v, distances)[0]


# The operators --------------------------------------------------------------------------------------------------------


@torch.library.custom_op(
    "algebranets::window_attention",
    mutates_args=(),
    schema="(Tensor content, Tensor position, Tensor k, Tensor v, Tensor r) -> (Tensor, Tensor)",
)
def _window_attention(content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    from algebranets.ops.window_attention import launch  # needs triton

    place = layout(r, k.shape[1] - content.shape[1])
    scores = torch.bmm(position.flatten(2, 3).flatten(0, 1), moved(r, place).mT)
    return launch.window_attention(content, k, v, scores, place)


@_window_attention.register_fake
def _(content: Tensor, _position: Tensor, _k: Tensor, _v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    batch, time, _ = content.shape
    return content.new_empty(content.shape), content.new_empty(batch, r.shape[0], time, dtype=torch.float32)


@torch.library.custom_op(
    "algebranets::window_attention_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor content, Tensor position, Tensor k, Tensor v, Tensor r, Tensor out, Tensor lse) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _window_attention_backward(
    grad: Tensor, content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from algebranets.ops.window_attention import launch  # needs triton

    place = layout(r, k.shape[1] - content.shape[1])
    rows, columns = position.flatten(2, 3).flatten(0, 1), moved(r, place)
    scores = torch.bmm(rows, columns.mT)
    grad_content, grad_k, grad_v = launch.window_attention_backward(grad, (content, k, v), (out, lse), scores, place)
    grad_position = torch.bmm(scores, columns).view(position.shape)  # ``scores`` now holds the gradients of the scores
    grad_columns = torch.bmm(scores.mT, rows).unflatten(0, (-1, PHASES))
    grad_r = distances_of(grad_columns, place).sum(1, dtype=torch.float32).flip(1)
    return grad_content, grad_position, grad_k, grad_v, grad_r.to(r.dtype).view(r.shape)


@_window_attention_backward.register_fake
def _(
    _grad: Tensor, content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, *_: Tensor
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (content, position, k, v, r))


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, grad: Tensor, _grad_lse: Tensor) -> tuple[Tensor, ...]:
    return _window_attention_backward(grad, *ctx.saved_tensors)


_window_attention.register_autograd(_gradients, setup_context=_save)


def flops(content: tuple[int, ...], _position: Any, _k: Any, _v: Any, r: tuple[int, ...], *_: Any, **__: Any) -> int:
    """The FLOPs of three products for each query and distance: with the key, the value and the distance's vector."""
    return 3 * 2 * prod(content) * r[1]


def flops_backward(_grad: Any, *arguments: Any, **__: Any) -> int:
    """The FLOPs of eight products for each query and distance.

    Two compute the scores again. Four compute the gradients of weights, values, keys and queries. Two compute the
    gradients of the factors of the position scores.
    """
    return flops(*arguments) // 3 * 8
