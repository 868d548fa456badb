"""The product by tuple-sparse weights: by a kernel, in torch's sparse formats, or laid out as a dense weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from algebranets.algebra import Block
from algebranets.product import blocks, kernels
from algebranets.product.blocks.matrix import join, split
from algebranets.product.compressed import TupleSparse, expand, outputs
from algebranets.product.kernels import sparse as fused
from algebranets.product.kernels.linear import ACTIVATIONS

#: Columns from which on torch's block format is faster than its plain one, in trials on two x86 cores.
MANY_COLUMNS = 64

#: Tensors of values, and at which version they are in torch's formats: by block of the algebra and kind of format.
_FORMATS: WeakIdKeyDictionary = WeakIdKeyDictionary()


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
    way = _through_formats if _has_formats(x, w.values) else _laid_out
    return ACTIVATIONS[activation](way(x, w, bias))


def _laid_out(x: Tensor, w: TupleSparse, bias: Tensor | None) -> Tensor:
    return blocks.linear(x, expand(w), bias, w.algebra)


# torch's formats, on a CPU --------------------------------------------------------------------------------------------


def _has_formats(x: Tensor, values: Tensor) -> bool:
    """Whether torch multiplies by sparse matrices where ``x`` is: MKL does, without gradients."""
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and torch.backends.mkl.is_available()
        and x.dtype == values.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not (torch.is_grad_enabled() and x.requires_grad)
        and not kernels.is_transformed()
        and x.numel() > 0
    )


def _through_formats(x: Tensor, w: TupleSparse, bias: Tensor | None) -> Tensor:
    """One product for each block of the algebra, rho(w) of every tuple a small matrix; copies are further columns."""
    num_rows, parts = prod(x.shape[:-1]), []
    for number, part in enumerate(split(x.reshape(num_rows, x.shape[-1]), w.algebra, 1)):
        block = w.algebra.blocks[number]
        columns = part.reshape(num_rows * block.num_copies, block.size, w.num_in).permute(2, 1, 0)
        matrix = _format(w, number, columns.shape[2] >= MANY_COLUMNS)
        y = matrix @ columns.reshape(w.num_in * block.size, -1)
        y = y.reshape(w.num_out, block.size, -1).permute(2, 1, 0)
        parts.append(y.reshape(num_rows, block.num_copies * block.size * w.num_out))
    y = join(parts, 1).reshape(*x.shape[:-1], -1)
    return y if bias is None else y + bias


def _format(w: TupleSparse, block: int, blocked: bool) -> Tensor:
    """Made when it is first asked for, and again when the values have changed."""
    version, made = _FORMATS.get(w.values, (-1, {}))
    if version != w.values._version:
        made = {}
        _FORMATS[w.values] = w.values._version, made
    if (block, blocked) not in made:
        made[block, blocked] = (_bsr if blocked else _csr)(w, w.algebra.blocks[block])
    return made[block, blocked]


def _bsr(w: TupleSparse, block: Block) -> Tensor:
    """rho(w) as a matrix of blocks: a row for each output and row of its block, a column for each input's."""
    return in_format(torch.sparse_bsr_tensor, w.starts, w.indices.int(), _cells(w, block), _size(w, block))


def _csr(w: TupleSparse, block: Block) -> Tensor:
    """The same, number by number."""
    within = torch.arange(block.size)
    rows = (outputs(w.starts, len(w.indices))[:, None] * block.size + within).flatten()  # those of each tuple's block
    order = rows.argsort(stable=True)
    columns = (w.indices[:, None, None].int() * block.size + within.int()).expand(-1, block.size, -1)
    counts = w.starts.diff().repeat_interleave(block.size) * block.size
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
    values, places = (t.reshape(len(rows), block.size)[order].flatten() for t in (_cells(w, block), columns))
    return in_format(torch.sparse_csr_tensor, starts, places, values, _size(w, block))


def _cells(w: TupleSparse, block: Block) -> Float[Tensor, "tuple row column"]:
    cells = torch.tensor(block.cells, dtype=w.values.dtype)
    return (w.values.detach() @ cells.T).reshape(-1, block.size, block.size)


def _size(w: TupleSparse, block: Block) -> tuple[int, int]:
    return w.num_out * block.size, w.num_in * block.size


def in_format(
    make: Callable[..., Tensor], starts: Tensor, places: Tensor, values: Tensor, size: tuple[int, int]
) -> Tensor:
    """``make``'s sparse tensor, without torch's warnings that such are new, and unchecked unless one asks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ")
        return make(starts, places, values, size=size, check_invariants=False)
