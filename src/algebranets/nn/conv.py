"""Convolutions and their transposes over an algebra; groups count tuples, so depthwise is ``groups=tuples``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.linear import Weighted

_PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}
Size = int | tuple[int, ...]


class _Conv(Weighted):
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
        algebra: Algebra | str,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__(algebra, lowering)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = checks.per_axis("kernel_size", kernel_size, self.num_axes, least=1)
        self.stride = checks.per_axis("stride", stride, self.num_axes, least=1)
        self.dilation = checks.per_axis("dilation", dilation, self.num_axes, least=1)
        self.output_padding = (0,) * self.num_axes
        self.padding = self._checked_padding(padding)
        if padding_mode not in _PADDING_MODES or (self.transposed and padding_mode != "zeros"):
            allowed = ["zeros"] if self.transposed else list(_PADDING_MODES)
            raise ValueError(f"padding_mode must be one of {', '.join(allowed)}; got {padding_mode!r}.")
        self.padding_mode = padding_mode
        num_in = product.whole_tuples(in_channels, self.algebra, "in_channels")
        num_out = product.whole_tuples(out_channels, self.algebra, "out_channels")
        if checks.whole("groups", groups) < 1 or num_in % groups or num_out % groups:
            raise ValueError(
                f"groups={groups} must divide the tuples on both sides: {in_channels} channels in are {num_in} "
                f"{self.algebra.name} tuples, {out_channels} out are {num_out}. Groups count tuples, not channels."
            )
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


class _ForwardConv(_Conv):
    def forward(self, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            x = F.pad(x, self._both_sides(), mode=_PADDING_MODES[self.padding_mode])
            padding = (0,) * self.num_axes
        geometry = self._geometry(padding)
        return product.conv(x, self.weight, self.bias, geometry=geometry, algebra=self.algebra, lowering=self.lowering)

    def _both_sides(self) -> list[int]:
        """The padding as `F.pad` wants it: last axis first, before and behind."""
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


class _TransposedConv(_Conv):
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
        algebra: Algebra | str,
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
        extra = self.output_padding if output_size is None else self._fill_up(x, output_size)
        geometry = self._geometry(self.padding, extra)
        return product.conv(x, self.weight, self.bias, geometry=geometry, algebra=self.algebra, lowering=self.lowering)

    def _fill_up(self, x: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that makes an output of ``output_size``, which has the spatial axes or all axes."""
        if len(output_size) not in (self.num_axes, x.dim()):
            raise ValueError(
                f"output_size must have {self.num_axes} entries, one for each spatial axis, or {x.dim()}, one for each "
                f"axis of the input; got {tuple(output_size)}."
            )
        assert not isinstance(self.padding, str), "transposed convolutions take numbers only"
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


class Conv1d(_ForwardConv):
    """`torch.nn.Conv1d` over an algebra; over R it is `torch.nn.Conv1d`."""

    num_axes = 1


class Conv2d(_ForwardConv):
    """`torch.nn.Conv2d` over an algebra; over R it is `torch.nn.Conv2d`.

    >>> import torch, algebranets as an
    >>> depthwise = an.nn.Conv2d(64, 64, 3, padding=1, groups=16, algebra=an.H)  # 16 tuples, each on its own
    >>> depthwise(torch.randn(2, 64, 8, 8)).shape
    torch.Size([2, 64, 8, 8])
    """

    num_axes = 2


class Conv3d(_ForwardConv):
    """`torch.nn.Conv3d` over an algebra; over R it is `torch.nn.Conv3d`."""

    num_axes = 3


class ConvTranspose1d(_TransposedConv):
    """`torch.nn.ConvTranspose1d` over an algebra; over R it is `torch.nn.ConvTranspose1d`."""

    num_axes = 1


class ConvTranspose2d(_TransposedConv):
    """`torch.nn.ConvTranspose2d` over an algebra; over R it is `torch.nn.ConvTranspose2d`."""

    num_axes = 2


class ConvTranspose3d(_TransposedConv):
    """`torch.nn.ConvTranspose3d` over an algebra; over R it is `torch.nn.ConvTranspose3d`."""

    num_axes = 3
