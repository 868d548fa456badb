"""The product w . x of weights and activations over an algebra: checked here, computed by a *lowering*.

Every function takes torch's arguments, ``algebra=`` and ``lowering=``; activations are planar and weights stored as
`product.layout` says. A lowering is a module with the functions `linear`, `conv` and `recurrent`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product import blocks, reference
from algebranets.product.cells import Direction, step
from algebranets.product.geometry import Geometry
from algebranets.product.layout import (
    from_tuples,
    tuples,
    weight_from_tuples,
    weight_shape,
    weight_tuples,
    whole_tuples,
)

Lowering = Literal["auto", "blocks", "reference"]

_LOWERINGS: dict[str, ModuleType] = {"blocks": blocks, "reference": reference}

__all__ = [
    "Direction",
    "Geometry",
    "Lowering",
    "conv",
    "from_tuples",
    "linear",
    "recurrent",
    "step",
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
) -> Float[Tensor, "*batch out"]:
    """``y_o = sum_i w_oi . x_i + b_o``.

    ``weight`` and ``bias`` may hold several layers one behind the other (``stacks``); so does the output then.
    """
    _check(weight, algebra, stacks, 0)
    num_in = _num_second(weight, algebra)
    if x.shape[-1] != num_in * algebra.dim:
        raise ValueError(
            f"the input's last axis must hold {num_in * algebra.dim} features "
            f"({num_in} {algebra.name} tuples); got shape {tuple(x.shape)}."
        )
    return _choose(lowering).linear(x, weight, bias, algebra, stacks)


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
    _check(weight, algebra, 1, geometry.num_axes)
    if x.dim() == geometry.num_axes + 1:
        return conv(x[None], weight, bias, geometry=geometry, algebra=algebra, lowering=lowering)[0]
    first = weight.shape[0] // algebra.blocks[0].size if algebra.folded else weight.shape[1]
    num_in = first if geometry.transposed else _num_second(weight, algebra) * geometry.groups
    if x.dim() != geometry.num_axes + 2 or x.shape[1] != num_in * algebra.dim:
        raise ValueError(
            f"the input must be (batch, {num_in * algebra.dim} channels, {geometry.num_axes} spatial axes) or the same "
            f"without a batch: {num_in} {algebra.name} tuples; got shape {tuple(x.shape)}."
        )
    return _choose(lowering).conv(x, weight, bias, algebra, geometry)


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
    return _choose(lowering).recurrent(mode, x, state, directions, algebra, batch_sizes)


def _choose(lowering: Lowering) -> ModuleType:
    if lowering == "auto":
        return blocks
    if lowering not in _LOWERINGS:
        raise ValueError(f"lowering must be one of auto, {', '.join(_LOWERINGS)}; got {lowering!r}.")
    return _LOWERINGS[lowering]


def _num_second(weight: Tensor, algebra: Algebra) -> int:
    return weight.shape[1] // algebra.blocks[0].size if algebra.folded else weight.shape[2]


def _check(weight: Tensor, algebra: Algebra, stacks: int, num_axes: int) -> None:
    """That ``weight`` is stored as this algebra stores weights."""
    axes = num_axes + (2 if algebra.folded else 3)
    unit = algebra.blocks[0].size if algebra.folded else algebra.dim
    whole = weight.dim() == axes and weight.shape[0] % (unit * stacks) == 0
    if (
        not whole
        or (algebra.folded and weight.shape[1] % unit)
        or (not algebra.folded and weight.shape[0] != unit * stacks)
    ):
        expected = weight_shape(algebra, 1, 1, (1,) * num_axes, stacks)
        raise ValueError(
            f"a weight over {algebra.name} must have {axes} axes, stored as product.weight_shape says "
            f"({expected} for one tuple to one tuple); got shape {tuple(weight.shape)}."
        )
