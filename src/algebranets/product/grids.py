"""Activations as grids, the tensors that `ops.combine` takes: (1, 1, row, component, column)."""

from __future__ import annotations

from math import prod

from torch import Tensor

from algebranets.ops.device import is_channels_last


def as_grid(x: Tensor, dim: int) -> Tensor:
    """Reshape images to a grid of ``dim`` components. Its rows are places if ``x`` is channels_last, else images."""
    batch, channels, *size = x.shape
    if is_channels_last(x):
        return x.movedim(1, -1).reshape(1, 1, batch * prod(size), dim, channels // dim)
    return x.reshape(1, 1, batch, dim, channels // dim * prod(size))


def as_images(grid: Tensor, like: Tensor) -> Tensor:
    """Reshape a grid to images with the size and memory format of ``like``. The number of channels may differ."""
    batch, _, *size = like.shape
    columns = grid.shape[3] * grid.shape[4]
    if is_channels_last(like):
        return grid.reshape(batch, *size, columns).movedim(-1, 1)
    return grid.reshape(batch, columns // prod(size), *size)
