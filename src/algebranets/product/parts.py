"""The lowering "parts": products over an algebra that consists of matrix algebras are computed in these.

clifford(2,0) is M2(R) in another basis. So the inputs change to the basis of M2(R), where the product takes half of the
multiplies, and the outputs change back (see `Algebra.change`). Weights are stored in that basis already. Each change of
basis reads and writes the activations once.

Other algebras go through blocks. So does everything in float16, where a change of basis could overflow.
"""

from __future__ import annotations

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra, Change
from algebranets.ops.combine import combine
from algebranets.ops.device import precision, sums_may_overflow
from algebranets.product import blocks
from algebranets.product.blocks.matrix import matrices
from algebranets.product.geometry import Geometry
from algebranets.product.grids import as_grid, as_images
from algebranets.product.steps import recurrent

__all__ = ["change_inputs", "change_outputs", "conv", "linear", "recurrent"]


def linear(
    x: Float[Tensor, "*batch inp"], weight: Tensor, bias: Tensor | None, algebra: Algebra, stacks: int = 1
) -> Float[Tensor, "*batch out"]:
    """``y_o = sum_i w_oi . x_i``, products taken in the matrix algebras that ``algebra`` consists of."""
    if algebra.change is None or sums_may_overflow(x):
        return blocks.linear(x, weight, bias, algebra, stacks)
    way = _batched if _are_alike(algebra.stored) else _folded
    y = way(_as_grid(x, algebra), weight, algebra.change, algebra.stored, stacks)
    y = _changed_outputs(y, algebra, bias, stacks)
    return y.reshape(*x.shape[:-1], stacks * algebra.dim * y.shape[-1])


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """A convolution, transposed or not, with products taken in the matrix algebras that ``algebra`` consists of."""
    change, dim = algebra.change, algebra.dim
    if change is None or sums_may_overflow(x):
        return blocks.conv(x, weight, bias, algebra, geometry)
    inputs = as_images(combine(as_grid(x, dim), change.inputs, dim, dtype=precision(x)), x)
    y = blocks.conv(inputs, weight, None, algebra.stored, geometry)
    y = as_images(combine(as_grid(y, dim), change.outputs, dim), y)
    return y if bias is None else y + bias.to(y.dtype).reshape(-1, *[1] * geometry.num_axes)


def change_inputs(x: Float[Tensor, "*batch inp"], algebra: Algebra) -> Float[Tensor, "*batch inp"]:
    """Change inputs from the basis of the table to that of the parts, in the dtype in which they are multiplied."""
    assert algebra.change is not None
    return combine(_as_grid(x, algebra), algebra.change.inputs, algebra.dim, dtype=precision(x)).reshape(x.shape)


def change_outputs(
    y: Float[Tensor, "*batch out"], algebra: Algebra, bias: Float[Tensor, " out"] | None = None, stacks: int = 1
) -> Float[Tensor, "*batch out"]:
    """Change outputs of ``stacks`` layers from the basis of the parts to that of the table, and add a bias."""
    return _changed_outputs(_as_grid(y, algebra, stacks), algebra, bias, stacks).reshape(y.shape)


def _changed_outputs(grid: Tensor, algebra: Algebra, bias: Tensor | None, stacks: int) -> Tensor:
    """Change a grid of outputs. Each of its rows belongs to one of ``stacks`` layers, in turn."""
    assert algebra.change is not None
    fits = bias is not None and stacks == 1
    y = combine(grid, algebra.change.outputs, algebra.dim, bias if fits else None)
    if bias is None or fits:
        return y
    return (y.unflatten(2, (-1, stacks)) + bias.to(y.dtype).view(stacks, algebra.dim, -1)).flatten(2, 3)


def _as_grid(x: Tensor, algebra: Algebra, stacks: int = 1) -> Tensor:
    rows = prod(x.shape[:-1]) * stacks
    return x.reshape(1, 1, rows, algebra.dim, x.shape[-1] // (stacks * algebra.dim))


def _are_alike(algebra: Algebra) -> bool:
    """Whether an algebra has several blocks, and all have the same shape."""
    return len(algebra.blocks) > 1 and len({(block.num_copies, block.size) for block in algebra.blocks}) == 1


def _folded(x: Tensor, weight: Tensor, change: Change, stored: Algebra, stacks: int) -> Tensor:
    """The product of a grid in the basis of the table, as a grid in the basis of the parts."""
    num_rows, dim, num_in = x.shape[2:]
    inputs = combine(x, change.inputs, dim, dtype=precision(x))
    y = blocks.linear(inputs.reshape(num_rows, dim * num_in), weight, None, stored, stacks)
    return y.reshape(1, 1, num_rows * stacks, dim, y.shape[1] // (stacks * dim))


def _batched(x: Tensor, weight: Tensor, change: Change, stored: Algebra, stacks: int) -> Tensor:
    """Like `_folded`, for blocks that have the same shape, with one batch of matrix products for all blocks."""
    count, first = len(stored.blocks), stored.blocks[0]
    inputs = combine(x, change.inputs, first.dim, dtype=precision(x))  # (1, part, row, component, tuple)
    num_rows, num_in = x.shape[2], x.shape[4]
    inputs = inputs.reshape(count, num_rows * first.num_copies, first.size * num_in)
    weights = matrices(weight, stored, stacks, precision(weight))  # (part, stack and row, column)
    y = torch.bmm(inputs, weights.mT)
    width = weights.shape[1] // stacks
    y = y.reshape(count, num_rows, first.num_copies, stacks, width).transpose(2, 3)
    return y.reshape(1, count, num_rows * stacks, first.dim, width // first.size)
