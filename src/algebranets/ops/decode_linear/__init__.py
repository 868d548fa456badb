"""``decode_linear``: a linear layer for few rows, which reads the weight once. Inference only."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.device import cast_for_autocast, is_frozen
from algebranets.ops.table import decode_algebra, encode_algebra, num_terms


def decode_linear(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)`` without gradients.

    Args:
        x: Planar features with any number of rows. The kernels are fast for few rows.
        weight: The weight as a layer stores it, or ``stacks`` such weights, one after the other.
        bias: One number for each output feature, or None.
        algebra: The algebra whose product is used.
        stacks: The number of weights of equal shape in ``weight``.
        activation: None, "relu", "silu", "gelu", "sigmoid" or "tanh".
    """
    rows, w, b = cast_for_autocast(x.reshape(prod(x.shape[:-1]), x.shape[-1]), weight, bias)
    y = _decode_linear(rows, w, b, encode_algebra(algebra), stacks, activation, is_frozen(w))
    return y.reshape(*x.shape[:-1], y.shape[1])


@torch.library.custom_op(
    "algebranets::decode_linear",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, int[] algebra, int stacks, str? activation, bool frozen) -> Tensor",
)
def _decode_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    algebra: list[int],
    stacks: int,
    activation: str | None,
    frozen: bool,
) -> Tensor:
    from algebranets.ops.decode_linear import launch  # needs triton

    return launch.decode_linear(x, weight, bias, decode_algebra(algebra), stacks, activation, frozen)


@_decode_linear.register_fake
def _(x: Tensor, weight: Tensor, _bias: Tensor | None, algebra: list[int], *_rest: Any) -> Tensor:
    # In every storage format, a weight has one number for each component, output tuple and input tuple.
    return x.new_empty(x.shape[0], weight.numel() // (x.shape[1] // algebra[0]))


def flops(x: tuple[int, ...], weight: tuple[int, ...], _bias: Any, algebra: list[int], *_: Any, **__: Any) -> int:
    """Two FLOPs for each multiply. Each row, output tuple and input tuple has one multiply for each term."""
    return 2 * x[0] * (prod(weight) // algebra[0]) * num_terms(algebra)
