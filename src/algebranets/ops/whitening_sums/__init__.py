"""``whitening_sums``: batch sums of the products of two components, for whitening in compiled graphs.

Like other sums of products in a compiled graph, it counts no FLOPs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def whitening_sums(
    left: Float[Tensor, "batch feat *size"] | None,
    x: Float[Tensor, "batch feat *size"],
    scale: Float[Tensor, " chan"],
    center: Float[Tensor, "comp chan"],
) -> Float[Tensor, "comp comp chan"]:
    """Products of each component of ``left`` and each of ``x * scale - center``, summed over batch and places.

    No gradients are recorded. Sums are taken in the dtype of ``center``. Images may have any memory format;
    channels_last is the fastest.

    Args:
        left: Images, planar. None means ``x * scale - center``.
        x: Images of the same shape, planar.
        scale: A factor for each channel of tuples.
        center: A number to subtract from each component of each channel, after scaling.
    """
    return _whitening_sums(left, x, scale, center)


@torch.library.custom_op(
    "algebranets::whitening_sums",
    mutates_args=(),
    schema="(Tensor? left, Tensor x, Tensor scale, Tensor center) -> Tensor",
)
def _whitening_sums(left: Tensor | None, x: Tensor, scale: Tensor, center: Tensor) -> Tensor:
    from algebranets.ops.whitening_sums import launch  # needs triton

    return launch.whitening_sums(left, x, scale, center)


@_whitening_sums.register_fake
def _(_left: Tensor | None, _x: Tensor, _scale: Tensor, center: Tensor) -> Tensor:
    dim, channels = center.shape
    return center.new_empty(dim, dim, channels)
