"""Real weights and biases, with which torch's layers compute the same as layers over an algebra."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.conversion.parts import Parts, planar_index
from algebranets.conversion.scaled import Scaled


class RealParameters:
    """Makes the real parameters of a model. Parameters that are shared in the model stay shared.

    Args:
        packed: The modules of the model that read packed sequences.
    """

    def __init__(self, packed: Set[nn.Module] = frozenset()) -> None:
        self.packed = packed
        self._made: dict[tuple[Hashable, ...], tuple[Tensor, nn.Parameter]] = {}

    def make(self, stored: Tensor, change: Callable[[Tensor], Tensor], *how: Hashable) -> nn.Parameter:
        """Return the parameter ``change(stored)``. The same tensor with the same ``how`` gives the same object.

        Args:
            stored: A parameter, or the value of a parametrized one.
            change: The function that computes the real weight.
            how: What ``change`` depends on.
        """
        key = (id(stored), *how)
        if key not in self._made:  # the tensor is kept, so that its id is not used again
            with torch.no_grad():
                value = change(stored.detach()).contiguous().clone()
            self._made[key] = stored, nn.Parameter(value, requires_grad=stored.requires_grad)
        return self._made[key][1]

    def same(self, stored: Tensor | None) -> nn.Parameter | None:
        """Return a parameter that needs no change. The value of a parametrization becomes a new parameter.

        Args:
            stored: The parameter or value, or None.
        """
        if stored is None or isinstance(stored, nn.Parameter):
            return stored
        return self.make(stored, lambda value: value)


def dense(layer: Any, real: RealParameters) -> tuple[nn.Parameter, nn.Parameter | None]:
    """Return the real weight and bias of a linear layer, or of a convolution without groups.

    Args:
        layer: The layer over an algebra. It may have parts and scales.
        real: The parameters made so far.
    """
    algebra, transposed, parts = layer.algebra, layer.transposed, parts_of(layer)
    out = 1 if transposed else 0
    scale, bias = scale_of(layer), bias_of(layer)

    def change(stored: Tensor) -> Tensor:
        matrix = on_parts(real_weight(stored, algebra, transposed), out, parts[1], algebra)
        matrix = on_parts(matrix, 1 - out, parts[0], algebra)
        return matrix if scale is None else matrix * by_channel(scale, matrix, out)

    weight = real.make(layer.weight, change, algebra, transposed, parts, id(scale))
    if bias is None or parts[1] is None or isinstance(layer, Scaled):  # offsets already have the model's order
        return weight, real.same(bias)
    return weight, real.make(bias, lambda stored: on_parts(stored, 0, parts[1], algebra), algebra, parts[1])


def parts_of(layer: Any) -> tuple[Parts | None, Parts | None]:
    """Return the parts of a layer's input axis and output axis.

    Args:
        layer: Any layer.
    """
    return getattr(layer, "in_parts", None), getattr(layer, "out_parts", None)


def scale_of(layer: Any) -> Tensor | None:
    """Return the factors of the output channels of a folded layer, or None for other layers.

    Args:
        layer: Any layer.
    """
    return layer.scale if isinstance(layer, Scaled) else None


def bias_of(layer: Any) -> Tensor | None:
    """Return the bias of a layer, which is ``offset`` in a folded layer, or None.

    Args:
        layer: Any layer.
    """
    return layer.offset if isinstance(layer, Scaled) else layer.bias


def real_weight(stored: Tensor, algebra: Algebra, transposed: bool = False, stacks: int = 1) -> Tensor:
    """Return the weight of torch's layer, with planar axes. Stacked weights are expanded one by one.

    Args:
        stored: The weight over the algebra.
        algebra: The algebra.
        transposed: Whether the axes are (in, out).
        stacks: The number of weights along the first axis.
    """
    if transposed:
        swapped = product.weight_tuples(stored, algebra, transposed=True).transpose(1, 2)
        return product.real_weight(product.weight_from_tuples(swapped, algebra), algebra).transpose(0, 1)
    return torch.cat([product.real_weight(part, algebra) for part in stored.chunk(stacks)])


def on_parts(planar: Tensor, axis: int, parts: Parts | None, algebra: Algebra) -> Tensor:
    """Rearrange a planar axis for a model whose axis has parts.

    Args:
        planar: A weight or bias.
        axis: The axis.
        parts: The parts, or None if the model's axis is planar too.
        algebra: The algebra of the tuples.
    """
    if parts is None:
        return planar
    index = torch.tensor(planar_index(parts, algebra), device=planar.device)
    return torch.empty_like(planar).index_copy_(axis, index, planar)


def by_channel(vector: Tensor, like: Tensor, axis: int) -> Tensor:
    """Reshape a vector so that it broadcasts with ``like`` along all axes except the channel axis.

    Args:
        vector: One number for each channel.
        like: A tensor.
        axis: The channel axis of ``like``.
    """
    return vector.detach().reshape([-1 if n == axis else 1 for n in range(like.dim())])
