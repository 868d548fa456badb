"""Transposed convolutions over an algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.conv import Conv, Size
from algebranets.nn.layer import REQUIRED


class _ConvTranspose(Conv):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        slide = (kernel_size, stride, padding, dilation)
        options: dict[str, Any] = {"device": device, "dtype": dtype, "algebra": algebra, "lowering": lowering}
        super().__init__(in_channels, out_channels, *slide, groups, bias, padding_mode, **options)
        self.output_padding = checks.per_axis("output_padding", output_padding, self.num_axes, least=0)
        for axis, extra in enumerate(self.output_padding):
            limit = max(self.stride[axis], self.dilation[axis])
            if extra >= limit:
                raise ValueError(
                    f"output_padding must be less than the larger of stride and dilation, which is {limit} on spatial "
                    f"axis {axis}; got {extra}."
                )

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._output_padding(x, output_size)
        geometry = self._geometry(self.padding, extra)
        return product.conv(x, self.weight, self.bias, geometry=geometry, algebra=self.algebra, lowering=self.lowering)

    def _output_padding(self, x: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding for ``output_size``, which has one entry for each spatial axis or for each axis."""
        if len(output_size) not in (self.num_axes, x.dim()):
            raise ValueError(
                f"output_size must have {self.num_axes} entries, one for each spatial axis, or {x.dim()}, one for each "
                f"axis of the input; got {tuple(output_size)}."
            )
        assert not isinstance(self.padding, str), "the padding of transposed convolutions is numbers"
        wanted = output_size[-self.num_axes :]
        extra = []
        for axis, size in enumerate(x.shape[-self.num_axes :]):
            reach = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
            least = (size - 1) * self.stride[axis] - 2 * self.padding[axis] + reach
            most = least + self.stride[axis] - 1
            if not least <= wanted[axis] <= most:
                raise ValueError(
                    f"output_size must lie between {least} and {most} on spatial axis {axis}; got {wanted[axis]}."
                )
            extra.append(wanted[axis] - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTranspose):
    """`torch.nn.ConvTranspose1d` over an algebra. Over R it computes the same as torch's layer.

    Args:
        in_channels: The number of real input channels, a multiple of the algebra's dim.
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel.
        stride: The stride of the convolution.
        padding: How many positions are cut off from each side of the output.
        output_padding: How many positions are added to one side of the output.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: ``groups=in_channels``, torch's way to write a depthwise convolution, gives each tuple its
            own group.
        bias: Whether to add a bias, one number for each output channel.
        dilation: The spacing between kernel elements.
        padding_mode: Must be "zeros".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.ConvTranspose1d(8, 12, 2, stride=2, algebra=an.H)
    >>> conv(torch.randn(5, 8, 10)).shape
    torch.Size([5, 12, 20])
    """

    num_axes = 1


class ConvTranspose2d(_ConvTranspose):
    """`torch.nn.ConvTranspose2d` over an algebra. Over R it computes the same as torch's layer.

    Args:
        in_channels: The number of real input channels, a multiple of the algebra's dim.
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 2 ints.
        stride: The stride of the convolution, an int or a tuple of 2 ints.
        padding: How many positions are cut off from each side of the output, an int or a tuple of 2 ints.
        output_padding: How many positions are added to one side of the output, an int or a tuple of 2 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: ``groups=in_channels``, torch's way to write a depthwise convolution, gives each tuple its
            own group.
        bias: Whether to add a bias, one number for each output channel.
        dilation: The spacing between kernel elements, an int or a tuple of 2 ints.
        padding_mode: Must be "zeros".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.ConvTranspose2d(8, 12, 2, stride=2, algebra=an.M2R)
    >>> conv(torch.randn(5, 8, 4, 4)).shape
    torch.Size([5, 12, 8, 8])
    """

    num_axes = 2


class ConvTranspose3d(_ConvTranspose):
    """`torch.nn.ConvTranspose3d` over an algebra. Over R it computes the same as torch's layer.

    Args:
        in_channels: The number of real input channels, a multiple of the algebra's dim.
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 3 ints.
        stride: The stride of the convolution, an int or a tuple of 3 ints.
        padding: How many positions are cut off from each side of the output, an int or a tuple of 3 ints.
        output_padding: How many positions are added to one side of the output, an int or a tuple of 3 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: ``groups=in_channels``, torch's way to write a depthwise convolution, gives each tuple its
            own group.
        bias: Whether to add a bias, one number for each output channel.
        dilation: The spacing between kernel elements, an int or a tuple of 3 ints.
        padding_mode: Must be "zeros".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.ConvTranspose3d(8, 12, 2, stride=2, algebra=an.C)
    >>> conv(torch.randn(5, 8, 2, 4, 4)).shape
    torch.Size([5, 12, 4, 8, 8])
    """

    num_axes = 3
