"""rho(w), the real matrix of a block, and products by it without its structural zeros."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets import algebra as algebras
from algebranets.algebra import Algebra, Block
from algebranets.ops.combine import Matrix, combine
from algebranets.ops.device import is_channels_last
from algebranets.product import auto
from algebranets.product.layout import weight_tuples


def matrix(
    weight: Tensor,
    algebra: Algebra,
    block: Block,
    transposed: bool = False,
    stacks: int = 1,
    dtype: torch.dtype | None = None,
    copies: int = 1,
) -> Tensor:
    """rho(w): the real weight that multiplies one copy of ``block``, in the layout of torch's weights.

    With ``copies``, rho(w) is repeated that many times along the diagonal, with zeros elsewhere. The result's shape is
    ``(stacks * copies * k * first, copies * k * second, *kernel)``. One copy of a folded weight is returned as it is.
    Otherwise the result has ``dtype``, by default the weight's, and the weight's memory format.
    """
    if algebra.folded and copies == 1:
        return weight
    if algebra.change is not None:  # from the basis of the parts to that of the table, component by component
        weight = weight_tuples(weight, algebra, transposed, stacks).unflatten(1, (stacks, -1)).transpose(0, 1)
        weight = weight.flatten(0, 2)
    cells = _identity(block.size**2) if algebra.folded else block.transposed_cells if transposed else block.cells
    is_last = is_channels_last(weight)
    down, along = (block.size, block.size) if algebra.folded else (algebra.dim, 1)
    rows, columns, kernel = weight.shape[0] // (stacks * down), weight.shape[1] // along, weight.shape[2:]
    if is_last:
        weight, rows = weight.movedim(1, -1), rows * prod(kernel)
    else:
        columns *= prod(kernel)
    across = copies * block.size
    grid = weight.reshape(stacks, down, rows, along, columns)
    y = combine(grid, _along_diagonal(cells, block.size, copies), across=across, dtype=dtype)
    if is_last:
        return y.reshape(-1, *kernel, across * columns).movedim(-1, 1)
    return y.reshape(-1, across * columns // prod(kernel), *kernel)


def _identity(size: int) -> Matrix:
    return tuple(tuple(int(i == j) for j in range(size)) for i in range(size))


def _along_diagonal(cells: Matrix, size: int, copies: int) -> Matrix:
    """The cells of a square matrix with ``size`` x ``size`` given cells, ``copies`` times along the diagonal."""
    if copies == 1:
        return cells
    zero, places = (0,) * len(cells[0]), range(copies * size)
    return tuple(cells[p % size * size + q % size] if p // size == q // size else zero for p in places for q in places)


def matrices(
    weight: Tensor, algebra: Algebra, stacks: int, dtype: torch.dtype | None = None
) -> Float[Tensor, "block first second"]:
    """rho(w) of all blocks of a planar algebra, which must have the same size: (block, stack and row, column)."""
    size, count = algebra.blocks[0].size, len(algebra.blocks)
    first, second = weight.shape
    grid = weight.reshape(stacks, algebra.dim, first // (stacks * algebra.dim), 1, second)
    cells = tuple(cell for block in algebra.blocks for cell in block.cells)
    rows = combine(grid, cells, across=size, dtype=dtype)  # (stack, block and row of rho, out, column of rho, in)
    by_block = rows.reshape(stacks, count, -1, size * second).transpose(0, 1)
    return by_block.reshape(count, stacks * by_block.shape[2], size * second)


def real_weight(weight: Tensor, algebra: Algebra | str) -> Tensor:
    """L(w): the weight with which torch's layer computes the same, (A * out, A * in, *kernel), including zeros."""
    algebra = algebras.get(algebra)
    tuples = weight_tuples(weight, algebra)
    _, first, second, *kernel = tuples.shape
    coefficients = {(i, j, k): c for i, j, k, c in algebra.terms}
    components = range(algebra.dim)
    cells = tuple(
        tuple(coefficients.get((i, j, k), 0) for i in components) for k in algebra.order for j in algebra.order
    )
    grid = combine(tuples.reshape(1, algebra.dim, first, 1, second * prod(kernel)), cells, across=algebra.dim)
    return grid.reshape(algebra.dim * first, algebra.dim * second, *kernel)


def split(x: Tensor, algebra: Algebra, dim: int) -> tuple[Tensor, ...]:
    """Split ``x`` along its channel axis ``dim`` into the channels of each block."""
    if len(algebra.blocks) == 1:
        return (x,)  # the gradient of a slice is a copy, even of a slice of everything
    channels = x.shape[dim] // algebra.dim
    return x.split([block.dim * channels for block in algebra.blocks], dim)


def join(parts: list[Tensor], dim: int) -> Tensor:
    """Concatenate the parts along ``dim``. A single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def bias_fits(algebra: Algebra) -> bool:
    """Whether torch's bias argument can take our bias. It cannot with several copies, since their biases differ."""
    return len(algebra.blocks) == 1 and algebra.blocks[0].num_copies == 1


def spans_worth_skipping(block: Block, x: Tensor, num_summands: int) -> tuple[tuple[slice, slice], ...] | None:
    """The spans of rho(w) to multiply ``x`` by, or None to multiply by the whole matrix."""
    return block.spans if auto.skips_zeros(x, block, num_summands) else None


def multiply(
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    spans: tuple[tuple[slice, slice], ...] | None,
    size: int,
) -> Tensor:
    """``product(x, weight, bias)`` without the block's zeros outside ``spans``. The channels of ``x`` are axis 1."""
    if spans is None:
        return product(x, weight, bias)
    out, inp = weight.shape[0] // size, weight.shape[1] // size
    parts = []
    for rows, columns in spans:
        stop = max(columns.stop, columns.start + 1)  # rows of zeros: torch's products need at least one column
        r, c = slice(rows.start * out, rows.stop * out), slice(columns.start * inp, stop * inp)
        parts.append(product(x[:, c], weight[r, c], None if bias is None else bias[r]))
    return torch.cat(parts, dim=1)
