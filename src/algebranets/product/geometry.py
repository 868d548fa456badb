"""A convolution's geometry as one value: stride, padding, dilation, groups and output_padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

_CONVOLUTIONS: dict[bool, tuple[Callable[..., Tensor], ...]] = {
    False: (F.conv1d, F.conv2d, F.conv3d),
    True: (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
}


@dataclass(frozen=True)
class Geometry:
    """The geometry of a convolution, with one number for each spatial axis. ``groups`` divides tuples, not channels."""

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
        """Whether a convolution of this geometry with a kernel of size 1 is a linear layer at each place."""
        plain = all(s == 1 for s in self.stride) and not any(self.output_padding) and self.groups == 1
        return plain and (self.padding in ("same", "valid") or not any(self.padding))

    def with_longer_rows(self, times: int) -> Geometry:
        """The same convolution of images in whose rows ``times`` images take turns, pixel by pixel.

        The stride along rows must be 1, and the padding must be given in numbers.
        """
        assert self.stride[-1] == 1
        assert not isinstance(self.padding, str)
        return replace(
            self,
            padding=(*self.padding[:-1], times * self.padding[-1]),
            dilation=(*self.dilation[:-1], times * self.dilation[-1]),
            output_padding=(*self.output_padding[:-1], *(times * number for number in self.output_padding[-1:])),
        )

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply torch's real convolution with this geometry."""
        convolution = _CONVOLUTIONS[self.transposed][self.num_axes - 1]
        if self.transposed:
            return convolution(
                x, weight, bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
            )
        return convolution(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
