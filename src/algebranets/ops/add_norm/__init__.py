"""``add_norm``: a residual addition and the layer norm of the sum, in one launch. Inference only.

Like torch's own norms and additions, it counts no FLOPs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def add_norm(
    x: Float[Tensor, "*batch feat"],
    y: Float[Tensor, "*batch feat"],
    weight: Float[Tensor, " feat"],
    bias: Float[Tensor, " feat"],
    eps: float,
) -> tuple[Float[Tensor, "*batch feat"], Float[Tensor, "*batch feat"]]:
    """``x + y`` and its layer norm over the last axis, without gradients.

    Args:
        x: Features.
        y: The features to add, of the same shape and dtype.
        weight: A factor for each normalized feature.
        bias: A number to add to each feature after that.
        eps: A small number to add to the variance.
    """
    return _add_norm(x, y, weight, bias, eps)


@torch.library.custom_op(
    "algebranets::add_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor y, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor)",
)
def _add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    from algebranets.ops.add_norm import launch  # needs triton

    return launch.add_norm(x, y, weight, bias, eps)


@_add_norm.register_fake
def _(x: Tensor, _y: Tensor, _weight: Tensor, _bias: Tensor, _eps: float) -> tuple[Tensor, Tensor]:
    total = torch.empty_like(x, memory_format=torch.contiguous_format)
    return total, torch.empty_like(total)
