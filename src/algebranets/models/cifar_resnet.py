"""The pre-activation ResNet of the paper's CIFAR-10 table (Appendix), after Gaudet and Maida (2018).

It has three stages of residual blocks. A block is a norm, an activation and a 3 x 3 convolution, twice. Between stages,
a transition halves the height and width and doubles the channels. It is a block with stride 2, concatenated with a
1 x 1 projection of its input.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.models.kit import ImageNetwork, Kit


class _Block(nn.Module):
    def __init__(self, kit: Kit, inp: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1, self.act1, self.conv1 = kit.norm(inp), kit.act(), kit.conv(inp, out, 3, stride)
        self.norm2, self.act2, self.conv2 = kit.norm(out), kit.act(), kit.conv(out, out, 3)
        self.shortcut = kit.conv(inp, out, 1, stride) if stride > 1 or inp != out else nn.Identity()

    def _residual(self, x: Tensor) -> Tensor:
        y = self.conv1(self.act1(self.norm1(x)))
        return self.conv2(self.act2(self.norm2(y)))


class Residual(_Block):
    """A block added to its input. The input is projected if the number of channels changes."""

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self._residual(x)


class Transition(_Block):
    """A block with stride 2, concatenated with its projected input: half the height and width, twice the tuples."""

    def __init__(self, kit: Kit, channels: int) -> None:
        super().__init__(kit, channels, channels, stride=2)
        self.dim = kit.algebra.dim

    def forward(self, x: Tensor) -> Tensor:
        halves = (self.shortcut(x), self._residual(x))
        y = torch.cat([half.unflatten(1, (self.dim, -1)) for half in halves], dim=2).flatten(1, 2)
        return product.in_format_of(x, y)


class CifarResNet(ImageNetwork):
    """The paper's CIFAR-10 network over an algebra.

    Its stages have 32, 64 and 128 real channels times ``width``. The first convolution has 16 tuples times ``width``,
    or over R 32 channels times ``width``. The paper says "half the original channels, all others a quarter".

    Args:
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        width: A factor for all numbers of channels. They are rounded to the nearest whole number of tuples, halves up.
        num_blocks: The number of blocks in each of the three stages.
        num_classes: The number of classes.
        in_channels: The number of channels of the images.
        activation: "relu", "swish", "mean-gate" or "determinant-gate". The gates act on whole tuples.
        norm: "batch" (batch norm) or "whitening".
        lift: The components of the lifted image besides the image itself: "learned", "zeros" or "copy".
        init: "glorot" (each component independently) or "polar" (tuples of random size and direction).
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> model = an.models.create("cifar_resnet", algebra=an.M2R, num_blocks=2)
    >>> model(torch.randn(2, 3, 24, 24)).shape
    torch.Size([2, 10])
    """

    image_size = 32

    def __init__(
        self,
        *,
        algebra: Algebra | str,
        width: float = 1.0,
        num_blocks: int = 10,
        num_classes: int = 10,
        in_channels: int = 3,
        activation: str = "relu",
        norm: str = "batch",
        lift: str = "learned",
        init: str = "glorot",
        lowering: product.Lowering = "auto",
    ) -> None:
        checks.whole("num_blocks", num_blocks, least=1)
        kit = Kit(algebras.get(algebra), width, activation, norm, lift, init, lowering)
        super().__init__(kit, in_channels, num_layers=2, kernel_size=3)
        channels = kit.channels(32)
        stem = kit.channels(16 * kit.algebra.dim) if kit.algebra.dim > 1 else channels
        self.stem = nn.Sequential(kit.conv(in_channels * kit.algebra.dim, stem, 3), kit.norm(stem), kit.act())
        self.stage1 = nn.Sequential(
            Residual(kit, stem, channels), *(Residual(kit, channels, channels) for _ in range(num_blocks - 1))
        )
        self.stage2 = _stage(kit, channels, num_blocks)
        self.stage3 = _stage(kit, 2 * channels, num_blocks)
        self.norm, self.act = kit.norm(4 * channels), kit.act()
        self.fc = kit.head(4 * channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        x = self.stage3(self.stage2(self.stage1(self.stem(self.lift(x)))))
        return self.act(self.norm(x))


def _stage(kit: Kit, channels: int, num_blocks: int) -> nn.Sequential:
    """A stage: a transition, then residual blocks with twice as many tuples."""
    blocks = (Residual(kit, 2 * channels, 2 * channels) for _ in range(num_blocks - 1))
    return nn.Sequential(Transition(kit, channels), *blocks)
