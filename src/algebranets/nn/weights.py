"""How a layer says which of its parameters are weights over an algebra."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jaxtyping import Shaped
from torch import Tensor, nn

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn import init


@dataclass(frozen=True)
class AlgebraWeight:
    """One weight over an algebra: which parameter of a layer it is, and where its tuples are stored.

    A layer returns one for each of its weights from a method ``algebra_weights()``. Initialization, accounting and
    pruning ask for them, so a layer of your own with this method can be counted and pruned like the library's.

    Args:
        name: The name of the parameter in its layer.
        algebra: The algebra of the weight's tuples.
        stacks: How many weights lie one after the other along the first axis, such as the gates of a GRU (3) or the
            projections of queries, keys and values (3).
        transposed: Whether the axes are (in, out), as in a transposed convolution, and not (out, in).

    >>> import torch, algebranets as an
    >>> class Scaled(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.matrix = torch.nn.Parameter(torch.randn(an.product.weight_shape(an.H, 5, 3)))
    ...
    ...     def forward(self, x):
    ...         return 2 * an.product.linear(x, self.matrix, algebra=an.H)
    ...
    ...     def algebra_weights(self):
    ...         return [an.nn.AlgebraWeight("matrix", an.H)]
    >>> an.account(Scaled(), torch.randn(1, 12)).multiplies  # 5 x 3 products of quaternions
    240
    """

    name: str
    algebra: Algebra
    stacks: int = 1
    transposed: bool = False

    def tuples(self, stored: Tensor) -> Shaped[Tensor, "comp first second *kernel"]:
        """A tensor that is stored as this weight is, as (component in table order, first, second, ...).

        Args:
            stored: The weight, or a tensor of its shape, such as its gradient or a mask.

        >>> import algebranets as an
        >>> layer = an.nn.Linear(8, 12, algebra=an.H)
        >>> (weight,) = layer.algebra_weights()
        >>> weight.tuples(layer.weight).shape
        torch.Size([4, 3, 2])
        """
        return product.weight_tuples(stored, self.algebra, self.transposed, self.stacks)

    def from_tuples(self, tuples: Shaped[Tensor, "comp first second *kernel"]) -> Tensor:
        """The inverse of `tuples`.

        Args:
            tuples: A tensor of shape (component in table order, first, second, ...).

        >>> import torch, algebranets as an
        >>> layer = an.nn.Linear(8, 12, algebra=an.H)
        >>> (weight,) = layer.algebra_weights()
        >>> torch.equal(weight.from_tuples(weight.tuples(layer.weight)), layer.weight)
        True
        """
        return product.weight_from_tuples(tuples, self.algebra, self.transposed, self.stacks)


def algebra_weights(layer: nn.Module) -> tuple[AlgebraWeight, ...]:
    """The weights over an algebra that a layer itself holds, without those of its children; none for other modules.

    Args:
        layer: Any module.

    >>> import algebranets as an
    >>> [weight.name for weight in algebra_weights(an.nn.GRU(8, 8, algebra=an.H))]
    ['weight_ih_l0', 'weight_hh_l0']
    >>> algebra_weights(an.nn.ReLU())
    ()
    """
    # The class is asked: a compiled model answers for every attribute of the model that it wraps.
    return tuple(layer.algebra_weights()) if hasattr(type(layer), "algebra_weights") else ()  # type: ignore[operator]


def reset_weights(layer: nn.Module, biases: Iterable[str] = ()) -> None:
    """Initialize a layer: Glorot for each component of each weight independently, zero for the biases.

    Args:
        layer: A module with a method ``algebra_weights()``. Its weights may be parametrized.
        biases: Names of parameters to set to zero. Names that the layer does not have, or has as None, are skipped.
    """
    for weight in algebra_weights(layer):
        with init.new_value(layer, weight.name) as value:
            init.xavier_uniform_(value, weight.algebra, stacks=weight.stacks)
    for name in biases:
        if getattr(layer, name, None) is not None:
            with init.new_value(layer, name) as value:
                nn.init.zeros_(value)
