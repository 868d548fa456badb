"""The product by tuple-sparse weights, with a kernel, in torch's sparse formats or as a dense weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.ops.combine import Matrix, combine
from algebranets.ops.device import sums_may_overflow
from algebranets.ops.sparse_linear import sparse_linear
from algebranets.product import auto, blocks, kernels, parts
from algebranets.product.activation import ACTIVATIONS
from algebranets.product.blocks.matrix import join, split
from algebranets.product.compressed import TupleSparse, expand


def linear(
    x: Float[Tensor, "*batch inp"], w: TupleSparse, bias: Tensor | None = None, activation: str | None = None
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)`` for a tuple-sparse weight ``w``. The other arguments are as in `product.linear`."""
    if x.shape[-1] != w.num_in * w.algebra.dim:
        raise ValueError(
            f"the input's last axis must hold {w.num_in * w.algebra.dim} features "
            f"({w.num_in} {w.algebra.name} tuples); got shape {tuple(x.shape)}."
        )
    if w.algebra.change is not None and not sums_may_overflow(x):
        y = linear(parts.change_inputs(x, w.algebra), replace(w, algebra=w.algebra.stored))
        return ACTIVATIONS[activation](parts.change_outputs(y, w.algebra, bias))
    way = auto.sparse(x, w)
    if way in ("pick", "fill"):
        weight = (w.starts, w.indices, w.values, w.maps)
        return sparse_linear(x, weight, bias, w.algebra, w.longest, way == "pick", activation)
    if way == "dense":
        return _dense(x, w, bias, activation)
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    y = (_through_blocks if way == "blocks" else _through_numbers)(rows, w).reshape(*x.shape[:-1], -1)
    return ACTIVATIONS[activation](y if bias is None else y + bias)


def _dense(x: Tensor, w: TupleSparse, bias: Tensor | None, activation: str | None) -> Tensor:
    """The product by the dense weight, which is built if it is not kept."""
    if w.dense is not None and auto.linear(x, w.dense, w.algebra, w.num_in, w.num_out) == "kernels":
        return kernels.decode(x, w.dense, bias, w.algebra, activation=activation)
    return ACTIVATIONS[activation](blocks.linear(x, expand(w) if w.dense is None else w.dense, bias, w.algebra))


# torch's formats, on a CPU. Nothing is cached between calls, because the values may change. ---------------------------


def _through_numbers(rows: Float[Tensor, "row inp"], w: TupleSparse) -> Float[Tensor, "row out"]:
    """The product in CSR format, for few rows.

    The CSR matrix has the values as they are stored, so nothing is built from w. It is multiplied by the matrices of
    the linear maps w -> w . x, one for each input tuple, which are built from x.
    """
    dim, num_rows = w.algebra.dim, len(rows)
    places = (w.indices.int()[:, None] * dim + torch.arange(dim, dtype=torch.int32)).flatten()
    size = w.num_out, w.num_in * dim
    matrix = in_format(torch.sparse_csr_tensor, w.starts * dim, places, w.values.detach().flatten(), size)
    grid = rows.reshape(num_rows, dim, w.num_in).permute(2, 1, 0)[None, None]
    maps = combine(grid, _right_multiplication(w.algebra), across=dim * dim)
    y = matrix @ maps.reshape(w.num_in * dim, dim * num_rows)
    return y.reshape(w.num_out, dim, num_rows).permute(2, 1, 0).reshape(num_rows, dim * w.num_out)


@cache
def _right_multiplication(algebra: Algebra) -> Matrix:
    """The matrix of w -> w . x: for each component of w and of the product, the coefficients of x's components."""
    coefficients = {(i, j, k): c for i, j, k, c in algebra.terms}
    return tuple(
        tuple(coefficients.get((i, j, k), 0) for j in algebra.order) for i in range(algebra.dim) for k in algebra.order
    )


def _through_blocks(rows: Float[Tensor, "row inp"], w: TupleSparse) -> Float[Tensor, "row out"]:
    """The product in BSR format, for many rows. rho(w) of a tuple is one small block, and a copy is one more column."""
    num_rows, parts = len(rows), []
    for block, part in zip(w.algebra.blocks, split(rows, w.algebra, 1), strict=True):
        columns = part.reshape(num_rows * block.num_copies, block.size, w.num_in).permute(2, 1, 0)
        y = _matrix_of_blocks(w, block) @ columns.reshape(w.num_in * block.size, -1)
        y = y.reshape(w.num_out, block.size, -1).permute(2, 1, 0)
        parts.append(y.reshape(num_rows, block.num_copies * block.size * w.num_out))
    return join(parts, 1)


def _matrix_of_blocks(w: TupleSparse, block: Block) -> Tensor:
    """The BSR matrix of ``block``: (output and row of rho(w), input and column of rho(w))."""
    k, num_tuples = block.size, len(w.indices)
    cells = combine(w.values.detach().reshape(1, 1, num_tuples, w.algebra.dim, 1), block.cells, across=k * k)
    parts = w.starts, w.indices.int(), cells.reshape(num_tuples, k, k)
    return in_format(torch.sparse_bsr_tensor, *parts, (w.num_out * k, w.num_in * k))


def in_format(
    make: Callable[..., Tensor], starts: Tensor, places: Tensor, values: Tensor, size: tuple[int, int]
) -> Tensor:
    """Make a sparse tensor with ``make``, without torch's checks and without its warning that the format is new."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ")
        return make(starts, places, values, size=size, check_invariants=False)
