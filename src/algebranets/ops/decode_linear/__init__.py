"""``decode_linear``: the product of few rows by a compact weight that is read once, as in decoding. Inference only."""

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
        x: Planar features, any number of rows; the kernels are made for few.
        weight: The weight as a layer stores it, ``stacks`` of them one after the other.
        bias: One number for each output feature, or None.
        algebra: The algebra whose product is taken.
        stacks: How many weights of equal shape ``weight`` holds.
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
    # However it is stored, a weight has a number for each component, output and input tuple.
    return x.new_empty(x.shape[0], weight.numel() // (x.shape[1] // algebra[0]))


def flops(x: tuple[int, ...], weight: tuple[int, ...], _bias: Any, algebra: list[int], *_: Any, **__: Any) -> int:
    """Two for each multiply of the table: one table for each row, output and input tuple."""
    return 2 * x[0] * (prod(weight) // algebra[0]) * num_terms(algebra)
