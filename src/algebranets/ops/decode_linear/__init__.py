"""``decode_linear``: a linear layer for few rows, which reads the weight once. Inference only."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.device import cast_for_autocast, is_frozen
from algebranets.ops.table import decode_algebra, encode_algebra


def decode_linear(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
    scale: Tensor | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)`` without gradients.

    Args:
        x: Planar features with any number of rows. The kernels are fast for few rows.
        weight: The weight as a layer stores it, or ``stacks`` such weights, one after the other.
        bias: One number for each output feature, or None.
        algebra: The algebra whose product is used.
        stacks: The number of weights of equal shape in ``weight``.
        activation: None, "relu", "silu", "gelu", "sigmoid" or "tanh".
        scale: For a weight of int8 numbers, one number for each output tuple of each stack. The weight is multiplied by
            it. None for a weight of floating-point numbers.
    """
    if (weight.dtype == torch.int8) != (scale is not None):
        raise ValueError(
            f"a weight must be of int8 numbers with a scale, or of floating-point numbers without one; got "
            f"{weight.dtype} and {'no' if scale is None else 'a'} scale."
        )
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    if scale is None:
        rows, weight, bias = cast_for_autocast(rows, weight, bias)
    else:
        rows, bias = cast_for_autocast(rows, bias)
    frozen = is_frozen(weight) and (scale is None or is_frozen(scale))
    y = _decode_linear(rows, weight, bias, encode_algebra(algebra), stacks, activation, frozen, scale)
    return y.reshape(*x.shape[:-1], y.shape[1])


@torch.library.custom_op(
    "algebranets::decode_linear",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, int[] algebra, int stacks, str? activation, bool frozen, "
    "Tensor? scale=None) -> Tensor",
)
def _decode_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    algebra: list[int],
    stacks: int,
    activation: str | None,
    frozen: bool,
    scale: Tensor | None = None,
) -> Tensor:
    from algebranets.ops.decode_linear import launch  # needs triton

    return launch.decode_linear(x, weight, bias, decode_algebra(algebra), stacks, activation, frozen, scale)


@_decode_linear.register_fake
def _(x: Tensor, weight: Tensor, _bias: Tensor | None, algebra: list[int], *_rest: Any) -> Tensor:
    # In every storage format, a weight has one number for each component, output tuple and input tuple.
    return x.new_empty(x.shape[0], weight.numel() // (x.shape[1] // algebra[0]))


def flops(x: tuple[int, ...], weight: tuple[int, ...], _bias: Any, algebra: list[int], *_: Any, **__: Any) -> int:
    """Two FLOPs for each multiply of a product in `Algebra.stored`, for each row, output tuple and input tuple."""
    return 2 * x[0] * (prod(weight) // algebra[0]) * decode_algebra(algebra).stored.multiplies
