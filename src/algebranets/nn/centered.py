"""Centered tuples of images: the sums of their products and affine maps of them, for whitening.

Inside, an image is (batch, component, tuple, place). Each of the two operations has a second version for compilers,
which makes one pass over the batch, forward and backward.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets import product
from algebranets.ops import device
from algebranets.ops.device import sum_dtype
from algebranets.ops.whitening_sums import whitening_sums
from algebranets.product import auto


class Centered(NamedTuple):
    """Tuples of images, times ``scale``, minus ``center``; and the images, to compute them from again."""

    values: Float[Tensor, "batch comp chan place"]
    images: Float[Tensor, "batch feat *size"]
    scale: Float[Tensor, " chan"]
    #: The mean. In a compiled graph no gradient flows through it: that of the covariance has none there, and that of
    #: the output flows through center - mean, which saves a pass over the batch.
    center: Float[Tensor, "comp chan"]


def center_by(
    x: Float[Tensor, "batch feat *size"], scale: Float[Tensor, " chan"], center: Float[Tensor, "comp chan"]
) -> Centered:
    """The tuples of ``x`` times ``scale``, minus ``center``."""
    return Centered(_centered(x, scale, center), x, scale, center)


def sum_products(t: Centered) -> Float[Tensor, "comp comp chan"]:
    """The products of each two components, summed over batch and places."""
    if auto.writes_out_whitening(len(t.center)):
        return _SumProducts.apply(t.images, t.scale, t.center)
    return torch.einsum("nicp,njcp->ijc", t.values, t.values)


def affine(
    matrix: Float[Tensor, "row comp chan"], offset: Float[Tensor, "row chan"], t: Centered
) -> Float[Tensor, "batch feat *size"]:
    """Every tuple of ``t`` times the matrix of its channel, plus the offset, as images again."""
    if auto.writes_out_whitening(len(t.center)):
        return _Affine.apply(matrix, offset, t.images, t.scale, t.center)
    return _as_images(torch.einsum("ijc,njcp->nicp", matrix, t.values) + offset[:, :, None], t.images)


def as_planes(x: Tensor, dim: int) -> Float[Tensor, "batch comp chan place"]:
    """Images by their ``dim`` components, in float32 or better."""
    return x.to(sum_dtype(x)).reshape(x.shape[0], dim, x.shape[1] // dim, prod(x.shape[2:]))


def _as_images(t: Float[Tensor, "batch comp chan place"], x: Tensor) -> Tensor:
    """The inverse of `as_planes`, with the shape, dtype and memory format of ``x``."""
    return product.in_format_of(x, t.to(x.dtype).reshape(x.shape))


def _centered(x: Tensor, scale: Tensor, center: Tensor) -> Float[Tensor, "batch comp chan place"]:
    return as_planes(x, len(center)) * scale[:, None] - center[:, :, None]


# For compilers --------------------------------------------------------------------------------------------------------


class _SumProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, center: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale, center)
        return _sums(None, x, scale, center)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, scale, center = ctx.saved_tensors
        # Centered, but written differently from forward: the same expression would be kept from there, in float32.
        t = scale[:, None] * as_planes(x, len(center)) - center[:, :, None]
        return _as_images(_times(_stored(grad + grad.transpose(0, 1)), t) * scale[:, None], x), None, None


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, offset: Tensor, x: Tensor, scale: Tensor, center: Tensor) -> Tensor:
        matrix = _stored(matrix)
        ctx.save_for_backward(matrix, x, scale, center)
        return _as_images(_times(matrix, _centered(x, scale, center)) + offset[:, :, None], x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        matrix, x, scale, center = ctx.saved_tensors
        grad = product.in_format_of(x, grad)
        t = as_planes(grad, len(center))
        grad_x = _as_images(_times(matrix.transpose(0, 1), t) * scale[:, None], x)
        return _sums(grad, x, scale, center), t.sum((0, 3)), grad_x, None, None


def _times(matrix: Tensor, t: Tensor) -> Tensor:
    """The product of a matrix and tuples, as sums so short that a compiler writes them out."""
    return (matrix[:, :, :, None] * t[:, None]).sum(2)


def _stored(matrix: Tensor) -> Tensor:
    """The same as a view of memory. Otherwise a compiler would compute it again for each place of an image."""
    matrix = matrix.contiguous()
    return matrix.as_strided(matrix.shape, matrix.stride())


def _sums(left: Tensor | None, x: Tensor, scale: Tensor, center: Tensor) -> Tensor:
    """Products of each component of ``left`` (None: the centered tuples) and each of the centered tuples, summed."""
    if device.is_usable(x):  # where inductor's kernel for the sums below is slow
        return whitening_sums(left, x, scale, center)
    t = _centered(x, scale, center)
    left = t if left is None else as_planes(left, len(center))
    return (left[:, :, None] * t[:, None]).sum((0, 4))
