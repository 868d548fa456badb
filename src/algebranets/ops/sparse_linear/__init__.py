"""``sparse_linear``: the product by a weight that stores only its nonzero tuples. Inference only.

Output o of a weight has the tuples from ``starts[o]`` up to ``starts[o + 1]``. ``values`` are (tuple, component in
table order), and ``indices`` are the inputs that the tuples multiply. ``maps``, (output, span), give the same
information to kernels that fill tiles. Each number of ``maps`` describes `maps.SPAN` inputs of an output. Its lower
half has one bit for each input, which is set if there is a tuple. Its upper half counts the tuples stored before them.
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
    """``activation(w . x + b)`` without gradients. Only the stored tuples are read.

    Args:
        x: Planar features with any number of rows.
        weight: ``starts``, ``indices``, ``values`` and ``maps``, as described in the module. They are not checked.
        bias: One number for each output feature, or None.
        algebra: The algebra whose product is used.
        longest: The largest number of tuples of an output.
        pick: If True, pick the input of each tuple, which is faster for few rows. If False, fill the tuples into tiles
            for tensor cores.
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
    """Two FLOPs for each multiply. Each row and stored tuple has one multiply for each term of the algebra."""
    return 2 * x[0] * weight[2][0] * num_terms(algebra)
