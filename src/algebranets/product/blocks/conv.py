"""Convolutions through blocks: each copy is one more image of the batch."""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.ops.device import is_channels_last, precision
from algebranets.product import auto
from algebranets.product.blocks.linear import linear
from algebranets.product.blocks.matrix import bias_fits, join, matrix, multiply, spans_worth_skipping, split
from algebranets.product.geometry import Geometry
from algebranets.product.layout import weight_from_tuples, weight_tuples


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """Any of torch's convolutions, over ``algebra``. ``x`` has a batch axis."""
    pointwise = geometry.pointwise and prod(weight.shape[-geometry.num_axes :]) == 1
    widest = max(x.shape[1], algebra.dim * weight.numel() // x.shape[1])
    if pointwise and is_channels_last(x) and not auto.convolves_copies_at_once(x, widest):
        return _pointwise(x, weight, bias, algebra, geometry)
    parts = []
    for block, part in zip(algebra.blocks, split(x, algebra, dim=1), strict=True):
        w = matrix(weight, algebra, block, geometry.transposed, dtype=precision(weight))
        parts.append(_conv_block(part, w, bias if bias_fits(algebra) else None, block, geometry))
    y = join(parts, dim=1)
    return y if bias is None or bias_fits(algebra) else y + _per_channel(bias, y)


def _conv_block(x: Tensor, weight: Tensor, bias: Tensor | None, block: Block, geometry: Geometry) -> Tensor:
    widest = block.num_copies * max(weight.shape[:2])
    if block.num_copies > 1 and geometry.groups == 1 and auto.convolves_copies_at_once(x, widest):
        return geometry.convolve(x, _diagonal(weight, block.num_copies), None)
    folded = _fold(x, block.num_copies)
    if geometry.groups > 1 and block.size > 1:
        # torch needs a group's channels side by side: (component, group, channel) becomes (group, component, channel).
        size, groups = block.size, geometry.groups
        weight = weight.unflatten(0, (size, groups, -1)).transpose(0, 1).flatten(0, 2)
        y = geometry.convolve(_exchange(folded, size, groups), weight, None)
        y = _unfold(_exchange(y, groups, size), block.num_copies)
        return y if bias is None else y + _per_channel(bias, y)
    plain = geometry.groups == 1 and not geometry.transposed
    spans = spans_worth_skipping(block, x, prod(weight.shape[1:])) if plain else None
    return _unfold(multiply(geometry.convolve, folded, weight, bias, spans, block.size), block.num_copies)


def _per_channel(bias: Tensor, y: Tensor) -> Tensor:
    return bias.to(y.dtype).reshape(-1, *[1] * (y.dim() - 2))


def _diagonal(weight: Tensor, num_copies: int) -> Tensor:
    """A weight for all copies at once: ``weight`` repeated ``num_copies`` times along the diagonal, zeros elsewhere."""
    columns, axes = weight.shape[1], [0, 0] * (weight.dim() - 2)
    rows = [F.pad(weight, (*axes, i * columns, (num_copies - 1 - i) * columns)) for i in range(num_copies)]
    return torch.cat(rows)


def _pointwise(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """A 1 x 1 convolution of a channels_last image, as a linear layer on a view of the image."""
    w = weight.flatten(1)
    if geometry.transposed:
        w = weight_from_tuples(weight_tuples(w, algebra, transposed=True).mT, algebra)
    return linear(x.movedim(1, -1), w, bias, algebra).movedim(-1, 1)


def _fold(x: Tensor, num_copies: int) -> Tensor:
    """Move copies from the channels to the batch, (batch and copy, channel, ...): a view of a contiguous image."""
    if num_copies > 1 and is_channels_last(x):
        return x.movedim(1, -1).unflatten(-1, (num_copies, -1)).movedim(-2, 1).flatten(0, 1).movedim(-1, 1)
    return x.reshape(x.shape[0] * num_copies, x.shape[1] // num_copies, *x.shape[2:])


def _unfold(y: Tensor, num_copies: int) -> Tensor:
    if num_copies > 1 and is_channels_last(y):
        return y.movedim(1, -1).unflatten(0, (-1, num_copies)).movedim(1, -2).flatten(-2).movedim(-1, 1)
    return y.reshape(y.shape[0] // num_copies, y.shape[1] * num_copies, *y.shape[2:])


def _exchange(x: Tensor, first: int, second: int) -> Tensor:
    """Reorder channels from (first, second, ...) to (second, first, ...). The memory format stays the same."""
    if is_channels_last(x):
        return x.movedim(1, -1).unflatten(-1, (first, second, -1)).transpose(-3, -2).flatten(-3).movedim(-1, 1)
    return x.unflatten(1, (first, second, -1)).transpose(1, 2).flatten(1, 3)
