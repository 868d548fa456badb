"""Convolutions through blocks: each copy is one more image of the batch, or more pixels in each row of an image.

The copies in a channels_last image lie side by side in each pixel. So a view of it is an image with longer rows and
fewer channels, in which the copies take turns. A convolution of that image skips the other copies by its dilation.
"""

from __future__ import annotations

from dataclasses import replace
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
from algebranets.product.layout import num_tuples, weight_from_tuples, weight_tuples


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """Any of torch's convolutions, over ``algebra``. ``x`` has a batch axis."""
    pointwise = geometry.pointwise and prod(weight.shape[-geometry.num_axes :]) == 1
    widest, most = max(num_tuples(weight, algebra)), max(block.num_copies for block in algebra.blocks)
    if pointwise and is_channels_last(x) and not auto.convolves_copies_at_once(x, most, algebra.dim * widest):
        return _pointwise(x, weight, bias, algebra, geometry)
    if algebra.dim == 1:
        return geometry.convolve(x, weight, bias)
    parts = []
    for block, part in zip(algebra.blocks, split(x, algebra, dim=1), strict=True):
        at_once = geometry.groups == 1 and auto.convolves_copies_at_once(x, block.num_copies, block.dim * widest)
        copies = block.num_copies if at_once else 1
        w = matrix(weight, algebra, block, geometry.transposed, dtype=precision(weight), copies=copies)
        fitting = bias if bias_fits(algebra) else None
        parts.append(_conv_copies(part, w, fitting, block, geometry, block.num_copies // copies))
    y = join(parts, dim=1)
    return y if bias is None or bias_fits(algebra) else y + _per_channel(bias, y)


def _conv_copies(
    x: Tensor, weight: Tensor, bias: Tensor | None, block: Block, geometry: Geometry, copies: int
) -> Tensor:
    """The convolution of each of the ``copies`` in an image with the same real weight."""
    if copies > 1 and auto.lengthens_rows(x, geometry):
        y = _conv_block(_with_channels(x, x.shape[1] // copies), weight, bias, block, geometry.with_longer_rows(copies))
        return _with_channels(y, copies * y.shape[1])
    return _unfold(_conv_block(_fold(x, copies), weight, bias, block, geometry), copies)


def _conv_block(x: Tensor, weight: Tensor, bias: Tensor | None, block: Block, geometry: Geometry) -> Tensor:
    """The convolution of an image with rho(w)."""
    size, groups = block.size, geometry.groups
    if groups > 1 and size > 1:
        # torch needs a group's channels side by side: (component, group, channel) becomes (group, component, channel).
        weight = weight.unflatten(0, (size, groups, -1)).transpose(0, 1).flatten(0, 2)
        y = _exchange(geometry.convolve(_exchange(x, size, groups), weight, None), groups, size)
        return y if bias is None else y + _per_channel(bias, y)
    if groups > 1 or geometry.transposed:
        return geometry.convolve(x, weight, bias)
    if missing := auto.missing_channels(x):
        x, weight = (F.pad(t, (*[0, 0] * geometry.num_axes, 0, missing)) for t in (x, weight))
    if auto.pairs_pixels(x, weight, geometry):
        return _conv_pairs(x, weight, bias, geometry)
    spans = spans_worth_skipping(block, x, prod(weight.shape[1:]))
    return multiply(geometry.convolve, x, weight, bias, spans, size)


def _conv_pairs(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """A convolution of an image with half as many pixels in a row and twice as many channels.

    Each pixel is a pair of pixels of ``x``. The weight has a block for each pixel of an output pair and each pixel of
    an input pair. A block holds every second column of the kernel, and zeros where the kernel does not reach.
    """
    reach, columns = geometry.padding[-1], weight.shape[-1]
    assert isinstance(reach, int)
    far = (reach + 1) // 2  # the reach in pairs
    before = 2 * far - reach
    after = 2 * (2 * far + 1) - before - columns
    w = torch.stack([F.pad(weight, (before + pixel, after - pixel)) for pixel in range(2)])
    w = w.unflatten(-1, (-1, 2)).movedim(-1, 2).flatten(2, 3).flatten(0, 1)  # (pixel and out, pixel and in, ..., pair)
    pairs = replace(geometry, padding=(*geometry.padding[:-1], far))
    y = pairs.convolve(_with_channels(x, 2 * x.shape[1]), w, None if bias is None else bias.repeat(2))
    return _with_channels(y, y.shape[1] // 2)


def _with_channels(x: Tensor, channels: int) -> Tensor:
    """A channels_last image seen as one with another number of channels, and so with longer or shorter rows."""
    batch, _, *size = x.shape
    return x.movedim(1, -1).reshape(batch, *size[:-1], -1, channels).movedim(-1, 1)


def _per_channel(bias: Tensor, y: Tensor) -> Tensor:
    return bias.to(y.dtype).reshape(-1, *[1] * (y.dim() - 2))


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
