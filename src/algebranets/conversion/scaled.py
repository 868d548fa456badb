"""Layers over an algebra with a factor for each output channel, which `fold` makes from batch norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from algebranets import nn as ann
from algebranets.conversion import parts
from algebranets.nn.layer import Layer


class Scaled(Layer):
    """The base of layers that compute ``scale * (w . x) + offset``. `algebranets.fold` makes these layers.

    ``scale`` and ``offset`` have one number for each output channel. ``bias`` is None.
    """

    scale: nn.Parameter
    offset: nn.Parameter

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        y = super().forward(x, *args, **options)
        axes = [1] * getattr(self, "num_axes", 0)
        return torch.addcmul(self.offset.view(-1, *axes).to(y.dtype), y, self.scale.view(-1, *axes).to(y.dtype))

    def _get_name(self) -> str:
        return super()._get_name().removeprefix("Scaled")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaled"


#: The class with a scale for each class without one. The classes are names of this module, so that pickle finds them.
SCALED: dict[type, type[Scaled]] = {}

_BASES: tuple[type, ...] = (
    ann.Linear, ann.Conv1d, ann.Conv2d, ann.Conv3d, ann.ConvTranspose1d, ann.ConvTranspose2d, ann.ConvTranspose3d,
)  # fmt: skip
for _base in (*_BASES, *(parts._PARTED[base] for base in _BASES)):
    _name = f"Scaled{'Parted' if _base.__name__.startswith('_') else ''}{_base.__name__.removeprefix('_')}"
    SCALED[_base] = globals()[_name] = type(_name, (Scaled, _base), {"__module__": __name__, "__doc__": Scaled.__doc__})
