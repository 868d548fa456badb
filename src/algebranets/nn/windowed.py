"""Attention over a window with a score for each distance: what `RelativeAttention` trains with on a GPU.

A query's position scores are one row of a matrix product, ``(q + v) r^T``, nearest distance last. The kernels read that
row by keys: the key at distance n stands n places before the query's own, so each row is wanted one place further right
than the one above it. Vectors of eight numbers can only be read where they are aligned. So the products write row i
(i mod 8) places further right, and eight rows at a time begin at the same key. All rows of one phase, i mod 8, are one
product, with r moved by as many places.

Backward computes the scores again and writes their gradients over them, from where three products read them. Two
operators, ``algebranets::windowed_attention`` and ``algebranets::windowed_attention_backward``; of gradients there are
no further ones.

Shapes: B batch, T queries, P past keys, S = P + T keys, h heads, d features of a head, D distances, phases 8, rows
ceil(T / 8).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets.product import kernels

#: Numbers of half precision that are loaded at once.
PHASES = 8
#: Score rows are whole numbers of these, which matrix products are fast at.
UNIT = 64
#: Features of a head: tensor cores want sixteens, and more do not fit on the chip.
SIXTEEN, MOST_FEATURES = 16, 256


class Layout(NamedTuple):
    """Where a row of position scores has what: query i has distance n in column ``nearest`` + i mod 8 - n."""

    nearest: int
    columns: int


def layout(past: int, num_distances: int) -> Layout:
    """Room for all distances of every phase, so that aligned columns are aligned keys.

    >>> layout(past=1536, num_distances=1537)
    Layout(nearest=1536, columns=1600)
    """
    nearest = num_distances - 1 + (past - num_distances + 1) % PHASES
    return Layout(nearest, -(-(nearest + PHASES) // UNIT) * UNIT)


def applies(q: Float[Tensor, "batch heads time d"]) -> bool:
    """Whether `attend` takes queries like these: half precision on a GPU, and heads that tensor cores like."""
    size = q.shape[-1]
    return kernels.usable(q) and q.dtype.itemsize == 2 and size % SIXTEEN == 0 and size <= MOST_FEATURES


def attend(
    content: Float[Tensor, "batch heads time d"],
    position: Float[Tensor, "batch heads time d"],
    k: Float[Tensor, "batch heads keys d"],
    v: Float[Tensor, "batch heads keys d"],
    r: Float[Tensor, "heads dist d"],
) -> Float[Tensor, "batch heads time d"]:
    """Softmax over keys of ``(content_i k_j + position_i r_(i-j)) / sqrt(d)``, times values.

    A query sees as many keys as there are distances, its own the nearest; the last T keys are the queries' own.
    """
    content, k, v, r = (x if x.stride(-1) == 1 else x.contiguous() for x in (content, k, v, r))
    return _OPERATOR(content, _by_phase(position), k, v, r)[0]


def features_like(x: Float[Tensor, "batch heads time d"]) -> Float[Tensor, "batch heads time d"]:
    """Empty, and as a real layer has its features: the heads of a position side by side."""
    batch, heads, time, size = x.shape
    return x.new_empty(batch, time, heads, size).transpose(1, 2)


def _by_phase(x: Float[Tensor, "batch heads time d"]) -> Float[Tensor, "heads phases batch rows d"]:
    whole = F.pad(x, (0, 0, 0, -x.shape[2] % PHASES))
    return whole.unflatten(2, (-1, PHASES)).permute(1, 3, 0, 2, 4).contiguous()


def _band(x: Float[Tensor, "heads phases columns d"], num_distances: int, nearest: int) -> Tensor:
    """What of each phase's columns are distances, the farthest first: (heads, phases, dist, d)."""
    heads, phases, columns, size = x.shape
    farthest = nearest - num_distances + 1
    strides = (phases * columns * size, (columns + 1) * size, size, 1)
    return x.as_strided((heads, phases, num_distances, size), strides, x.storage_offset() + farthest * size)


def _moved(r: Float[Tensor, "heads dist d"], place: Layout) -> Float[Tensor, "heads_phases columns d"]:
    """The distances' vectors as the columns of each phase have them, zero where there is no distance."""
    heads, num_distances, size = r.shape
    moved = r.new_zeros(heads, PHASES, place.columns, size)
    _band(moved, num_distances, place.nearest).copy_(r.flip(1)[:, None])
    return moved.flatten(0, 1)


def _forward(content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    from algebranets.nn.jit import relative  # needs triton

    place = layout(k.shape[2] - content.shape[2], r.shape[1])
    scores = torch.bmm(position.flatten(2, 3).flatten(0, 1), _moved(r, place).mT)
    return relative.forward(content, k, v, scores, r.shape[1], place.nearest)


def _shapes(content: Tensor, _position: Tensor, _k: Tensor, _v: Tensor, _r: Tensor) -> tuple[Tensor, Tensor]:
    return features_like(content), content.new_empty(content.shape[:-1], dtype=torch.float32)


def _backward(
    grad: Tensor, content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from algebranets.nn.jit import relative  # needs triton

    place = layout(k.shape[2] - content.shape[2], r.shape[1])
    rows, moved = position.flatten(2, 3).flatten(0, 1), _moved(r, place)
    scores = torch.bmm(rows, moved.mT)
    gradients = relative.backward(grad, content, k, v, scores, out, lse, r.shape[1], place.nearest)
    grad_position = torch.bmm(scores, moved).view(position.shape)
    grad_moved = torch.bmm(scores.mT, rows).unflatten(0, (-1, PHASES))
    grad_r = _band(grad_moved, r.shape[1], place.nearest).sum(1, dtype=torch.float32).flip(1)
    return gradients[0], grad_position, gradients[1], gradients[2], grad_r.to(r.dtype)


def _gradients_shapes(
    _grad: Tensor, content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    contents, keys, values = (features_like(x) for x in (content, k, v))
    return contents, torch.empty_like(position), keys, values, r.new_empty(r.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, grad: Tensor, _grad_lse: Tensor) -> tuple[Tensor, ...]:
    return _BACKWARD(grad if grad.stride(-1) == 1 else grad.contiguous(), *ctx.saved_tensors)


_OPERATOR = torch.library.custom_op(
    "algebranets::windowed_attention",
    _forward,
    mutates_args=(),
    schema="(Tensor content, Tensor position, Tensor k, Tensor v, Tensor r) -> (Tensor, Tensor)",
)
_OPERATOR.register_fake(_shapes)
_OPERATOR.register_autograd(_gradients, setup_context=_keep)
_BACKWARD = torch.library.custom_op(
    "algebranets::windowed_attention_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor grad, Tensor content, Tensor position, Tensor k, Tensor v, Tensor r, Tensor out, Tensor lse) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_BACKWARD.register_fake(_gradients_shapes)
