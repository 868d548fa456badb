"""Layers over an algebra with a factor for each output channel, which `fold` makes from batch norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from algebranets.conversion.parts import PARTED, PLAIN_LAYERS
from algebranets.conversion.variants import Variant, variants
from algebranets.nn.layer import Layer


class Scaled(Variant, Layer):
    """The base of layers that compute ``scale * (w . x) + offset``. `algebranets.fold` makes these layers.

    ``scale`` and ``offset`` have one number for each output channel. ``bias`` is None.
    """

    scale: nn.Parameter
    offset: nn.Parameter

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        y = super().forward(x, *args, **options)
        axes = [1] * getattr(self, "num_axes", 0)
        return torch.addcmul(self.offset.view(-1, *axes).to(y.dtype), y, self.scale.view(-1, *axes).to(y.dtype))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaled"


#: The class with a scale for each class without one.
SCALED: dict[type, type[Scaled]] = variants(
    Scaled, (*PLAIN_LAYERS, *(PARTED[layer] for layer in PLAIN_LAYERS)), "Scaled"
)
