"""`AlgebraWeight`, with which a layer declares its weights over an algebra."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn import init


@dataclass(frozen=True)
class AlgebraWeight:
    """The description of one weight over an algebra: its parameter, and how the parameter stores its tuples.

    A layer's method ``algebra_weights()`` returns one for each weight. Initialization, accounting and pruning call this
    method, so a layer of your own that has it can be counted and pruned like the library's layers.

    Args:
        name: The name of the parameter in its layer.
        algebra: The algebra of the weight's tuples, an `Algebra` or a name such as "M2R".
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU (3) or the
            projections of queries, keys and values (3).
        transposed: Whether the axes are (in, out), as in a transposed convolution, and not (out, in).
        num_inputs: The number of inputs that the weight is multiplied with, one after the other. It is 2 in a bilinear
            layer, whose third axis counts the tuples of the second input instead of kernel positions.

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
    num_inputs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "algebra", algebras.get(self.algebra))

    def tuples(self, stored: Tensor) -> Shaped[Tensor, "comp first second *kernel"]:
        """Rearrange a tensor that is stored like this weight into (component in table order, first, second, ...).

        The axes (first, second) are (out, in), or (in, out) if ``transposed``.

        Args:
            stored: The weight, or a tensor in its storage layout.

        >>> import algebranets as an
        >>> layer = an.nn.Linear(8, 12, algebra=an.H)
        >>> (weight,) = layer.algebra_weights()
        >>> weight.tuples(layer.weight).shape
        torch.Size([4, 3, 2])
        """
        return product.weight_tuples(stored, self.algebra, self.transposed, self.stacks)

    def stored_tuples(self, stored: Shaped[Tensor, "first second *kernel"]) -> Shaped[Tensor, "comp first second *k"]:
        """Like `tuples`, but with the numbers as they are stored, as the components of `Algebra.stored`.

        The result differs from `tuples` over algebras that are stored in another basis, such as clifford(2,0). A tuple
        is zero in one of them if and only if it is zero in the other.

        Args:
            stored: The weight, or a tensor of its shape, such as a mask.

        >>> import algebranets as an
        >>> layer = an.nn.Linear(8, 12, algebra=an.H)
        >>> (weight,) = layer.algebra_weights()
        >>> weight.stored_tuples(layer.weight > 0).shape
        torch.Size([4, 3, 2])
        """
        return product.stored_tuples(stored, self.algebra, self.transposed, self.stacks)

    def from_tuples(self, tuples: Shaped[Tensor, "comp first second *kernel"]) -> Tensor:
        """Rearrange tuples into the storage layout of this weight. It is the inverse of `tuples`.

        Args:
            tuples: A tensor of shape (component in table order, first, second, ...).

        >>> import torch, algebranets as an
        >>> layer = an.nn.Linear(8, 12, algebra=an.H)
        >>> (weight,) = layer.algebra_weights()
        >>> torch.equal(weight.from_tuples(weight.tuples(layer.weight)), layer.weight)
        True
        """
        return product.weight_from_tuples(tuples, self.algebra, self.transposed, self.stacks)

    def from_stored_tuples(
        self, tuples: Shaped[Tensor, "comp first second *kernel"]
    ) -> Shaped[Tensor, "first second *kernel"]:
        """Rearrange tuples over `Algebra.stored` into the storage layout. It is the inverse of `stored_tuples`.

        Args:
            tuples: A tensor of shape (component of `Algebra.stored` in table order, first, second, ...).

        >>> import torch, algebranets as an
        >>> layer = an.nn.Linear(8, 12, algebra=an.H)
        >>> (weight,) = layer.algebra_weights()
        >>> torch.equal(weight.from_stored_tuples(weight.stored_tuples(layer.weight)), layer.weight)
        True
        """
        return product.weight_from_stored_tuples(tuples, self.algebra, self.transposed, self.stacks)


def algebra_weights(layer: nn.Module) -> tuple[AlgebraWeight, ...]:
    """Return a layer's own weights over an algebra, without those of its children. Other modules have none.

    Args:
        layer: Any module.

    >>> import algebranets as an
    >>> [weight.name for weight in algebra_weights(an.nn.GRU(8, 8, algebra=an.H))]
    ['weight_ih_l0', 'weight_hh_l0']
    >>> algebra_weights(an.nn.ReLU())
    ()
    """
    # Ask the class, because a compiled model has every attribute of the model that it wraps.
    return tuple(layer.algebra_weights()) if hasattr(type(layer), "algebra_weights") else ()  # type: ignore[operator]


def reset_weights(layer: nn.Module, biases: Iterable[str] = ()) -> None:
    """Initialize each component of a layer's weights independently by Glorot's rule, and biases to zero.

    Args:
        layer: A module with a method ``algebra_weights()``. Its weights may be parametrized.
        biases: Names of parameters to set to zero. Names that the layer does not have, or has as None, are skipped.
    """
    for weight in algebra_weights(layer):
        with init.new_value(layer, weight.name) as value:
            # Fans count the products with the first input. Every other input multiplies the number of terms in a sum.
            terms = weight.algebra.multiplies / weight.algebra.dim
            gain = terms ** ((1 - weight.num_inputs) / 2)
            init.xavier_uniform_(value, gain, algebra=weight.algebra, stacks=weight.stacks)
    for name in biases:
        if getattr(layer, name, None) is not None:
            with init.new_value(layer, name) as value:
                nn.init.zeros_(value)


def own_class(module: nn.Module) -> None:
    """Give a parametrized module its own class, because torch changes the class, which deep copies share.

    Call it before you register or remove a parametrization. A module that is not parametrized is left as it is.

    Args:
        module: Any module.
    """
    if parametrize.is_parametrized(module):
        shared = type(module)
        module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
