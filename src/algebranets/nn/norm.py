"""Layer norms: `TupleLayerNorm`, and `AddNorm`, which normalizes a residual sum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.ops.add_norm import add_norm
from algebranets.product import auto


class TupleLayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` with one scale and one offset for each tuple, shared by its components (Section 4.4).

    Mean and variance are taken over all features, as in `torch.nn.LayerNorm`. Over R the two layers are the same.

    Args:
        num_features: The number of real features on the last axis, a multiple of the algebra's dim.
        eps: The number added to the variance.
        elementwise_affine: Whether each tuple has a learned scale.
        bias: Whether each tuple also has a learned offset.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

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


class AddNorm(nn.LayerNorm):
    """A residual addition followed by `torch.nn.LayerNorm`. It returns the sum and the normalized sum.

    On a GPU, without gradients and autocast, both are one kernel.

    Args:
        num_features: The number of real features on the last axis. They may be tuples of any algebra.

    >>> import torch
    >>> norm, x, y = AddNorm(6), torch.randn(2, 6), torch.randn(2, 6)
    >>> total, normalized = norm(x, y)
    >>> torch.equal(total, x + y), torch.equal(normalized, torch.nn.functional.layer_norm(x + y, (6,)))
    (True, True)
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "*batch feat"], y: Float[Tensor, "*batch feat"]
    ) -> tuple[Float[Tensor, "*batch feat"], Float[Tensor, "*batch feat"]]:
        if auto.takes_decode_kernels(x) and x.dtype == y.dtype:
            return add_norm(x, y, self.weight, self.bias, self.eps)
        total = x + y
        return total, super().forward(total)
