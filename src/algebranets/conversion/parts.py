"""Layers whose channel axis consists of several parts, as in a model that cuts or joins channels.

A model's own code may cut or join channel axes, for example with `torch.cat`, `chunk` or a view into attention heads.
After ``torch.cat([a, b], 1)``, the channel axis is not one planar axis: it is the planar axis of ``a``, followed by the
planar axis of ``b``. These are the *parts* of the axis. Each part holds whole tuples. A layer that knows the parts of
its input and output keeps tuples whole, and the model's code stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.utils.rnn import PackedSequence

from algebranets import nn, product
from algebranets.algebra import Algebra
from algebranets.conversion.variants import Variant, variants

LayerT = TypeVar("LayerT", bound=torch_nn.Module)

#: The number of channels in each part of a channel axis, in their order.
Parts = tuple[int, ...]


def to_planar(x: Tensor, parts: Parts | None, dim: int, algebra: Algebra) -> Tensor:
    """Return a tensor whose channel axis is planar, from one whose channel axis has parts.

    Args:
        x: Activations.
        parts: The sizes of the parts, or None for a planar axis.
        dim: The channel axis.
        algebra: The algebra of the tuples.

    >>> import algebranets as an
    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0])  # 1 + 2i, then 3 + 4i
    >>> to_planar(x, (2, 2), -1, an.C)
    tensor([1., 3., 2., 4.])
    """
    if parts is None:
        return x
    _check(x, parts, dim)
    dim %= x.dim()
    runs = _runs(parts)
    pieces = [
        piece if count == 1 else _swapped(piece, (count, algebra.dim), dim)
        for piece, (_, count) in zip(x.split([size * count for size, count in runs], dim), runs, strict=True)
    ]
    return pieces[0] if len(pieces) == 1 else product.cat(pieces, dim, algebra=algebra)


def from_planar(x: Tensor, parts: Parts | None, dim: int, algebra: Algebra) -> Tensor:
    """Return a tensor whose channel axis has parts, from one whose channel axis is planar.

    Args:
        x: Activations.
        parts: The sizes of the parts, or None for a planar axis.
        dim: The channel axis.
        algebra: The algebra of the tuples.

    >>> import algebranets as an
    >>> from_planar(torch.tensor([1.0, 3.0, 2.0, 4.0]), (2, 2), -1, an.C)
    tensor([1., 2., 3., 4.])
    """
    if parts is None:
        return x
    _check(x, parts, dim)
    dim %= x.dim()
    runs = _runs(parts)
    planar = (x,) if len(runs) == 1 else product.split(x, [size * count for size, count in runs], dim, algebra=algebra)
    pieces = [
        piece if count == 1 else _swapped(piece, (algebra.dim, count), dim)
        for piece, (_, count) in zip(planar, runs, strict=True)
    ]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)


def planar_index(parts: Parts, algebra: Algebra) -> list[int]:
    """Return, for each channel of the planar axis, its position on the axis with parts.

    Args:
        parts: The sizes of the parts.
        algebra: The algebra of the tuples.

    >>> import algebranets as an
    >>> planar_index((2, 4), an.C)
    [0, 2, 3, 1, 4, 5]
    """
    return [int(number) for number in to_planar(torch.arange(sum(parts)), parts, 0, algebra)]


def _runs(parts: Parts) -> list[tuple[int, int]]:
    """The size of the parts in each run of equal parts, and their number. A run is rearranged by one copy."""
    return [(size, len(list(run))) for size, run in groupby(parts)]


def _swapped(x: Tensor, sizes: tuple[int, int], dim: int) -> Tensor:
    """Split an axis into three axes, of which the first two have these sizes, and swap these two."""
    return x.unflatten(dim, (*sizes, -1)).transpose(dim, dim + 1).flatten(dim, dim + 2)


def _check(x: Tensor, parts: Parts, dim: int) -> None:
    if x.shape[dim] != sum(parts):
        raise ValueError(
            f"axis {dim} of the input must have {sum(parts)} channels, in parts of {parts}; got {tuple(x.shape)}."
        )


class Parted(Variant, nn.Layer):
    """The base of layers that read and write channel axes in parts. `parted` makes them."""

    #: The parts of the channel axis of the input and of the output, or None for a planar axis.
    in_parts: Parts | None = None
    out_parts: Parts | None = None

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Any:
        return self._written(super().forward(self._read(x), *args, **options))

    @property
    def _channel_axis(self) -> int:
        return -1 - getattr(self, "num_axes", 0)

    def _read(self, x: Tensor) -> Tensor:
        return to_planar(x, self.in_parts, self._channel_axis, self.algebra)

    def _written(self, y: Tensor) -> Tensor:
        return from_planar(y, self.out_parts, self._channel_axis, self.algebra)

    def extra_repr(self) -> str:
        named = (("in_parts", self.in_parts), ("out_parts", self.out_parts))
        return ", ".join([super().extra_repr(), *(f"{name}={in_words(parts)}" for name, parts in named if parts)])


class _PartedNorm(Parted):
    def forward(self, x: Tensor) -> Tensor:
        """Normalize the channels on axis 1. The input and the output have the same parts."""
        y = super(Parted, self).forward(to_planar(x, self.in_parts, 1, self.algebra))
        return from_planar(y, self.out_parts, 1, self.algebra)


class _PartedAttention(Parted):
    embed_dim: int

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        """Compute attention. The query has ``in_parts``, and so do keys and values with ``embed_dim`` features."""
        q = self._read(query)
        k = q if key is query else self._read(key) if key.shape[-1] == self.embed_dim else key
        v = k if value is key else self._read(value) if value.shape[-1] == self.embed_dim else value
        y, scores = super(Parted, self).forward(q, k, v, *args, **options)
        return self._written(y), scores


class _PartedRecurrent(Parted):
    def forward(self, x: Tensor | PackedSequence, *args: Any, **options: Any) -> Any:
        """Run over a sequence. The states are planar."""
        y, state = super(Parted, self).forward(_mapped(self._read, x), *args, **options)
        return _mapped(self._written, y), state


def _mapped(function: Callable[[Tensor], Tensor], x: Tensor | PackedSequence) -> Tensor | PackedSequence:
    """Apply a function of features to a tensor, or to the data of a packed sequence."""
    return x._replace(data=function(x.data)) if isinstance(x, PackedSequence) else function(x)


#: Linear layers and convolutions, which have one input and one output.
PLAIN_LAYERS: tuple[type[torch_nn.Module], ...] = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip

#: The class with parts for each class without parts.
PARTED: dict[type, type[Parted]] = {
    **variants(Parted, PLAIN_LAYERS, "Parted"),
    **variants(_PartedNorm, [nn.GroupNorm], "Parted"),
    **variants(_PartedAttention, [nn.MultiheadAttention], "Parted"),
    **variants(_PartedRecurrent, [nn.RNN, nn.GRU, nn.LSTM], "Parted"),
}


def parted(layer: LayerT, in_parts: Sequence[int] | None, out_parts: Sequence[int] | None) -> LayerT:
    """Return the layer, changed in place so that its channel axes have parts.

    Args:
        layer: A layer of `algebranets.nn` without parts.
        in_parts: The sizes of the parts of its input, or None if the input is planar.
        out_parts: The sizes of the parts of its output, or None if the output is planar.

    >>> import algebranets as an
    >>> parted(an.nn.Linear(8, 24, algebra=an.H), None, (8, 8, 8))
    Linear(in_features=8, out_features=24, bias=True, algebra=H, out_parts=3x8)
    """
    if not in_parts and not out_parts:
        return layer
    if type(layer) not in PARTED:
        known = ", ".join(cls.__name__ for cls in PARTED)
        raise ValueError(f"{type(layer).__name__} cannot have channel axes in parts; these layers can: {known}.")
    layer.__class__ = PARTED[type(layer)]  # type: ignore[assignment]
    for name, parts in (("in_parts", in_parts), ("out_parts", out_parts)):
        if parts:
            for size in parts:
                product.whole_tuples(size, layer.algebra, f"a size in {name}")  # type: ignore[arg-type]
            setattr(layer, name, tuple(parts))
    return layer


def in_words(parts: Parts) -> str:
    """Return parts as short text, such as ``36x64`` for 36 parts of 64 channels.

    Args:
        parts: The sizes of the parts.

    >>> in_words((64,) * 36), in_words((64, 32, 32))
    ('36x64', '64+2x32')
    """
    return "+".join(f"{count}x{size}" if count > 1 else str(size) for size, count in _runs(parts))
