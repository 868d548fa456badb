"""Derives variants of layers, such as layers with parts, which differ from the layers in their forward alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

from torch import nn

VariantT = TypeVar("VariantT", bound="Variant")


class Variant(nn.Module):
    """The base of variants of layers. A variant is printed with the name of the layer."""

    shown_name: str

    def _get_name(self) -> str:
        return self.shown_name


def variants(mixin: type[VariantT], layers: Iterable[type[nn.Module]], prefix: str) -> dict[type, type[VariantT]]:
    """Derive a class from a mixin and each of several layers, and return the classes by their layers.

    The classes become names of the mixin's module, so that pickle finds them.

    Args:
        mixin: The class whose forward calls that of the layer.
        layers: The classes of the layers.
        prefix: The first part of the names of the new classes, such as "Parted" for "PartedLinear".
    """
    made = {}
    for layer in layers:
        name = f"{prefix}{layer.__name__}"
        body = {"__module__": mixin.__module__, "__doc__": mixin.__doc__, "shown_name": shown_name(layer)}
        made[layer] = type(name, (mixin, layer), body)
        setattr(sys.modules[mixin.__module__], name, made[layer])
    return made


def shown_name(layer: type[nn.Module]) -> str:
    """Return the name of a layer's class, or of the layer that it is a variant of.

    Args:
        layer: The class of the layer.
    """
    return str(getattr(layer, "shown_name", layer.__name__))
