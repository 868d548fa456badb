"""ResNet-18, 34, 50 and 101 over an algebra (Section 4.1), with torchvision's layout and parameter names.

Over R, torchvision's state dicts can be loaded, and the logits are the same.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.models.kit import ImageNetwork, Kit


class _Block(nn.Module):
    """A residual block. In subclasses, ``planes`` are the channels inside the block and ``out`` those after it."""

    expansion: ClassVar[int]

    def __init__(self, kit: Kit, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.downsample: nn.Module | None = None
        if stride != 1 or inp != out:
            self.downsample = nn.Sequential(kit.conv(inp, out, 1, stride), kit.norm(out))

    def _shortcut(self, x: Tensor) -> Tensor:
        return x if self.downsample is None else self.downsample(x)


class BasicBlock(_Block):
    """The block of ResNet-18 and 34: two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, kit: Kit, inp: int, planes: int, out: int, stride: int) -> None:
        super().__init__(kit, inp, out, stride)
        self.conv1, self.bn1 = kit.conv(inp, planes, 3, stride), kit.norm(planes)
        self.conv2, self.bn2 = kit.conv(planes, out, 3), kit.norm(out)
        self.act = kit.act()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.act(y + self._shortcut(x))


class Bottleneck(_Block):
    """The block of ResNet-50 and 101: convolutions of 1 x 1, 3 x 3 (with the stride, as in torchvision) and 1 x 1."""

    expansion = 4

    def __init__(self, kit: Kit, inp: int, planes: int, out: int, stride: int) -> None:
        super().__init__(kit, inp, out, stride)
        self.conv1, self.bn1 = kit.conv(inp, planes, 1), kit.norm(planes)
        self.conv2, self.bn2 = kit.conv(planes, planes, 3, stride), kit.norm(planes)
        self.conv3, self.bn3 = kit.conv(planes, out, 1), kit.norm(out)
        self.act = kit.act()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.act(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.act(y + self._shortcut(x))


class ResNet(ImageNetwork):
    """A residual network over an algebra. `models.create` makes the standard ones by name, such as "resnet50".

    Images are lifted to tuples. The last layer gives one tuple for each class, and its norm is the logit.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        num_blocks: The number of blocks in each of the four stages.
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
    >>> model = an.models.create("resnet18", algebra=an.H, width=0.25, num_classes=10, activation="swish")
    >>> model(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        num_blocks: tuple[int, int, int, int],
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
        channels = kit.channels(64)
        self.conv1 = kit.conv(in_channels * kit.algebra.dim, channels, 7, stride=2)
        self.bn1 = kit.norm(channels)
        self.act = kit.act()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for stage, (planes, count) in enumerate(zip((64, 128, 256, 512), num_blocks, strict=True)):
            within, out = kit.channels(planes), kit.channels(planes * block.expansion)
            blocks = []
            for index in range(count):
                stride = 2 if stage and not index else 1
                blocks.append(block(kit, channels, within, out, stride))
                channels = out
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = kit.head(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.act(self.bn1(self.lift.into(self.conv1, x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))  # type: ignore[operator]


#: ResNets of the standard depths.
resnet18 = partial(ResNet, BasicBlock, (2, 2, 2, 2))
resnet34 = partial(ResNet, BasicBlock, (3, 4, 6, 3))
resnet50 = partial(ResNet, Bottleneck, (3, 4, 6, 3))
resnet101 = partial(ResNet, Bottleneck, (3, 4, 23, 3))
