"""Linear layers, and what every layer with one weight over an algebra has."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn import init


class Weighted(nn.Module):
    """A layer with one ``weight`` and one ``bias`` over an algebra."""

    #: Whether the weight's axes are (in, out) instead of (out, in).
    transposed: ClassVar[bool] = False

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, algebra: Algebra | str, lowering: product.Lowering) -> None:
        super().__init__()
        product.check_lowering(lowering)
        self.algebra = algebras.get(algebra)
        self.lowering = lowering

    def reset_parameters(self) -> None:
        """Glorot for each component of the weight independently (the paper's choice), zero for the bias."""
        with init.new_value(self, "weight") as weight:
            init.xavier_uniform_(weight, self.algebra)
        if self.bias is not None:
            with init.new_value(self, "bias") as bias:
                nn.init.zeros_(bias)

    @property
    def weight_tuples(self) -> Float[Tensor, "comp first second *kernel"]:
        """The weight as (component in table order, out, in, ...), however it is stored; assign to it to change it.

        A parametrized weight changes as by ``layer.weight = ...``: the parameter is set so that the weight is what was
        assigned, as far as that can be. Under a `Pruner`'s mask or a spectral norm, the parameter gets what was
        assigned, and the weight is that masked or normalized. Where torch cannot do it, it is a `ValueError`.
        """
        return product.weight_tuples(self.weight, self.algebra, self.transposed)

    @weight_tuples.setter
    def weight_tuples(self, value: Tensor) -> None:
        expected = product.weight_tuples(self.weight, self.algebra, self.transposed).shape
        if value.shape != expected:
            raise ValueError(f"weight_tuples must have shape {tuple(expected)}; got {tuple(value.shape)}.")
        with torch.no_grad(), init.new_value(self, "weight") as weight:
            weight.copy_(product.weight_from_tuples(value, self.algebra, self.transposed))


class Linear(Weighted):
    """`torch.nn.Linear` over an algebra: ``y_o = sum_i w_oi . x_i + b_o``; over R it is `torch.nn.Linear`.

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
        algebra: Algebra | str,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__(algebra, lowering)
        self.in_features, self.out_features = in_features, out_features
        num_in = product.whole_tuples(in_features, self.algebra, "in_features")
        num_out = product.whole_tuples(out_features, self.algebra, "out_features")
        shape = product.weight_shape(self.algebra, num_out, num_in)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def forward(self, x: Float[Tensor, "*batch inp"], activation: str | None = None) -> Float[Tensor, "*batch out"]:
        """``activation`` may name one to follow (relu, silu, gelu, sigmoid, tanh), which kernels for decoding fuse."""
        options: dict[str, Any] = {"algebra": self.algebra, "lowering": self.lowering, "activation": activation}
        return product.linear(x, self.weight, self.bias, **options)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"algebra={self.algebra.name}"
        )
