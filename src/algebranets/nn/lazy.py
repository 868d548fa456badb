"""Lazy layers over an algebra, which take the number of input features from the first input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.conv import Conv, Conv1d, Conv2d, Conv3d, Size
from algebranets.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from algebranets.nn.layer import REQUIRED
from algebranets.nn.linear import Linear, Weighted
from algebranets.nn.weights import reset_weights


class _Lazy(LazyModuleMixin, Weighted):
    """The base of lazy layers. Its parameters have no shape until the first input or until a state dict is loaded."""

    def _prepare(
        self,
        num_features: int,
        options: dict[str, Any],
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Create the layer with parameters that have no shape yet.

        Args:
            num_features: Any number of input features that fits the options. The layer is first created with it on
                the meta device, so that all arguments are checked.
            options: The arguments of the layer, without the number of input features.
            device, dtype: The device and dtype of the parameters.
        """
        super().__init__(num_features, **options, device="meta", dtype=dtype)
        self._buffers.clear()  # the recorded algebra: it is recorded again on the device of the parameters
        self._options = options
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        for name, parameter in (("weight", self.weight), ("bias", self.bias)):
            if parameter is not None:
                setattr(self, name, UninitializedParameter(**factory))

    def _num_features(self, x: Tensor) -> int:
        """The number of features of an input."""
        return x.shape[-1]

    def _take_sizes(self, like: Any) -> None:
        """Copy the sizes that depend on the input from ``like``, a layer that fits the input."""
        self.in_features = like.in_features

    def initialize_parameters(self, x: Tensor, *_: Any, **__: Any) -> None:
        """Give the parameters the shapes that fit an input, and initialize them. Torch calls it in the first forward.

        Parameters that were loaded from a state dict keep their values. Their shapes must fit the input.

        Args:
            x: The input.
        """
        assert self.cls_to_become is not None
        like = self.cls_to_become(self._num_features(x), **self._options, device="meta")
        missing = [name for name, value in self._parameters.items() if isinstance(value, UninitializedParameter)]
        for name, expected in like.named_parameters():
            parameter = getattr(self, name)
            if name in missing:
                parameter.materialize(expected.shape)
            elif parameter.shape != expected.shape:
                raise ValueError(
                    f"the loaded {name} has shape {tuple(parameter.shape)}, but an input of shape {tuple(x.shape)} "
                    f"needs {tuple(expected.shape)}: make the layer with the arguments of the saved layer, and give it "
                    "the same number of input features."
                )
        self._take_sizes(like)
        if "weight" in missing:
            reset_weights(self)
        if "bias" in missing:
            nn.init.zeros_(self.bias)  # type: ignore[arg-type]
        del self._options

    def reset_parameters(self) -> None:
        """Initialize the parameters as in the layer that this one becomes. It does nothing while they have no shape."""
        if not self.has_uninitialized_params():
            super().reset_parameters()


class LazyLinear(_Lazy, Linear):
    """`Linear` that takes ``in_features`` from its first input, and then becomes a `Linear`.

    Args:
        out_features: The number of real output features, a multiple of the algebra's dim.
        bias: Whether to add a bias, one number for each output feature.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> layer = an.nn.LazyLinear(256, algebra=an.M2R)
    >>> layer(torch.randn(7, 512)).shape, layer
    (torch.Size([7, 256]), Linear(in_features=512, out_features=256, bias=True, algebra=M2R))
    """

    cls_to_become = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        over = self.resolve(algebra)
        options = {"out_features": out_features, "bias": bias, "algebra": over, "lowering": lowering}
        self._prepare(over.dim, options, device, dtype)
        self.in_features = 0


class _LazyConv(_Lazy, Conv):
    def _num_features(self, x: Tensor) -> int:
        if x.dim() not in (self.num_axes + 1, self.num_axes + 2):
            raise ValueError(
                f"the input must be (batch, channels, {self.num_axes} spatial axes) or the same without a batch; "
                f"got shape {tuple(x.shape)}."
            )
        return x.shape[-self.num_axes - 1]

    def _take_sizes(self, like: Any) -> None:
        self.in_channels, self.groups = like.in_channels, like.groups

    def _prepare_conv(self, options: dict[str, Any], device: torch.device | str | None, dtype: Any) -> None:
        """Make the layer with a number of input channels that fits ``groups``."""
        options["algebra"] = over = self.resolve(options["algebra"])
        groups = checks.whole("groups", options["groups"], least=1)
        num_out = product.whole_tuples(options["out_channels"], over, "out_channels")
        # Groups count tuples, unless their number is that of the input channels, which is not known yet.
        are_channels = num_out % groups != 0 and groups % over.dim == 0
        if num_out % (groups // over.dim if are_channels else groups):
            raise ValueError(
                f"groups={groups} must divide the number of output tuples: out_channels={options['out_channels']} are "
                f"{num_out} {over.name} tuples. Groups count tuples, not channels."
            )
        self._prepare(groups if are_channels else groups * over.dim, options, device, dtype)
        self.in_channels, self.groups = 0, groups


class _LazyForwardConv(_LazyConv):
    def __init__(
        self,
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
        options = {
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "bias": bias,
            "padding_mode": padding_mode,
            "algebra": algebra,
            "lowering": lowering,
        }
        self._prepare_conv(options, device, dtype)


class _LazyConvTranspose(_LazyConv):
    def __init__(
        self,
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
        options = {
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "stride": stride,
            "padding": padding,
            "output_padding": output_padding,
            "groups": groups,
            "bias": bias,
            "dilation": dilation,
            "padding_mode": padding_mode,
            "algebra": algebra,
            "lowering": lowering,
        }
        self._prepare_conv(options, device, dtype)


class LazyConv1d(_LazyForwardConv, Conv1d):
    """`Conv1d` that takes ``in_channels`` from its first input, and then becomes a `Conv1d`.

    Args:
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel.
        stride: The stride of the convolution.
        padding: The padding on each side of the input, an int, "same" or "valid".
        dilation: The spacing between kernel elements.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: if ``groups`` is the number of input channels, each tuple has a group of its own.
        bias: Whether to add a bias, one number for each output channel.
        padding_mode: The kind of padding: "zeros", "reflect", "replicate" or "circular".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.LazyConv1d(12, 3, padding=1, algebra=an.H)
    >>> conv(torch.randn(7, 8, 10)).shape, type(conv) is an.nn.Conv1d
    (torch.Size([7, 12, 10]), True)
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForwardConv, Conv2d):
    """`Conv2d` that takes ``in_channels`` from its first input, and then becomes a `Conv2d`.

    Args:
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 2 ints.
        stride: The stride of the convolution, an int or a tuple of 2 ints.
        padding: The padding on each side of the input, an int, a tuple of 2 ints, "same" or "valid".
        dilation: The spacing between kernel elements, an int or a tuple of 2 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: if ``groups`` is the number of input channels, each tuple has a group of its own.
        bias: Whether to add a bias, one number for each output channel.
        padding_mode: The kind of padding: "zeros", "reflect", "replicate" or "circular".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.LazyConv2d(12, 3, padding=1, algebra=an.H)
    >>> conv(torch.randn(7, 8, 10, 10)).shape, type(conv) is an.nn.Conv2d
    (torch.Size([7, 12, 10, 10]), True)
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForwardConv, Conv3d):
    """`Conv3d` that takes ``in_channels`` from its first input, and then becomes a `Conv3d`.

    Args:
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 3 ints.
        stride: The stride of the convolution, an int or a tuple of 3 ints.
        padding: The padding on each side of the input, an int, a tuple of 3 ints, "same" or "valid".
        dilation: The spacing between kernel elements, an int or a tuple of 3 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: if ``groups`` is the number of input channels, each tuple has a group of its own.
        bias: Whether to add a bias, one number for each output channel.
        padding_mode: The kind of padding: "zeros", "reflect", "replicate" or "circular".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.LazyConv3d(12, 3, padding=1, algebra=an.H)
    >>> conv(torch.randn(7, 8, 6, 6, 6)).shape, type(conv) is an.nn.Conv3d
    (torch.Size([7, 12, 6, 6, 6]), True)
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """`ConvTranspose1d` that takes ``in_channels`` from its first input, and then becomes a `ConvTranspose1d`.

    Args:
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel.
        stride: The stride of the convolution.
        padding: How many positions are cut off from each side of the output.
        output_padding: How many positions are added to one side of the output.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: if ``groups`` is the number of input channels, each tuple has a group of its own.
        bias: Whether to add a bias, one number for each output channel.
        dilation: The spacing between kernel elements.
        padding_mode: Must be "zeros".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.LazyConvTranspose1d(12, 2, stride=2, algebra=an.H)
    >>> conv(torch.randn(7, 8, 10)).shape, type(conv) is an.nn.ConvTranspose1d
    (torch.Size([7, 12, 20]), True)
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """`ConvTranspose2d` that takes ``in_channels`` from its first input, and then becomes a `ConvTranspose2d`.

    Args:
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 2 ints.
        stride: The stride of the convolution, an int or a tuple of 2 ints.
        padding: How many positions are cut off from each side of the output, an int or a tuple of 2 ints.
        output_padding: How many positions are added to one side of the output, an int or a tuple of 2 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: if ``groups`` is the number of input channels, each tuple has a group of its own.
        bias: Whether to add a bias, one number for each output channel.
        dilation: The spacing between kernel elements, an int or a tuple of 2 ints.
        padding_mode: Must be "zeros".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.LazyConvTranspose2d(12, 2, stride=2, algebra=an.H)
    >>> conv(torch.randn(7, 8, 10, 10)).shape, type(conv) is an.nn.ConvTranspose2d
    (torch.Size([7, 12, 20, 20]), True)
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """`ConvTranspose3d` that takes ``in_channels`` from its first input, and then becomes a `ConvTranspose3d`.

    Args:
        out_channels: The number of real output channels, a multiple of the algebra's dim.
        kernel_size: The size of the kernel, an int or a tuple of 3 ints.
        stride: The stride of the convolution, an int or a tuple of 3 ints.
        padding: How many positions are cut off from each side of the output, an int or a tuple of 3 ints.
        output_padding: How many positions are added to one side of the output, an int or a tuple of 3 ints.
        groups: The number of groups. Tuples of different groups do not mix. Groups count tuples, not channels, with
            one exception: if ``groups`` is the number of input channels, each tuple has a group of its own.
        bias: Whether to add a bias, one number for each output channel.
        dilation: The spacing between kernel elements, an int or a tuple of 3 ints.
        padding_mode: Must be "zeros".
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> conv = an.nn.LazyConvTranspose3d(12, 2, stride=2, algebra=an.H)
    >>> conv(torch.randn(7, 8, 6, 6, 6)).shape, type(conv) is an.nn.ConvTranspose3d
    (torch.Size([7, 12, 12, 12, 12]), True)
    """

    cls_to_become = ConvTranspose3d
