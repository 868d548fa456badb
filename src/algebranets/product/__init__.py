"""The product w . x of weights and activations over an algebra: checked here, computed by a *lowering*.

Every function takes torch's arguments, ``algebra=`` and ``lowering=``; activations are planar and weights stored as
`product.layout` says. A lowering is a module with the functions `linear`, `conv` and `recurrent`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from algebranets import checks
from algebranets.algebra import Algebra
from algebranets.product import bilinear, blocks, choice, reference
from algebranets.product.blocks.matrix import real_weight
from algebranets.product.cells import Direction, step
from algebranets.product.geometry import Geometry
from algebranets.product.kernels import lowering as fused
from algebranets.product.kernels.linear import ACTIVATIONS
from algebranets.product.layout import (
    from_tuples,
    in_format_of,
    num_tuples,
    tuple_axis,
    tuples,
    weight_from_tuples,
    weight_shape,
    weight_tuples,
    whole_tuples,
)

Lowering = Literal["auto", "blocks", "bilinear", "kernels", "reference"]

_LOWERINGS: dict[str, ModuleType] = {
    "blocks": blocks,
    "bilinear": bilinear,
    "kernels": fused,
    "reference": reference,
}

__all__ = [
    "Direction",
    "Geometry",
    "Lowering",
    "check_lowering",
    "conv",
    "from_tuples",
    "in_format_of",
    "linear",
    "num_tuples",
    "real_weight",
    "recurrent",
    "step",
    "tuple_axis",
    "tuples",
    "weight_from_tuples",
    "weight_shape",
    "weight_tuples",
    "whole_tuples",
]


def linear(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Float[Tensor, " out"] | None = None,
    *,
    algebra: Algebra,
    lowering: Lowering = "auto",
    stacks: int = 1,
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``y_o = sum_i w_oi . x_i + b_o``, and an ``activation`` of it: relu, silu, gelu, sigmoid or tanh.

    ``weight`` and ``bias`` may hold several layers one behind the other (``stacks``); so does the output then.
    """
    num_out, num_in = num_tuples(weight, algebra, stacks)
    _check_bias(bias, stacks * num_out * algebra.dim)
    if x.shape[-1] != num_in * algebra.dim:
        raise ValueError(
            f"the input's last axis must hold {num_in * algebra.dim} features "
            f"({num_in} {algebra.name} tuples); got shape {tuple(x.shape)}."
        )
    checks.one_of("activation", activation, ACTIVATIONS)
    way = _named(lowering) or choice.for_linear(x, weight, algebra, num_in, stacks * num_out)
    if way is fused:
        return fused.linear(x, weight, bias, algebra, stacks, activation)
    return ACTIVATIONS[activation](way.linear(x, weight, bias, algebra, stacks))


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    geometry: Geometry,
    algebra: Algebra,
    lowering: Lowering = "auto",
) -> Tensor:
    """Convolution, transposed or not, in one to three spatial axes, batched or not."""
    if x.dim() == geometry.num_axes + 1:
        return conv(x[None], weight, bias, geometry=geometry, algebra=algebra, lowering=lowering)[0]
    first, second = num_tuples(weight, algebra)
    num_in, num_out = (first, second * geometry.groups) if geometry.transposed else (second * geometry.groups, first)
    _check_bias(bias, num_out * algebra.dim)
    if x.dim() != geometry.num_axes + 2 or x.shape[1] != num_in * algebra.dim:
        raise ValueError(
            f"the input must be (batch, {num_in * algebra.dim} channels, {geometry.num_axes} spatial axes) or the same "
            f"without a batch: {num_in} {algebra.name} tuples; got shape {tuple(x.shape)}."
        )
    way = _named(lowering) or choice.for_conv(x, weight, algebra, geometry)
    return way.conv(x, weight, bias, algebra, geometry)


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    *,
    algebra: Algebra,
    lowering: Lowering = "auto",
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One recurrent layer over a sequence, in one or both directions: the output and the last states.

    ``x`` is (time, batch, features), or packed, (steps, features), with torch's ``batch_sizes``. The output holds, in
    each component, the tuples of the one direction and then those of the other.
    """
    way = _named(lowering) or choice.for_recurrent(mode, x, directions, algebra, batch_sizes)
    return way.recurrent(mode, x, state, directions, algebra, batch_sizes)


def check_lowering(lowering: str) -> None:
    """Raise an error unless ``lowering`` is the name of one, or "auto"."""
    checks.one_of("lowering", lowering, ("auto", *_LOWERINGS))


def _check_bias(bias: Tensor | None, size: int) -> None:
    if bias is not None and bias.shape != (size,):
        raise ValueError(f"the bias must hold {size} numbers, one per output component; got shape {tuple(bias.shape)}.")


def _named(lowering: Lowering) -> ModuleType | None:
    """The lowering of this name; None leaves it to `product.choice`."""
    if lowering == "auto":
        return None
    check_lowering(lowering)
    return _LOWERINGS[lowering]
