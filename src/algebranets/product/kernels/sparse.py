"""Tuple-sparse linear layers on some rows: one operator, ``algebranets::sparse_linear``, without gradients."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.product import kernels
from algebranets.product.combine import precision
from algebranets.product.compressed import TupleSparse
from algebranets.product.kernels.jit import next_power_of_2
from algebranets.product.kernels.linear import frozen, in_autocast, read, spell

#: Rows up to which tuples of the input may be picked, and up to which, in half precision, tiles are filled for tensor
#: cores; behind that a dense weight is laid out.
FEW, SOME = 32, 256
#: Picking takes its time for each tuple and row, filling some in any case, and some for each place of the weight. In
#: tuples of one row, as measured on an H200 over M2(R) at widths 4096 and 8192:
ALWAYS, A_PLACE = 2_500_000, 0.6
#: Bytes of an input row that a program keeps on the chip at most.
ON_CHIP = 1 << 17


def applies(x: Tensor, w: TupleSparse) -> bool:
    """Whether `linear` can be used, and is the better way: inference on some rows."""
    return (
        kernels.usable(x)
        and 0 < prod(x.shape[:-1]) <= SOME
        and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and (x.dtype.itemsize == 2 or _picks(x, w.starts, w.values))
        and precision(x) == w.values.dtype
        and not (torch.is_grad_enabled() and x.requires_grad)
    )


def _picks(x: Tensor, starts: Tensor, values: Tensor) -> bool:
    """Whether tuples are picked: rows are few, fit onto the chip, and it is not slower than filling tiles."""
    num_rows, (num_tuples, dim) = prod(x.shape[:-1]), values.shape
    num_in = x.shape[-1] // dim
    room = next_power_of_2(num_in) * dim * x.element_size()
    faster = x.element_size() > 2 or num_rows * num_tuples <= ALWAYS + A_PLACE * num_in * (starts.shape[0] - 1)
    return num_rows <= FEW and room <= ON_CHIP and faster


def linear(
    x: Float[Tensor, "*batch inp"], w: TupleSparse, bias: Tensor | None, activation: str | None
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)``; only tuples that are not zero are read."""
    rows, b = in_autocast(x.reshape(prod(x.shape[:-1]), x.shape[-1]), bias)
    weight = (w.starts, w.indices, w.values, w.maps)
    y = _OPERATOR(rows, *weight, b, spell(w.algebra), w.longest, activation, frozen(w.values))
    return y.reshape(*x.shape[:-1], y.shape[1])


def _run(
    x: Tensor,
    starts: Tensor,
    indices: Tensor,
    values: Tensor,
    maps: Tensor,
    bias: Tensor | None,
    algebra: list[int],
    longest: int,
    activation: str | None,
    frozen: bool,
) -> Tensor:
    from algebranets.product.kernels.jit import sparse  # needs triton

    table = read(algebra)
    if _picks(x, starts, values):
        return sparse.picked(x, starts, indices, values, bias, table, longest, activation, frozen)
    return sparse.filled(x, maps, values, bias, table, activation, frozen)


def _shape(x: Tensor, starts: Tensor, _i: Any, _v: Any, _maps: Any, _b: Any, algebra: list[int], *_: Any) -> Tensor:
    return x.new_empty(x.shape[0], algebra[0] * (starts.shape[0] - 1))


_OPERATOR = torch.library.custom_op(
    "algebranets::sparse_linear",
    _run,
    mutates_args=(),
    schema="(Tensor x, Tensor starts, Tensor indices, Tensor values, Tensor maps, Tensor? bias, int[] algebra, "
    "int longest, str? activation, bool frozen) -> Tensor",
)
_OPERATOR.register_fake(_shape)
