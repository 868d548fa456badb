"""The product by tuple-sparse weights: by a kernel, in torch's sparse formats, or laid out as a dense weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.product import blocks, kernels
from algebranets.product.blocks.matrix import join, split
from algebranets.product.combine import Matrix, combine
from algebranets.product.compressed import TupleSparse, expand
from algebranets.product.kernels import sparse as fused
from algebranets.product.kernels.linear import ACTIVATIONS

#: Rows times copies of the algebra's block from which `_through_blocks` is faster than `_through_numbers`: in trials
#: with 1 to 128 rows over C, H and M2(R) on two x86 cores they are level between 8 and 64 rows.
MANY_COLUMNS = 32


def linear(
    x: Float[Tensor, "*batch inp"], w: TupleSparse, bias: Tensor | None = None, activation: str | None = None
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)``, as `product.linear` has it."""
    if x.shape[-1] != w.num_in * w.algebra.dim:
        raise ValueError(
            f"the input's last axis must hold {w.num_in * w.algebra.dim} features "
            f"({w.num_in} {w.algebra.name} tuples); got shape {tuple(x.shape)}."
        )
    if fused.applies(x, w):
        return fused.linear(x, w, bias, activation)
    if not _has_formats(x, w.values):
        return ACTIVATIONS[activation](blocks.linear(x, expand(w), bias, w.algebra))
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    many = len(rows) * max(block.num_copies for block in w.algebra.blocks) >= MANY_COLUMNS
    y = (_through_blocks if many else _through_numbers)(rows, w).reshape(*x.shape[:-1], -1)
    return ACTIVATIONS[activation](y if bias is None else y + bias)


# torch's formats, on a CPU. Nothing is kept between calls: what is kept of values can be older than they are. ---------


def _has_formats(x: Tensor, values: Tensor) -> bool:
    """Whether torch multiplies by sparse matrices fast where ``x`` is: MKL does, without gradients.

    Without MKL torch has no product by blocks at all, and the one by numbers is no faster than a dense weight.
    """
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and torch.backends.mkl.is_available()
        and x.dtype == values.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not (torch.is_grad_enabled() and (x.requires_grad or values.requires_grad))
        and not kernels.is_transformed()
        and x.numel() > 0
    )


def _through_numbers(rows: Float[Tensor, "row inp"], w: TupleSparse) -> Float[Tensor, "row out"]:
    """Through CSR, for few rows: the values as they are stored, times a small matrix for each input tuple.

    w . x is linear in w as well: the matrix of w -> w . x is made of x, so that nothing has to be made of w.
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
    """The matrix of w -> w . x in x: for each component of w and each of the product, the coefficients of x's."""
    coefficients = {(i, j, k): c for i, j, k, c in algebra.terms}
    return tuple(
        tuple(coefficients.get((i, j, k), 0) for j in algebra.order) for i in range(algebra.dim) for k in algebra.order
    )


def _through_blocks(rows: Float[Tensor, "row inp"], w: TupleSparse) -> Float[Tensor, "row out"]:
    """Through BSR, for many rows: rho(w) of every tuple is a small matrix, and copies are further columns."""
    num_rows, parts = len(rows), []
    for block, part in zip(w.algebra.blocks, split(rows, w.algebra, 1), strict=True):
        columns = part.reshape(num_rows * block.num_copies, block.size, w.num_in).permute(2, 1, 0)
        y = _matrix_of_blocks(w, block) @ columns.reshape(w.num_in * block.size, -1)
        y = y.reshape(w.num_out, block.size, -1).permute(2, 1, 0)
        parts.append(y.reshape(num_rows, block.num_copies * block.size * w.num_out))
    return join(parts, 1)


def _matrix_of_blocks(w: TupleSparse, block: Block) -> Tensor:
    """rho(w) in BSR: a row for each output and row of its block, a column for each input and column of its block."""
    k, num_tuples = block.size, len(w.indices)
    cells = combine(w.values.detach().reshape(1, 1, num_tuples, w.algebra.dim, 1), block.cells, across=k * k)
    parts = w.starts, w.indices.int(), cells.reshape(num_tuples, k, k)
    return in_format(torch.sparse_bsr_tensor, *parts, (w.num_out * k, w.num_in * k))


def in_format(
    make: Callable[..., Tensor], starts: Tensor, places: Tensor, values: Tensor, size: tuple[int, int]
) -> Tensor:
    """``make``'s sparse tensor, without torch's warnings that such are new, and unchecked unless one asks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ")
        return make(starts, places, values, size=size, check_invariants=False)
