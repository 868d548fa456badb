"""The product w . x of weights and activations over an algebra, computed by one of several *lowerings*.

A lowering is a module with the functions `linear`, `conv` and `recurrent`. The functions here call a given
lowering, or choose one if it is "auto". `linear` and `conv` check shapes first. `product.layout` describes how
activations and weights are stored.
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from algebranets import algebra as algebras
from algebranets import checks
from algebranets.algebra import Algebra
from algebranets.ops.device import sums_may_overflow
from algebranets.product import auto, bilinear, blocks, kernels, parts, reference
from algebranets.product.activation import ACTIVATIONS
from algebranets.product.blocks.matrix import real_weight
from algebranets.product.cells import Direction, step
from algebranets.product.channels import cat, chunk, join_heads, split, split_heads, tuples_per_head
from algebranets.product.geometry import Geometry
from algebranets.product.layout import (
    from_tuples,
    in_format_of,
    nearest_multiple,
    num_tuples,
    stored_tuples,
    tuple_axis,
    tuples,
    weight_from_stored_tuples,
    weight_from_tuples,
    weight_shape,
    weight_tuples,
    whole_tuples,
)
from algebranets.product.pairs import dot
from algebranets.product.parts import change_inputs, change_outputs

#: The names of the lowerings, and "auto", which chooses one of them by device, shape and dtype.
Lowering = Literal["auto", "blocks", "parts", "bilinear", "kernels", "reference"]

_LOWERINGS: dict[str, ModuleType] = {
    "blocks": blocks,
    "parts": parts,
    "bilinear": bilinear,
    "kernels": kernels,
    "reference": reference,
}

__all__ = [
    "Direction",
    "Geometry",
    "Lowering",
    "cat",
    "change_inputs",
    "change_outputs",
    "check_lowering",
    "chunk",
    "conv",
    "dot",
    "from_tuples",
    "in_format_of",
    "join_heads",
    "keeps_stored",
    "linear",
    "nearest_multiple",
    "num_tuples",
    "real_weight",
    "recurrent",
    "split",
    "split_heads",
    "step",
    "stored_tuples",
    "tuple_axis",
    "tuples",
    "tuples_per_head",
    "weight_from_stored_tuples",
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
    algebra: Algebra | str,
    lowering: Lowering = "auto",
    stacks: int = 1,
    activation: str | None = None,
    stored: bool = False,
) -> Float[Tensor, "*batch out"]:
    """A linear layer over an algebra: ``y_o = activation(sum_i w_oi . x_i + b_o)``.

    Args:
        x: Planar features, (..., features). The last axis holds whole tuples.
        weight: The weights of ``stacks`` layers, one after the other, in the shape that `weight_shape` gives.
        bias: One number for each output feature, or None.
        algebra: The algebra whose product is taken, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed; "auto" chooses by device, shape and dtype (see `product.auto`).
        stacks: The number of layers in ``weight`` and ``bias``. Their outputs follow one another in the last axis.
        activation: None, "relu", "silu", "gelu", "sigmoid" or "tanh".
        stored: Whether ``x`` and the result are in the basis in which weights are stored (see `keeps_stored`).

    >>> import torch
    >>> from algebranets.algebra import C
    >>> i = torch.tensor([[0.0], [1.0]])  # one weight, the imaginary unit
    >>> linear(torch.tensor([[3.0, 4.0]]), i, algebra=C)  # i (3 + 4i) = -4 + 3i
    tensor([[-4.,  3.]])
    """
    algebra = algebras.get(algebra)
    if stored and algebra.change is not None:
        bias = None if bias is None else parts.change_inputs(bias.unflatten(0, (stacks, -1)), algebra).flatten()
        algebra = algebra.stored
    num_out, num_in = num_tuples(weight, algebra, stacks)
    _check_bias(bias, stacks * num_out * algebra.dim)
    if x.shape[-1] != num_in * algebra.dim:
        raise ValueError(
            f"the input's last axis must hold {num_in * algebra.dim} features "
            f"({num_in} {algebra.name} tuples); got shape {tuple(x.shape)}."
        )
    checks.one_of("activation", activation, ACTIVATIONS)
    if lowering == "auto":
        lowering = auto.linear(x, weight, algebra, num_in, stacks * num_out)
    way = _named(lowering)
    if way is kernels:
        return kernels.linear(x, weight, bias, algebra, stacks, activation)
    return ACTIVATIONS[activation](way.linear(x, weight, bias, algebra, stacks))


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    geometry: Geometry,
    algebra: Algebra | str,
    lowering: Lowering = "auto",
) -> Tensor:
    """A convolution over an algebra, transposed or not, in one to three spatial axes.

    Args:
        x: Images with planar features, (batch, features, ...) or (features, ...).
        weight: The weight, in the shape that `weight_shape` gives. Its last axes are the spatial axes of the kernel.
        bias: One number for each output feature, or None.
        geometry: Stride, padding, dilation and groups. Groups divide the tuples, not the real channels.
        algebra: The algebra whose product is taken, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed; "auto" chooses by device, shape and dtype (see `product.auto`).
    """
    algebra = algebras.get(algebra)
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
    if lowering == "auto":
        lowering = auto.conv(x, weight, algebra, geometry)
    return _named(lowering).conv(x, weight, bias, algebra, geometry)


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    *,
    algebra: Algebra | str,
    lowering: Lowering = "auto",
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one recurrent layer over a sequence, in one or both directions. Returns the output and the last states.

    In each component of the output, the tuples of the forward direction come before those of the backward direction.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM".
        x: Planar features, (time, batch, features), or (rows, features) of a packed sequence with ``batch_sizes``.
        state: The initial states, each (direction, batch, features). The LSTM has two.
        directions: The parameters of each direction.
        algebra: The algebra whose product is taken, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed; "auto" chooses by device, shape and dtype (see `product.auto`).
        batch_sizes: The ``batch_sizes`` of torch's `PackedSequence`, or None.
    """
    algebra = algebras.get(algebra)
    if lowering == "auto":
        lowering = auto.recurrent(mode, x, directions, algebra, batch_sizes)
    return _named(lowering).recurrent(mode, x, state, directions, algebra, batch_sizes)


def keeps_stored(x: Tensor, algebra: Algebra | str, lowering: Lowering) -> bool:
    """Whether layers that follow one another should keep activations in the basis in which weights are stored.

    Over an algebra that is stored in another basis, the changes of basis between two linear maps cancel if nothing
    comes between them that acts on components. Inner products of tuples may come between them: they are the same in
    both bases.
    """
    changes = algebras.get(algebra).change is not None and lowering in ("auto", "parts")
    return changes and not sums_may_overflow(x)


def check_lowering(lowering: str) -> None:
    """Raise an error unless ``lowering`` is "auto" or the name of a lowering."""
    checks.one_of("lowering", lowering, ("auto", *_LOWERINGS))


def _check_bias(bias: Tensor | None, size: int) -> None:
    if bias is not None and bias.shape != (size,):
        raise ValueError(f"the bias must hold {size} numbers, one per output component; got shape {tuple(bias.shape)}.")


def _named(lowering: str) -> ModuleType:
    check_lowering(lowering)
    return _LOWERINGS[lowering]
