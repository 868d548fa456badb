"""The layout of position scores in ``window_attention``, for its kernels and its matrix products."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.device import ceil_div

#: The number of half-precision numbers that a thread loads at once.
PHASES = 8
#: The number of columns of score rows is a multiple of this, because matrix products are then fast.
COLUMN_UNIT = 64


class Layout(NamedTuple):
    """The layout of features and position scores, for kernels and matrix products.

    A head has ``tuples`` features of each component. Query i has the score of distance n in column
    ``nearest + i % 8 - n`` of its row.
    """

    num_heads: int
    tuples: int
    num_distances: int
    nearest: int
    num_columns: int


def layout(r: Float[Tensor, "heads dist comp tuples"], num_past: int) -> Layout:
    """A layout with room for all distances in every phase, such that aligned columns belong to aligned keys.

    >>> import torch
    >>> layout(torch.empty(8, 1537, 4, 16), num_past=1536)
    Layout(num_heads=8, tuples=16, num_distances=1537, nearest=1536, num_columns=1600)
    """
    num_heads, num_distances, _, tuples = r.shape
    nearest = num_distances - 1 + (num_past - num_distances + 1) % PHASES
    num_columns = ceil_div(nearest + PHASES, COLUMN_UNIT) * COLUMN_UNIT
    return Layout(num_heads, tuples, num_distances, nearest, num_columns)


def by_head(r: Float[Tensor, "dist embed"], num_heads: int, dim: int) -> Float[Tensor, "heads dist comp tuples"]:
    """Split the vectors of the distances by head."""
    return r.unflatten(1, (dim, num_heads, -1)).movedim(2, 0)


def by_phase(
    x: Float[Tensor, "batch time embed"], num_heads: int, dim: int
) -> Float[Tensor, "heads phases batch rows d"]:
    """Split the queries by head and phase. Their number is padded with zeros to a multiple of eight."""
    whole = F.pad(x, (0, 0, 0, -x.shape[1] % PHASES)).unflatten(1, (-1, PHASES))
    return whole.unflatten(3, (dim, num_heads, -1)).permute(4, 2, 0, 1, 3, 5).contiguous().flatten(4)


def moved(r: Float[Tensor, "heads dist comp tuples"], place: Layout) -> Float[Tensor, "heads_phases columns d"]:
    """The vector of each column in each phase: that of the column's distance, or zero if it has no distance."""
    heads, _, dim, tuples = r.shape
    columns = r.new_zeros(heads, PHASES, place.num_columns, dim * tuples)
    distances_of(columns, place).unflatten(3, (dim, tuples)).copy_(r.flip(1)[:, None])
    return columns.flatten(0, 1)


def distances_of(x: Float[Tensor, "heads phases columns d"], place: Layout) -> Float[Tensor, "heads phases dist d"]:
    """A view of the columns of each phase that belong to a distance, the farthest distance first."""
    heads, phases, num_columns, size = x.shape
    farthest = place.nearest - place.num_distances + 1
    strides = (phases * num_columns * size, (num_columns + 1) * size, size, 1)
    shape = (heads, phases, place.num_distances, size)
    return x.as_strided(shape, strides, x.storage_offset() + farthest * size)
