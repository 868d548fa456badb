"""`GroupNorm`, a norm of groups of whole tuples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import functional
from algebranets.nn.functional.arguments import check_groups
from algebranets.nn.layer import REQUIRED, Layer


class GroupNorm(Layer, nn.GroupNorm):
    """`torch.nn.GroupNorm` for tuples: it normalizes groups of whole tuples.

    The mean of a group is a tuple: each component has its own mean over the tuples and positions of the group. The
    variance of a group is one number, the mean over all components of the squared deviations. So all components of a
    tuple are divided by the same number. Over R it is `torch.nn.GroupNorm`.

    Args:
        num_groups: The number of groups, which must divide the number of tuples.
        num_channels: The number of real channels, a multiple of the algebra's dim.
        eps: The number added to the variance.
        affine: Whether to learn a scale for each tuple, ``weight``, and an offset for each real channel, ``bias``.
        device: The device of the parameters.
        dtype: The dtype of the parameters.
        bias: Whether there is an offset if ``affine`` is True.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> norm = an.nn.GroupNorm(3, 24, algebra=an.H)
    >>> norm(torch.randn(2, 24, 5, 5)).shape, norm.weight.shape, norm.bias.shape
    (torch.Size([2, 24, 5, 5]), torch.Size([6]), torch.Size([24]))
    """

    reason = (
        "torch.nn.GroupNorm groups neighboring channels, so it puts the components of a tuple into different groups "
        "and divides them by different numbers."
    )

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        num_tuples = product.whole_tuples(num_channels, over, "num_channels")
        check_groups("num_groups", num_groups, num_tuples, over)
        checks.positive("eps", eps, or_zero=True)
        super().__init__(num_groups, num_channels, eps, affine, device, dtype)
        self.algebra = over
        if affine:
            self.weight = nn.Parameter(torch.empty(num_tuples, device=device, dtype=dtype))
        if not bias:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set scales to one and offsets to zero."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        if self.affine and input.dim() > 1 and input.shape[1] != self.num_channels:
            raise ValueError(f"axis 1 must have {self.num_channels} channels; got shape {tuple(input.shape)}.")
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


def reset_affine(layer: nn.Module) -> None:
    """Set the scales of a norm to one, and its offsets to zero."""
    for name, value in (("weight", 1.0), ("bias", 0.0)):
        if (parameter := getattr(layer, name)) is not None:
            nn.init.constant_(parameter, value)
