"""A layer norm that knows tuples: its affine part is shared by a tuple's components."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra


class TupleLayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` with one scale and one offset for each tuple, which its components share (Section 4.4).

    Mean and variance are those of all features, as in torch's; over R it is `torch.nn.LayerNorm`.

    >>> import torch, algebranets as an
    >>> norm = an.nn.TupleLayerNorm(12, algebra=an.H)
    >>> norm(torch.randn(2, 12)).shape, norm.weight.shape
    (torch.Size([2, 12]), torch.Size([3]))
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str,
    ) -> None:
        num_tuples = product.whole_tuples(num_features, algebras.get(algebra), "num_features")
        checks.positive("eps", eps, or_zero=True)
        super().__init__(num_tuples, eps, elementwise_affine, bias, device, dtype)
        self.algebra, self.num_features = algebras.get(algebra), num_features

    def forward(self, x: Float[Tensor, "*batch feat"]) -> Float[Tensor, "*batch feat"]:
        scale, offset = (
            None if value is None else value.repeat(self.algebra.dim) for value in (self.weight, self.bias)
        )
        return F.layer_norm(x, (self.num_features,), scale, offset, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, algebra={self.algebra.name}"
