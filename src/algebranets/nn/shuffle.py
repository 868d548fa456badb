"""Layers that rearrange whole tuples: `ChannelShuffle`, `PixelShuffle` and `PixelUnshuffle`."""

from __future__ import annotations

from torch import Tensor, nn

from algebranets import checks
from algebranets.algebra import Algebra
from algebranets.nn import functional
from algebranets.nn.layer import REQUIRED, Layer


class ChannelShuffle(Layer, nn.ChannelShuffle):
    """`torch.nn.ChannelShuffle` for tuples: it interleaves groups of whole tuples.

    The output holds the first tuple of each group, then the second tuple of each group, and so on. Over R it is
    `torch.nn.ChannelShuffle`.

    Args:
        groups: The number of groups. It must divide the number of tuples on axis 1.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]).view(1, 8, 1)  # tuples (1, 10), (2, 20), ...
    >>> an.nn.ChannelShuffle(2, algebra=an.C)(x).flatten()
    tensor([ 1.,  3.,  2.,  4., 10., 30., 20., 40.])
    """

    reason = "torch.nn.ChannelShuffle moves single channels, so it mixes components of different tuples."

    def __init__(self, groups: int, *, algebra: Algebra | str = REQUIRED) -> None:
        over = self.resolve(algebra)
        super().__init__(checks.whole("groups", groups, least=1))
        self.algebra = over

    def forward(self, input: Tensor) -> Tensor:
        return functional.channel_shuffle(input, self.groups, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


class PixelShuffle(Layer, nn.PixelShuffle):
    """`torch.nn.PixelShuffle` for tuples: it turns groups of tuples into pixels of a larger image.

    It computes the same as `torch.nn.PixelShuffle`, which keeps tuples whole if its output holds whole tuples. This
    layer raises an error for other outputs.

    Args:
        upscale_factor: The factor r by which height and width grow. The number of channels is divided by r * r.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.PixelShuffle(2, algebra=an.H)(torch.randn(2, 16, 5, 5)).shape
    torch.Size([2, 4, 10, 10])
    """

    reason = (
        "torch.nn.PixelShuffle does not check that its output holds whole tuples: it would turn the 4 channels of one "
        "H tuple into 4 pixels."
    )

    def __init__(self, upscale_factor: int, *, algebra: Algebra | str = REQUIRED) -> None:
        over = self.resolve(algebra)
        super().__init__(checks.whole("upscale_factor", upscale_factor, least=1))
        self.algebra = over

    def forward(self, input: Tensor) -> Tensor:
        return functional.pixel_shuffle(input, self.upscale_factor, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


class PixelUnshuffle(Layer, nn.PixelUnshuffle):
    """`torch.nn.PixelUnshuffle` for tuples: it turns pixels into channels, the inverse of `PixelShuffle`.

    It computes the same as `torch.nn.PixelUnshuffle`, which keeps tuples whole if its input holds whole tuples. This
    layer raises an error for other inputs.

    Args:
        downscale_factor: The factor r by which height and width shrink. The number of channels is multiplied by r * r.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.PixelUnshuffle(2, algebra=an.H)(torch.randn(2, 4, 10, 10)).shape
    torch.Size([2, 16, 5, 5])
    """

    reason = (
        "torch.nn.PixelUnshuffle does not check that its input holds whole tuples: it would turn 4 pixels of one "
        "channel into one H tuple."
    )

    def __init__(self, downscale_factor: int, *, algebra: Algebra | str = REQUIRED) -> None:
        over = self.resolve(algebra)
        super().__init__(checks.whole("downscale_factor", downscale_factor, least=1))
        self.algebra = over

    def forward(self, input: Tensor) -> Tensor:
        return functional.pixel_unshuffle(input, self.downscale_factor, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"
