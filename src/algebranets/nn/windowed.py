"""Attention over a window with a score for each distance: what `RelativeAttention` trains with on a GPU.

A query's position scores are one row of a matrix product, ``(q + v) r^T``, nearest distance last. The kernels read that
row by keys: the key at distance n stands n places before the query's own, so each row is wanted one place further right
than the one above it. Vectors of eight numbers can only be read where they are aligned. So the products write row i
(i mod 8) places further right, and eight rows at a time begin at the same key. All rows of one phase, i mod 8, are one
product, with r moved by as many places.

The kernels read and write features as linear layers have them, (component, head, tuple), so that no head, which over an
algebra lies in pieces, is copied. Only what the products above multiply is: it has to be moved anyway.

Backward computes the scores again and writes their gradients over them, from where three products read them. Two
operators, ``algebranets::windowed_attention`` and ``algebranets::windowed_attention_backward``; of gradients there are
no further ones.

Shapes: B batch, T queries, P past keys, S = P + T keys, h heads, d = A * tuples features of a head, E = h * d, D
distances, phases 8, rows ceil(T / 8).
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


def applies(q: Float[Tensor, "batch time embed"], num_heads: int) -> bool:
    """Whether `attend` takes queries like these: half precision on a GPU, and heads that tensor cores like."""
    size = q.shape[-1] // num_heads
    return kernels.usable(q) and q.dtype.itemsize == 2 and size % SIXTEEN == 0 and size <= MOST_FEATURES


def attend(
    content: Float[Tensor, "batch time embed"],
    position: Float[Tensor, "batch time embed"],
    k: Float[Tensor, "batch keys embed"],
    v: Float[Tensor, "batch keys embed"],
    r: Float[Tensor, "dist embed"],
    num_heads: int,
    dim: int,
) -> Float[Tensor, "batch time embed"]:
    """Softmax over keys of ``(content_i k_j + position_i r_(i-j)) / sqrt(d)``, times values, in each head.

    A query sees as many keys as there are distances, its own the nearest; the last T keys are the queries' own. Tuples
    have ``dim`` components.
    """
    rows, distances = _by_phase(position, num_heads, dim), _by_head(r, num_heads, dim)
    return _OPERATOR(content, rows, k, v, distances)[0]


def _by_head(r: Float[Tensor, "dist embed"], num_heads: int, dim: int) -> Float[Tensor, "heads dist comp tuples"]:
    return r.unflatten(1, (dim, num_heads, -1)).movedim(2, 0)


def _by_phase(
    x: Float[Tensor, "batch time embed"], num_heads: int, dim: int
) -> Float[Tensor, "heads phases batch rows d"]:
    whole = F.pad(x, (0, 0, 0, -x.shape[1] % PHASES)).unflatten(1, (-1, PHASES))
    return whole.unflatten(3, (dim, num_heads, -1)).permute(4, 2, 0, 1, 3, 5).contiguous().flatten(4)


def _band(x: Float[Tensor, "heads phases columns d"], num_distances: int, nearest: int) -> Tensor:
    """What of each phase's columns are distances, the farthest first: (heads, phases, dist, d)."""
    heads, phases, columns, size = x.shape
    farthest = nearest - num_distances + 1
    strides = (phases * columns * size, (columns + 1) * size, size, 1)
    return x.as_strided((heads, phases, num_distances, size), strides, x.storage_offset() + farthest * size)


def _moved(r: Float[Tensor, "heads dist comp tuples"], place: Layout) -> Float[Tensor, "heads_phases columns d"]:
    """The distances' vectors as the columns of each phase have them, zero where there is no distance."""
    heads, num_distances, dim, tuples = r.shape
    moved = r.new_zeros(heads, PHASES, place.columns, dim * tuples)
    _band(moved, num_distances, place.nearest).unflatten(3, (dim, tuples)).copy_(r.flip(1)[:, None])
    return moved.flatten(0, 1)


def _forward(content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    from algebranets.nn.jit import relative  # needs triton

    heads, num_distances, _, tuples = r.shape
    place = layout(k.shape[1] - content.shape[1], num_distances)
    scores = torch.bmm(position.flatten(2, 3).flatten(0, 1), _moved(r, place).mT)
    return relative.forward(content, k, v, scores, heads, tuples, num_distances, place.nearest)


def _shapes(content: Tensor, _position: Tensor, _k: Tensor, _v: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    batch, time, _ = content.shape
    return content.new_empty(content.shape), content.new_empty(batch, r.shape[0], time, dtype=torch.float32)


def _backward(
    grad: Tensor, content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from algebranets.nn.jit import relative  # needs triton

    _, num_distances, _, tuples = r.shape
    place = layout(k.shape[1] - content.shape[1], num_distances)
    rows, moved = position.flatten(2, 3).flatten(0, 1), _moved(r, place)
    scores = torch.bmm(rows, moved.mT)
    gradients = relative.backward(grad, content, k, v, scores, out, lse, tuples, num_distances, place.nearest)
    grad_position = torch.bmm(scores, moved).view(position.shape)
    grad_moved = torch.bmm(scores.mT, rows).unflatten(0, (-1, PHASES))
    grad_r = _band(grad_moved, num_distances, place.nearest).sum(1, dtype=torch.float32).flip(1)
    return gradients[0], grad_position, gradients[1], gradients[2], grad_r.to(r.dtype).view(r.shape)


def _gradients_shapes(
    _grad: Tensor, content: Tensor, position: Tensor, k: Tensor, v: Tensor, r: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    contents, positions, keys, values, distances = (x.new_empty(x.shape) for x in (content, position, k, v, r))
    return contents, positions, keys, values, distances


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, grad: Tensor, _grad_lse: Tensor) -> tuple[Tensor, ...]:
    return _BACKWARD(grad, *ctx.saved_tensors)


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
