"""A convolution's geometry as one value: what torch calls stride, padding, dilation, groups, output_padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

_CONVOLUTIONS: dict[bool, tuple[Callable[..., Tensor], ...]] = {
    False: (F.conv1d, F.conv2d, F.conv3d),
    True: (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
}


@dataclass(frozen=True)
class Geometry:
    """How a kernel slides; every entry holds one number per spatial axis, ``groups`` counts tuples."""

    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    @property
    def num_axes(self) -> int:
        return len(self.stride)

    @property
    def pointwise(self) -> bool:
        """Whether a kernel of size 1 under it is a linear layer at each place."""
        plain = all(s == 1 for s in self.stride) and not any(self.output_padding) and self.groups == 1
        return plain and (self.padding in ("same", "valid") or not any(self.padding))

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """torch's real convolution of this geometry."""
        convolution = _CONVOLUTIONS[self.transposed][self.num_axes - 1]
        if self.transposed:
            return convolution(
                x, weight, bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
            )
        return convolution(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
