"""`Bilinear` over an algebra, which is linear in each of its two inputs."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED
from algebranets.nn.linear import Weighted
from algebranets.nn.weights import AlgebraWeight


class Bilinear(Weighted):
    """`torch.nn.Bilinear` over an algebra: ``y_o = sum_ij (w_oij . x_i) . z_j + b_o``.

    Over R it computes the same as `torch.nn.Bilinear`. Over an algebra of dim A, its weight is A^2 times smaller. The
    brackets matter over an algebra that is not associative.

    Args:
        in1_features: The number of real features of the first input, a multiple of the algebra's dim.
        in2_features: The number of real features of the second input, a multiple of the algebra's dim.
        out_features: The number of real output features, a multiple of the algebra's dim.
        bias: Whether to add a bias, one number for each output feature.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product with the weight is computed: "auto" (chosen by device, shape and dtype), "blocks",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> layer = an.nn.Bilinear(8, 12, 20, algebra=an.H)
    >>> layer(torch.randn(7, 8), torch.randn(7, 12)).shape, layer.weight.numel() * 16 == 8 * 12 * 20
    (torch.Size([7, 20]), True)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__(algebra, lowering)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        num_in1 = product.whole_tuples(in1_features, self.algebra, "in1_features")
        num_in2 = product.whole_tuples(in2_features, self.algebra, "in2_features")
        num_out = product.whole_tuples(out_features, self.algebra, "out_features")
        shape = product.weight_shape(self.algebra, num_out, num_in1, (num_in2,))
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def algebra_weights(self) -> list[AlgebraWeight]:
        """The weights over the algebra, for accounting and pruning: here only ``weight``."""
        return [AlgebraWeight("weight", self.algebra, num_inputs=2)]

    def forward(
        self, input1: Float[Tensor, "*batch in1"], input2: Float[Tensor, "*batch in2"]
    ) -> Float[Tensor, "*batch out"]:
        """Apply the layer to the last axes of two inputs.

        Under autocast, products are computed in autocast's dtype. As with torch's layer, the output has the widest
        dtype of the inputs and the weight.

        Args:
            input1: The first input x, ``in1_features`` real numbers on the last axis.
            input2: The second input z, ``in2_features`` real numbers on the last axis. Its other axes are those of
                ``input1``.
        """
        if input2.shape[-1] != self.in2_features or input1.shape[:-1] != input2.shape[:-1]:
            raise ValueError(
                f"input1 must have shape (..., {self.in1_features}), and input2 (..., {self.in2_features}) with the "
                f"same first axes; got {tuple(input1.shape)} and {tuple(input2.shape)}."
            )
        # One linear layer computes the tuples u_oj = sum_i w_oij . x_i, with j running fastest.
        rows = self.weight.movedim(2, 1).flatten(0, 1)
        options: dict[str, Any] = {"algebra": self.algebra, "lowering": self.lowering}
        y = product.dot(product.linear(input1, rows, **options), input2, **options)
        dtype = reduce(torch.promote_types, (input1.dtype, input2.dtype, self.weight.dtype))
        return y.to(dtype) if self.bias is None else (y + self.bias).to(dtype)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, algebra={self.algebra.name}"
        )
