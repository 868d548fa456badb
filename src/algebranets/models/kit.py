"""The layers of image networks, for one choice of algebra, width, norm, activation and so on."""

from __future__ import annotations

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

#: Activations by name, made for an algebra: component-wise ones, and gates of whole tuples (appendix B.1).
ACTIVATIONS: dict[str, Callable[[Algebra], nn.Module]] = {
    "relu": lambda _: nn.ReLU(inplace=True),
    "swish": lambda _: nn.SiLU(inplace=True),
    "mean-gate": lambda algebra: TupleGate("mean", dim=1, algebra=algebra),
    "determinant-gate": lambda algebra: TupleGate("determinant", dim=1, algebra=algebra),
}
LayerT = TypeVar("LayerT", Conv2d, Linear)
NORMS = ("batch", "whitening")
#: The default initialization of layers, and one that depends on the algebra.
INITS = ("glorot", "polar")


@dataclass(frozen=True)
class Kit:
    """Makes the layers of one network. All numbers of channels are real channels."""

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
            checks.one_of(name, value, choices)

    def channels(self, channels: int) -> int:
        """Return ``channels`` times the width, rounded to the nearest whole number of tuples, which must not be 0."""
        wanted, dim = self.width * channels, self.algebra.dim
        if wanted < dim / 2:
            raise ValueError(
                f"width={self.width} leaves no whole {self.algebra.name} tuple ({dim} numbers) of {channels} "
                f"channels; the nearest width that works is {dim / (2 * channels)}."
            )
        return product.nearest_multiple(wanted, dim)

    def lift(self, channels: int, num_layers: int = 1, kernel_size: int = 1) -> Lift2d:
        """The layer from images to tuples: by default, the paper's one-layer MLP at each pixel."""
        return Lift2d(channels, self.lift_mode, num_layers, kernel_size=kernel_size, algebra=self.algebra)

    def conv(self, inp: int, out: int, kernel_size: int, stride: int = 1, groups: int = 1) -> Conv2d:
        """A convolution without bias, padded so that an image keeps its size if the stride is 1."""
        slide = (kernel_size, stride, kernel_size // 2)
        layer = Conv2d(inp, out, *slide, groups=groups, bias=False, algebra=self.algebra, lowering=self.lowering)
        return self._initialized(layer)

    def norm(self, channels: int) -> nn.Module:
        if self.norm_name == "whitening":
            return Whitening2d(channels, algebra=self.algebra)
        return nn.BatchNorm2d(channels)

    def act(self) -> nn.Module:
        return ACTIVATIONS[self.activation](self.algebra)

    def head(self, features: int, num_classes: int) -> Linear:
        """A linear layer that gives one tuple for each class; `TupleNorm` then gives the logits."""
        checks.whole("num_classes", num_classes, least=1)
        layer = Linear(features, num_classes * self.algebra.dim, algebra=self.algebra, lowering=self.lowering)
        return self._initialized(layer)

    def _initialized(self, layer: LayerT) -> LayerT:
        if self.init == "polar":
            init.polar_(layer.weight, algebra=self.algebra)
        return layer


class ImageNetwork(nn.Module, ABC):
    """The base of image networks: ``features``, average pooling, ``fc``, and the norms of tuples as logits."""

    #: The height and width of the images that the network was designed for.
    image_size: ClassVar[int] = 224
    fc: Linear

    def __init__(self, kit: Kit, in_channels: int, **lift: int) -> None:
        super().__init__()
        self.algebra, self.in_channels = kit.algebra, checks.whole("in_channels", in_channels, least=1)
        self.lift = kit.lift(in_channels, **lift)
        self.logits = TupleNorm(dim=-1, algebra=kit.algebra)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Compute feature maps from images, including ``lift``."""

    def forward(self, x: Float[Tensor, "batch chan height width"]) -> Float[Tensor, "batch cls"]:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"the input must be (batch, {self.in_channels}, height, width); got shape {tuple(x.shape)}."
            )
        return self.logits(self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)))

    def example_inputs(self, image_size: int | None = None) -> tuple[Tensor]:
        """One image, for `account`."""
        size = self.image_size if image_size is None else checks.whole("image_size", image_size, least=1)
        checks.size("an image", (1, self.in_channels, size, size))
        return (torch.zeros(1, self.in_channels, size, size, device=next(self.parameters()).device),)
