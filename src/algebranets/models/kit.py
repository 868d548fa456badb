"""What the image networks are built from: algebra, width, norm, activation, Lift and initialisation, chosen once.

The width rule: ``width`` times a real network's ``channels`` becomes ``floor(width * channels / A + 1/2)`` tuples, A
the size of a tuple; a layer's real channels are A times that. None at all is an error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import Conv2d, Lift2d, Linear, TupleGate, TupleNorm, Whitening2d, init
from algebranets.nn.boundary import MODES

#: By name, from the algebra: component-wise ones, and the paper's ablation, gates that act on whole tuples (B.1).
ACTIVATIONS: dict[str, Callable[[Algebra], nn.Module]] = {
    "relu": lambda _: nn.ReLU(inplace=True),
    "swish": lambda _: nn.SiLU(inplace=True),
    "mean-gate": lambda algebra: TupleGate("mean", dim=1, algebra=algebra),
    "determinant-gate": lambda algebra: TupleGate("determinant", dim=1, algebra=algebra),
}
LayerT = TypeVar("LayerT", Conv2d, Linear)
NORMS = ("batch", "whitening")
#: What layers come with, and the algebra-specific one that the paper compares it with.
INITS = ("glorot", "polar")


@dataclass(frozen=True)
class Kit:
    """Layers of one network; channel counts go in and come out as real numbers."""

    algebra: Algebra
    width: float = 1.0
    activation: str = "relu"
    norm_name: str = "batch"
    lift_mode: str = "learned"
    init: str = "glorot"
    lowering: product.Lowering = "auto"

    def __post_init__(self) -> None:
        checks.positive("width", self.width)
        for name, value, choices in (
            ("activation", self.activation, ACTIVATIONS),
            ("norm", self.norm_name, NORMS),
            ("lift", self.lift_mode, MODES),
            ("init", self.init, INITS),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")

    def channels(self, channels: int) -> int:
        """The real channels that stand for ``channels`` of the real network: whole tuples, by the width rule."""
        # Layers refuse sizes that torch cannot address; a float beyond them may be infinite, which has no floor.
        num_tuples = math.floor(min(self.width * channels / self.algebra.dim + 0.5, checks.MOST_NUMBERS))
        if not num_tuples:
            raise ValueError(
                f"width={self.width} leaves no whole {self.algebra.name} tuple ({self.algebra.dim} numbers) of "
                f"{channels} channels; the nearest width that works is {self.algebra.dim / (2 * channels)}."
            )
        return num_tuples * self.algebra.dim

    def lift(self, channels: int, num_layers: int = 1, kernel_size: int = 1) -> Lift2d:
        """Images to tuples: the paper's one-layer MLP at each pixel, unless told otherwise."""
        return Lift2d(channels, self.lift_mode, num_layers, kernel_size=kernel_size, algebra=self.algebra)

    def conv(self, inp: int, out: int, kernel_size: int, stride: int = 1, groups: int = 1) -> Conv2d:
        """A convolution without bias that keeps the image's size, up to its stride."""
        slide = (kernel_size, stride, kernel_size // 2)
        layer = Conv2d(inp, out, *slide, groups=groups, bias=False, algebra=self.algebra, lowering=self.lowering)
        return self._initialised(layer)

    def norm(self, channels: int) -> nn.Module:
        if self.norm_name == "whitening":
            return Whitening2d(channels, algebra=self.algebra)
        return nn.BatchNorm2d(channels)

    def act(self) -> nn.Module:
        return ACTIVATIONS[self.activation](self.algebra)

    def head(self, features: int, num_classes: int) -> Linear:
        """One tuple for each class; `TupleNorm` makes the logits of it."""
        checks.whole("num_classes", num_classes, least=1)
        layer = Linear(features, num_classes * self.algebra.dim, algebra=self.algebra, lowering=self.lowering)
        return self._initialised(layer)

    def _initialised(self, layer: LayerT) -> LayerT:
        if self.init == "polar":
            init.polar_(layer.weight, self.algebra)
        return layer


class ImageNetwork(nn.Module, ABC):
    """What every image network does around its own ``features``: mean over places, ``fc``, tuples to logits."""

    #: Of the images it is for.
    image_size: ClassVar[int] = 224
    fc: Linear

    def __init__(self, kit: Kit, in_channels: int, **lift: int) -> None:
        super().__init__()
        self.algebra, self.in_channels = kit.algebra, checks.whole("in_channels", in_channels, least=1)
        self.lift = kit.lift(in_channels, **lift)
        self.logits = TupleNorm(algebra=kit.algebra)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The network's own part: images to channels, by way of ``lift``."""

    def forward(self, x: Float[Tensor, "batch chan height width"]) -> Float[Tensor, "batch cls"]:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"the input must be (batch, {self.in_channels}, height, width); got shape {tuple(x.shape)}."
            )
        return self.logits(self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)))

    def example_inputs(self, image_size: int | None = None) -> tuple[Tensor]:
        """One image, as `account` wants it."""
        size = self.image_size if image_size is None else checks.whole("image_size", image_size, least=1)
        checks.size("an image", (1, self.in_channels, size, size))
        return (torch.zeros(1, self.in_channels, size, size, device=next(self.parameters()).device),)
