"""MobileNet-v1 over an algebra (Section 4.1), with tuple-depthwise convolutions.

A tuple-depthwise convolution multiplies each input tuple by weight tuples of its own. The components mix, so each
loaded value is used in more multiplies than in the real network, whose depthwise layers are memory-bound.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.models.kit import ImageNetwork, Kit

#: (channels out, stride) of the depthwise-separable blocks.
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
)  # fmt: skip


class MobileNetV1(ImageNetwork):
    """MobileNet-v1 over an algebra.

    Args:
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        width: A factor for all numbers of channels. They are rounded to the nearest whole number of tuples, halves up.
        num_classes: The number of classes.
        in_channels: The number of channels of the images.
        activation: "relu", "swish", "mean-gate" or "determinant-gate". The gates act on whole tuples.
        norm: "batch" (batch norm) or "whitening".
        lift: The components of the lifted image besides the image itself: "learned", "zeros" or "copy".
        init: "glorot" (each component independently) or "polar" (tuples of random size and direction).
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> model = an.models.create("mobilenet_v1", algebra=an.M2R, width=0.5, num_classes=10)
    >>> model(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        algebra: Algebra | str,
        width: float = 1.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        activation: str = "relu",
        norm: str = "batch",
        lift: str = "learned",
        init: str = "glorot",
        lowering: product.Lowering = "auto",
    ) -> None:
        kit = Kit(algebras.get(algebra), width, activation, norm, lift, init, lowering)
        super().__init__(kit, in_channels)
        channels = kit.channels(32)
        self.stem = nn.Sequential(
            kit.conv(in_channels * kit.algebra.dim, channels, 3, stride=2), kit.norm(channels), kit.act()
        )
        blocks = []
        for out, stride in BLOCKS:
            blocks.append(_separable(kit, channels, kit.channels(out), stride))
            channels = kit.channels(out)
        self.blocks = nn.Sequential(*blocks)
        self.fc = kit.head(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        conv, norm, act = self.stem
        return self.blocks(act(norm(self.lift.into(conv, x))))  # type: ignore[arg-type]


def _separable(kit: Kit, inp: int, out: int, stride: int) -> nn.Sequential:
    """A tuple-depthwise 3 x 3 convolution, then a 1 x 1 convolution."""
    return nn.Sequential(
        OrderedDict(
            depthwise=kit.conv(inp, inp, 3, stride, groups=inp // kit.algebra.dim),
            norm1=kit.norm(inp),
            act1=kit.act(),
            pointwise=kit.conv(inp, out, 1),
            norm2=kit.norm(out),
            act2=kit.act(),
        )
    )
