"""``sparse_linear``: the product by a weight of which only the tuples that are not zero are stored. Inference only.

Of a weight, output o has the tuples ``starts[o]`` up to ``starts[o + 1]``: ``values``, (tuple, component in table
order), belong to the inputs ``indices``. ``maps``, (output, span), say the same for kernels that fill tiles: of every
`maps.SPAN` inputs of an output, which have a tuple, as bits, and in the upper half of the number how many come before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.device import cast_for_autocast, is_frozen
from algebranets.ops.table import decode_algebra, encode_algebra, num_terms


def sparse_linear(
    x: Float[Tensor, "*batch inp"],
    weight: Sequence[Tensor],
    bias: Tensor | None,
    algebra: Algebra,
    longest: int,
    pick: bool,
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)`` without gradients; only tuples that are not zero are read.

    Args:
        x: Planar features, any number of rows.
        weight: ``starts``, ``indices``, ``values`` and ``maps``, as the module says. They are not checked.
        bias: One number for each output feature, or None.
        algebra: The algebra whose product is taken.
        longest: The largest number of tuples of an output.
        pick: Whether the inputs of each tuple are picked, which is for few rows, or tuples are filled into tiles for
            tensor cores.
        activation: None, "relu", "silu", "gelu", "sigmoid" or "tanh".
    """
    rows, b = cast_for_autocast(x.reshape(prod(x.shape[:-1]), x.shape[-1]), bias)
    frozen = is_frozen(weight[2])
    y = _sparse_linear(rows, list(weight), b, encode_algebra(algebra), longest, pick, activation, frozen)
    return y.reshape(*x.shape[:-1], y.shape[1])


@torch.library.custom_op(
    "algebranets::sparse_linear",
    mutates_args=(),
    schema="(Tensor x, Tensor[] weight, Tensor? bias, int[] algebra, int longest, bool pick, str? activation=None, "
    "bool frozen=False) -> Tensor",
)
def _sparse_linear(
    x: Tensor,
    weight: list[Tensor],
    bias: Tensor | None,
    algebra: list[int],
    longest: int,
    pick: bool,
    activation: str | None = None,
    frozen: bool = False,
) -> Tensor:
    from algebranets.ops.sparse_linear import launch  # needs triton

    (starts, indices, values, maps), table = weight, decode_algebra(algebra)
    if pick:
        return launch.picked(x, (starts, indices, values), bias, table, longest, activation, frozen)
    return launch.filled(x, (maps, values), bias, table, activation, frozen)


@_sparse_linear.register_fake
def _(x: Tensor, weight: list[Tensor], _bias: Tensor | None, algebra: list[int], *_rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], algebra[0] * (weight[0].shape[0] - 1))


def flops(x: tuple[int, ...], weight: list[tuple[int, ...]], _bias: Any, algebra: list[int], *_: Any, **__: Any) -> int:
    """Two for each multiply of the table: one table for each row and stored tuple."""
    return 2 * x[0] * weight[2][0] * num_terms(algebra)
