"""Convolutions over an algebra."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED
from algebranets.nn.linear import Weighted

_PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}
Size = int | tuple[int, ...]


class Conv(Weighted):
    """The base of convolutions and transposed convolutions: arguments, their checks, and the weight."""

    num_axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__(algebra, lowering)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = checks.per_axis("kernel_size", kernel_size, self.num_axes, least=1)
        self.stride = checks.per_axis("stride", stride, self.num_axes, least=1)
        self.dilation = checks.per_axis("dilation", dilation, self.num_axes, least=1)
        self.output_padding = (0,) * self.num_axes
        self.padding = self._checked_padding(padding)
        self.padding_mode = checks.one_of(
            "padding_mode", padding_mode, ["zeros"] if self.transposed else _PADDING_MODES
        )
        num_in = self._num_in(in_channels, "in_channels", f"Lift{self.num_axes}d")
        num_out = product.whole_tuples(out_channels, self.algebra, "out_channels")
        if checks.whole("groups", groups) == in_channels:  # torch's way to write a depthwise convolution
            groups = num_in
        if groups < 1 or num_in % groups or num_out % groups:
            raise ValueError(
                f"groups={groups} must divide the tuples on both sides: {in_channels} channels in are {num_in} "
                f"{self.algebra.name} tuples, {out_channels} out are {num_out}. Groups count tuples, not channels."
            )
        self.groups = groups
        first, second = (num_in, num_out // groups) if self.transposed else (num_out, num_in // groups)
        shape = product.weight_shape(self.algebra, first, second, self.kernel_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def _checked_padding(self, padding: Size | str) -> tuple[int, ...] | str:
        if not isinstance(padding, str):
            return checks.per_axis("padding", padding, self.num_axes, least=0)
        if self.transposed or padding not in ("same", "valid"):
            words = "" if self.transposed else ", 'same' or 'valid'"
            raise ValueError(f"padding must be one number, {self.num_axes} of them{words}; got {padding!r}.")
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError(f"padding='same' needs stride 1; got stride={self.stride}.")
        return padding

    def _geometry(self, padding: tuple[int, ...] | str, output_padding: tuple[int, ...] = ()) -> product.Geometry:
        return product.Geometry(self.stride, padding, self.dilation, self.groups, self.transposed, output_padding)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        ones, zeros = (1,) * self.num_axes, (0,) * self.num_axes
        for name, usual in (("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1)):
            if getattr(self, name) != usual:
                parts.append(f"{name}={getattr(self, name)}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join([*parts, f"algebra={self.algebra.name}"])


class _ForwardConv(Conv):
    def forward(self, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            x = F.pad(x, self._both_sides(), mode=_PADDING_MODES[self.padding_mode])
            padding = (0,) * self.num_axes
        geometry = self._geometry(padding)
        return product.conv(x, self.weight, self.bias, geometry=geometry, algebra=self.algebra, lowering=self.lowering)

    def _both_sides(self) -> list[int]:
        """The padding in the format of `F.pad`: both sides of each axis, the last axis first."""
        if self.padding == "valid":
            return [0] * (2 * self.num_axes)
        sides = []
        for axis in reversed(range(self.num_axes)):
            if isinstance(self.padding, str):
                total = self.dilation[axis] * (self.kernel_size[axis] - 1)
                sides += [total // 2, total - total // 2]
            else:
                sides += [self.padding[axis]] * 2
        return sides


class Conv1d(_ForwardConv):
    """`torch.nn.Conv1d` over an algebra. Over R it computes the same as torch's layer.

    Args:
        in_channels: The number of real input channels, a multiple of the algebra's dim.
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel.
        stride: The stride of the convolution.
        padding: The padding on each side of the input, an int, "same" or "valid".
        dilation: The spacing between kernel elements.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: ``groups=in_channels``, torch's way to write a depthwise convolution, gives each tuple its
            own group.
        bias: Whether to add a bias, one number for each output channel.
        padding_mode: The kind of padding: "zeros", "reflect", "replicate" or "circular".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.Conv1d(8, 12, 3, padding=1, algebra=an.H)  # 2 tuples in, 3 out
    >>> conv(torch.randn(5, 8, 10)).shape
    torch.Size([5, 12, 10])
    """

    num_axes = 1


class Conv2d(_ForwardConv):
    """`torch.nn.Conv2d` over an algebra. Over R it computes the same as torch's layer.

    Args:
        in_channels: The number of real input channels, a multiple of the algebra's dim.
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 2 ints.
        stride: The stride of the convolution, an int or a tuple of 2 ints.
        padding: The padding on each side of the input, an int, a tuple of 2 ints, "same" or "valid".
        dilation: The spacing between kernel elements, an int or a tuple of 2 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: ``groups=in_channels``, torch's way to write a depthwise convolution, gives each tuple its
            own group.
        bias: Whether to add a bias, one number for each output channel.
        padding_mode: The kind of padding: "zeros", "reflect", "replicate" or "circular".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> depthwise = an.nn.Conv2d(64, 64, 3, padding=1, groups=16, algebra=an.H)  # 16 tuples, each on its own
    >>> depthwise(torch.randn(2, 64, 8, 8)).shape
    torch.Size([2, 64, 8, 8])
    """

    num_axes = 2


class Conv3d(_ForwardConv):
    """`torch.nn.Conv3d` over an algebra. Over R it computes the same as torch's layer.

    Args:
        in_channels: The number of real input channels, a multiple of the algebra's dim.
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 3 ints.
        stride: The stride of the convolution, an int or a tuple of 3 ints.
        padding: The padding on each side of the input, an int, a tuple of 3 ints, "same" or "valid".
        dilation: The spacing between kernel elements, an int or a tuple of 3 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: ``groups=in_channels``, torch's way to write a depthwise convolution, gives each tuple its
            own group.
        bias: Whether to add a bias, one number for each output channel.
        padding_mode: The kind of padding: "zeros", "reflect", "replicate" or "circular".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.Conv3d(8, 12, 3, padding="same", algebra=an.M2R)
    >>> conv(torch.randn(5, 8, 4, 6, 6)).shape
    torch.Size([5, 12, 4, 6, 6])
    """

    num_axes = 3
