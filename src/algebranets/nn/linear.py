"""`Linear`, and the base class of layers with one weight over an algebra."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import init
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.weights import AlgebraWeight, reset_weights


class Weighted(Layer):
    """A layer with one ``weight`` and one ``bias`` over an algebra: the base of linear layers and convolutions."""

    #: Whether the weight's axes are (in, out) instead of (out, in).
    transposed: ClassVar[bool] = False

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, algebra: Algebra | str, lowering: product.Lowering) -> None:
        super().__init__()
        product.check_lowering(lowering)
        self.algebra = self.resolve(algebra)
        self.lowering = lowering

    def _num_in(self, size: int, name: str, lift: str) -> int:
        """Return the number of tuples in the input. The error for a wrong size suggests a Lift for real inputs.

        Args:
            size: The number of real input features or channels.
            name: The name of the argument ``size``.
            lift: The name of the layer that lifts real inputs to tuples.
        """
        lifted, over = checks.whole(name, size) * self.algebra.dim, self.algebra.name
        hint = f"For a real input, put {lift}({size}, algebra={over!r}) before this layer and set {name}={lifted}."
        return product.whole_tuples(size, self.algebra, name, hint if size > 0 else "")

    def reset_parameters(self) -> None:
        """Initialize each component of the weight independently by Glorot's rule, as in the paper; the bias is zero."""
        reset_weights(self, biases=["bias"])

    def algebra_weights(self) -> list[AlgebraWeight]:
        """The weights over the algebra, for accounting and pruning: here only ``weight``."""
        return [AlgebraWeight("weight", self.algebra, transposed=self.transposed)]

    @property
    def weight_tuples(self) -> Float[Tensor, "comp first second *kernel"]:
        """The weight as a tensor (component in table order, out, in, ...). Assign to it to change the weight.

        For a transposed convolution the axes are (component, in, out, ...). Assigning to a parametrized weight works as
        with ``layer.weight = ...``: torch sets the parameter through the parametrization's ``right_inverse``. Under a
        `Pruner`'s mask or a spectral norm, the parameter gets the assigned value, and the weight is that value masked
        or normalized. If a parametrization cannot be assigned to, a `ValueError` is raised.
        """
        (weight,) = self.algebra_weights()
        return weight.tuples(self.weight)

    @weight_tuples.setter
    def weight_tuples(self, value: Tensor) -> None:
        (weight,) = self.algebra_weights()
        expected = weight.tuples(self.weight).shape
        if value.shape != expected:
            raise ValueError(f"weight_tuples must have shape {tuple(expected)}; got {tuple(value.shape)}.")
        with torch.no_grad(), init.new_value(self, "weight") as stored:
            stored.copy_(weight.from_tuples(value))


class Linear(Weighted):
    """`torch.nn.Linear` over an algebra: ``y_o = sum_i w_oi . x_i + b_o``.

    Over R it computes the same as `torch.nn.Linear`. Over an algebra of dim A, its weight is A times smaller.

    Args:
        in_features: The number of real input features, a multiple of the algebra's dim.
        out_features: The number of real output features, a multiple of the algebra's dim.
        bias: Whether to add a bias, one number for each output feature.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> layer = an.nn.Linear(512, 256, algebra=an.M2R)
    >>> layer(torch.randn(7, 512)).shape, layer.weight.numel() * 4 == 512 * 256
    (torch.Size([7, 256]), True)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__(algebra, lowering)
        self.in_features, self.out_features = in_features, out_features
        num_in = self._num_in(in_features, "in_features", "Lift")
        num_out = product.whole_tuples(out_features, self.algebra, "out_features")
        shape = product.weight_shape(self.algebra, num_out, num_in)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def forward(
        self, x: Float[Tensor, "*batch inp"], activation: str | None = None, *, stored: bool = False
    ) -> Float[Tensor, "*batch out"]:
        """Apply the layer to the last axis of ``x``.

        Args:
            x: The input, ``in_features`` real numbers on the last axis.
            activation: An activation to apply to the output: "relu", "silu", "gelu", "sigmoid" or "tanh". The kernels
                for decoding compute it together with the product.
            stored: Whether the input and the output are in the basis of `Algebra.stored`. It matters over algebras that
                are stored in another basis, such as clifford(2,0).
        """
        options: dict[str, Any] = {"algebra": self.algebra, "lowering": self.lowering, "activation": activation}
        return product.linear(x, self.weight, self.bias, **options, stored=stored)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"algebra={self.algebra.name}"
        )


def is_plain_linear(module: nn.Module, algebra: Algebra) -> bool:
    """Whether a module is a `Linear` over ``algebra``, and not a subclass or a replacement with another forward.

    Args:
        module: Any module.
        algebra: The algebra.
    """
    return isinstance(module, Linear) and type(module).forward is Linear.forward and module.algebra == algebra
