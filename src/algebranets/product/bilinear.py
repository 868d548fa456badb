"""The lowering "bilinear": products with fewer multiplies, such as Strassen's for 2 x 2 matrices.

It combines the components of weights and inputs, multiplies these combinations in R products, and combines the
products. `Algebra.bilinear` has the coefficients. This pays for large layers, where multiplies take most of the time.
Combining reads and writes all inputs and outputs once more. For gradients, the R combinations of the input are kept
instead of the input.

Recurrent layers go through blocks, because their steps are small. So does everything in float16, where the sum of two
inputs of 4e4 overflows. Blocks add nothing before they multiply.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops import device
from algebranets.ops.combine import Matrix, combine
from algebranets.ops.device import precision
from algebranets.product import blocks
from algebranets.product.blocks import recurrent
from algebranets.product.geometry import Geometry
from algebranets.product.grids import as_grid, as_images

__all__ = ["conv", "linear", "recurrent"]


def linear(
    x: Float[Tensor, "*batch inp"], weight: Tensor, bias: Tensor | None, algebra: Algebra, stacks: int = 1
) -> Float[Tensor, "*batch out"]:
    """``y_o = sum_i w_oi . x_i``, products taken in ``algebra``, as one batch of R matrix products."""
    if device.sums_may_overflow(x):
        return blocks.linear(x, weight, bias, algebra, stacks)
    rank, num_rows = algebra.bilinear.rank, prod(x.shape[:-1])
    num_in = x.shape[-1] // algebra.dim
    inputs = _combine_inputs(x.reshape(1, 1, num_rows, algebra.dim, num_in), algebra)
    weights = _combine_weight(weight, algebra, stacks)
    num_out = weights.shape[1] // stacks
    inputs = inputs.reshape(rank, num_rows, num_in)
    products = _Products.apply(inputs, weights) if device.is_usable(x) else inputs @ weights.mT
    fits = bias is not None and stacks == 1
    y = _combine_outputs(products.reshape(1, rank, num_rows * stacks, 1, num_out), algebra, bias if fits else None)
    y = y.reshape(*x.shape[:-1], stacks * algebra.dim * num_out)
    return y if bias is None or fits else y + bias.to(y.dtype)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """A convolution over ``algebra``, transposed or not, as one real convolution with R times as many groups."""
    if device.sums_may_overflow(x):
        return blocks.conv(x, weight, bias, algebra, geometry)
    rank = algebra.bilinear.rank
    weights = _combine_weight(weight, algebra, transposed=geometry.transposed).flatten(0, 1)
    kernel = weight.shape[2:]
    images = as_images(_combine_inputs(as_grid(x, algebra.dim), algebra, across=rank), x)
    wider = replace(geometry, groups=rank * geometry.groups)
    y = wider.convolve(images, weights.unflatten(1, (weights.shape[1] // prod(kernel), *kernel)))
    y = as_images(_combine_outputs(as_grid(y, rank), algebra), y)
    return y if bias is None else y + bias.to(y.dtype).reshape(-1, *[1] * geometry.num_axes)


class _Products(torch.autograd.Function):
    """R matrix products ``x w^T`` whose gradients are contiguous, so that `combine` need not copy them."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x @ w.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004, torch's name
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, w = ctx.saved_tensors
        needs_x, needs_w = ctx.needs_input_grad
        return grad @ w if needs_x else None, grad.mT @ x if needs_w else None


def _combine_inputs(grid: Tensor, algebra: Algebra, across: int = 1) -> Tensor:
    return combine(grid, _in_order(algebra.bilinear.inputs, algebra.order), across, dtype=precision(grid))


def _combine_outputs(grid: Tensor, algebra: Algebra, bias: Tensor | None = None) -> Tensor:
    outputs = algebra.bilinear.outputs
    return combine(grid, tuple(outputs[k] for k in algebra.order), algebra.dim, bias)


def _combine_weight(
    weight: Tensor, algebra: Algebra, stacks: int = 1, transposed: bool = False
) -> Float[Tensor, "rank first second"]:
    """The R combinations of a stored weight. Stacks are part of ``first``, and the axes of the kernel of ``second``."""
    stored = algebra.stored
    coefficients = stored.bilinear.weights
    first, second, *kernel = weight.shape
    if stored.folded:
        size = stored.blocks[0].size
        cells = stored.blocks[0].transposed_cells if transposed else stored.blocks[0].cells
        coefficients = _in_order(coefficients, tuple(cell.index(1) for cell in cells))
        grid = weight.reshape(stacks, size, first // (stacks * size), size, second // size * prod(kernel))
    else:
        grid = weight.reshape(stacks, algebra.dim, first // (stacks * algebra.dim), 1, second * prod(kernel))
    combined = combine(grid, coefficients, dtype=precision(weight))
    return combined.squeeze(3).transpose(0, 1).flatten(1, 2)


def _in_order(rows: Matrix, order: tuple[int, ...]) -> Matrix:
    return tuple(tuple(row[c] for c in order) for row in rows)
