"""What the image networks are built from: the algebra, the width, the norm and the activation, chosen once.

The width rule: ``width`` times a real network's ``channels`` becomes ``floor(width * channels / A + 1/2)`` tuples, A
the size of a tuple; a layer's real channels are A times that. None at all is an error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn import Conv2d, Lift2d, Linear, TupleNorm, Whitening2d

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "swish": nn.SiLU}
NORMS = ("batch", "whitening")


@dataclass(frozen=True)
class Kit:
    """Layers of one network; channel counts go in and come out as real numbers."""

    algebra: Algebra
    width: float = 1.0
    activation: str = "relu"
    norm_name: str = "batch"
    lowering: product.Lowering = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.width < math.inf:
            raise ValueError(f"width must be a positive number; got {self.width}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {self.activation!r}.")
        if self.norm_name not in NORMS:
            raise ValueError(f"norm must be one of {', '.join(NORMS)}; got {self.norm_name!r}.")

    def channels(self, channels: int) -> int:
        """The real channels that stand for ``channels`` of the real network: whole tuples, by the width rule."""
        num_tuples = math.floor(self.width * channels / self.algebra.dim + 0.5)
        if not num_tuples:
            raise ValueError(
                f"width={self.width} leaves no whole {self.algebra.name} tuple ({self.algebra.dim} numbers) of "
                f"{channels} channels; the nearest width that works is {self.algebra.dim / (2 * channels)}."
            )
        return num_tuples * self.algebra.dim

    def lift(self, channels: int, num_layers: int = 1, kernel_size: int = 1) -> Lift2d:
        """Images to tuples: the paper's one-layer MLP at each pixel, unless told otherwise."""
        return Lift2d(channels, num_layers=num_layers, kernel_size=kernel_size, algebra=self.algebra)

    def conv(self, inp: int, out: int, kernel_size: int, stride: int = 1, groups: int = 1) -> Conv2d:
        """A convolution without bias that keeps the image's size, up to its stride."""
        slide = (kernel_size, stride, kernel_size // 2)
        return Conv2d(inp, out, *slide, groups=groups, bias=False, algebra=self.algebra, lowering=self.lowering)

    def norm(self, channels: int) -> nn.Module:
        if self.norm_name == "whitening":
            return Whitening2d(channels, algebra=self.algebra)
        return nn.BatchNorm2d(channels)

    def act(self) -> nn.Module:
        return ACTIVATIONS[self.activation](inplace=True)

    def head(self, features: int, num_classes: int) -> Linear:
        """One tuple for each class; `TupleNorm` makes the logits of it."""
        return Linear(features, num_classes * self.algebra.dim, algebra=self.algebra, lowering=self.lowering)


class ImageNetwork(nn.Module, ABC):
    """What every image network does around its own ``features``: Lift, mean over places, ``fc``, tuples to logits."""

    #: Of the images it is for.
    image_size: ClassVar[int] = 224
    fc: Linear

    def __init__(self, kit: Kit, in_channels: int, **lift: int) -> None:
        super().__init__()
        self.algebra, self.in_channels = kit.algebra, in_channels
        self.lift = kit.lift(in_channels, **lift)
        self.logits = TupleNorm(algebra=kit.algebra)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The network's own part: lifted images to channels."""

    def forward(self, x: Float[Tensor, "batch chan height width"]) -> Float[Tensor, "batch cls"]:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"the input must be (batch, {self.in_channels}, height, width); got shape {tuple(x.shape)}."
            )
        x = self.features(self.lift(x))
        return self.logits(self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)))

    def example_inputs(self, image_size: int | None = None) -> tuple[Tensor]:
        """One image, as `account` wants it."""
        size = image_size or self.image_size
        return (torch.zeros(1, self.in_channels, size, size, device=self.fc.weight.device),)
