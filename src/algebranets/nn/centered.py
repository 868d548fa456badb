"""The two operations of whitening on centered tuples of images: sums of their products, and affine maps.

Inside, images have the shape (batch, component, tuple, place), where places are the positions of all spatial axes. Each
operation has a second version for compilers, which makes one pass over the batch in the forward and in the backward.
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
    """The tuples of images, times ``scale``, minus ``center``. The images are kept to compute the tuples again."""

    values: Float[Tensor, "batch comp chan place"]
    images: Float[Tensor, "batch feat *size"]
    scale: Float[Tensor, " chan"]
    #: The mean. In a compiled graph no gradient flows through it, which saves a pass over the batch: the derivative of
    #: the covariance with respect to the mean is zero, and the gradient of the output flows through center - mean.
    center: Float[Tensor, "comp chan"]


def center_by(
    x: Float[Tensor, "batch feat *size"], scale: Float[Tensor, " chan"], center: Float[Tensor, "comp chan"]
) -> Centered:
    """The tuples of ``x`` times ``scale``, minus ``center``."""
    return Centered(_centered(x, scale, center), x, scale, center)


def sum_products(t: Centered) -> Float[Tensor, "comp comp chan"]:
    """The products of every two components, summed over batch and places."""
    if auto.writes_out_whitening(len(t.center)):
        return _SumProducts.apply(t.images, t.scale, t.center)
    return torch.einsum("nicp,njcp->ijc", t.values, t.values)


def affine(
    matrix: Float[Tensor, "row comp chan"], offset: Float[Tensor, "row chan"], t: Centered
) -> Float[Tensor, "batch feat *size"]:
    """Multiply every tuple of ``t`` by the matrix of its channel, add the offset, and return images."""
    if auto.writes_out_whitening(len(t.center)):
        return _Affine.apply(matrix, offset, t.images, t.scale, t.center)
    return _as_images(torch.einsum("ijc,njcp->nicp", matrix, t.values) + offset[:, :, None], t.images)


def as_planes(x: Tensor, dim: int) -> Float[Tensor, "batch comp chan place"]:
    """Split the channels of images into (``dim`` components, tuples), in float32 or better."""
    return x.to(sum_dtype(x)).reshape(x.shape[0], dim, x.shape[1] // dim, prod(x.shape[2:]))


def _as_images(t: Float[Tensor, "batch comp chan place"], x: Tensor) -> Tensor:
    """Undo `as_planes`. The result has the shape, dtype and memory format of ``x``."""
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
        # Written differently from the forward, or else a compiler would keep the forward's result, in float32.
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
    """The product of a matrix and tuples, as short sums that a compiler unrolls."""
    return (matrix[:, :, :, None] * t[:, None]).sum(2)


def _stored(matrix: Tensor) -> Tensor:
    """The matrix as a view of memory. Otherwise a compiler would compute it again for each place of an image."""
    matrix = matrix.contiguous()
    return matrix.as_strided(matrix.shape, matrix.stride())


def _sums(left: Tensor | None, x: Tensor, scale: Tensor, center: Tensor) -> Tensor:
    """Products of each component of ``left`` and each component of the centered tuples, summed over batch and places.

    If ``left`` is None, the centered tuples take its place.
    """
    if device.is_usable(x):  # on a GPU, inductor's kernel for the sums below is slow
        return whitening_sums(left, x, scale, center)
    t = _centered(x, scale, center)
    left = t if left is None else as_planes(left, len(center))
    return (left[:, :, None] * t[:, None]).sum((0, 4))
