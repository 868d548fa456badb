"""Norms of tuples: `TupleLayerNorm`, `RMSNorm`, `LocalResponseNorm`, and `AddNorm` for residual sums."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import functional
from algebranets.nn.functional.arguments import check_normalized_shape
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.ops.add_norm import add_norm
from algebranets.product import auto


class TupleLayerNorm(Layer, nn.LayerNorm):
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
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        num_tuples = product.whole_tuples(num_features, over, "num_features")
        checks.positive("eps", eps, or_zero=True)
        super().__init__(num_tuples, eps, elementwise_affine, bias, device, dtype)
        self.algebra, self.num_features = over, num_features

    def forward(self, x: Float[Tensor, "*batch feat"]) -> Float[Tensor, "*batch feat"]:
        scale, offset = (
            None if value is None else value.repeat(self.algebra.dim) for value in (self.weight, self.bias)
        )
        return F.layer_norm(x, (self.num_features,), scale, offset, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, algebra={self.algebra.name}"


class RMSNorm(Layer, nn.RMSNorm):
    """`torch.nn.RMSNorm` with one scale for each tuple, shared by its components.

    The root mean square is taken over all features, as in `torch.nn.RMSNorm`. Over R the two layers are the same.

    Args:
        normalized_shape: The number of real features on the last axis, a multiple of the algebra's dim. Several axes
            are possible only over R or with ``elementwise_affine=False``, because only the last axis holds tuples.
        eps: The number added to the mean square, or None for torch's default, which depends on the dtype.
        elementwise_affine: Whether each tuple has a learned scale.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> norm = an.nn.RMSNorm(12, algebra=an.H)
    >>> norm(torch.randn(2, 12)).shape, norm.weight.shape
    (torch.Size([2, 12]), torch.Size([3]))
    """

    reason = "torch.nn.RMSNorm scales each component by its own factor, so it changes the direction of a tuple."

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        *outer, last = check_normalized_shape(normalized_shape, over, scaled=elementwise_affine)
        if eps is not None:
            checks.positive("eps", eps, or_zero=True)
        super().__init__([*outer, last // over.dim], eps, elementwise_affine, device, dtype)
        self.algebra, self.normalized_shape = over, (*outer, last)

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


class LocalResponseNorm(Layer, nn.LocalResponseNorm):
    """`torch.nn.LocalResponseNorm` for tuples: ``x / (k + alpha * s) ** beta``.

    Here ``s`` is the sum of squares of ``size`` neighboring tuples, divided by ``size``. The square of a tuple is the
    mean square of its components, so torch's defaults keep their meaning. Over R it is `torch.nn.LocalResponseNorm`.

    Args:
        size: The number of neighboring tuples.
        alpha: The factor of the sum of squares.
        beta: The exponent.
        k: The number added to the sum.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.LocalResponseNorm(3, algebra=an.H)(torch.randn(2, 12, 5, 5)).shape
    torch.Size([2, 12, 5, 5])
    """

    reason = (
        "torch.nn.LocalResponseNorm divides the components of a tuple by different numbers, so it changes the "
        "direction of the tuple."
    )

    def __init__(
        self,
        size: int,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
        *,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        checks.whole("size", size, least=1)
        for name, value in (("alpha", alpha), ("beta", beta), ("k", k)):
            checks.positive(name, value, or_zero=True)
        super().__init__(size, alpha, beta, k)
        self.algebra = over

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


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
