"""Linear layers through blocks."""

from __future__ import annotations

from math import prod

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.combine import add_bias
from algebranets.ops.device import precision
from algebranets.product.blocks.matrix import bias_fits, join, matrix, multiply, spans_worth_skipping, split


def linear(
    x: Float[Tensor, "*batch inp"], weight: Tensor, bias: Tensor | None, algebra: Algebra, stacks: int = 1
) -> Float[Tensor, "*batch out"]:
    """``y_o = sum_i w_oi . x_i``, products taken in ``algebra``."""
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    num_rows, num_in = rows.shape[0], rows.shape[1] // algebra.dim
    parts = []
    for block, part in zip(algebra.blocks, split(rows, algebra, dim=1), strict=True):
        folded = part.reshape(num_rows * block.num_copies, block.size * num_in)
        spans = spans_worth_skipping(block, x, block.size * num_in) if stacks == 1 else None
        w = matrix(weight, algebra, block, stacks=stacks, dtype=precision(weight))
        y = multiply(F.linear, folded, w, bias if bias_fits(algebra) else None, spans, block.size)
        width = y.shape[1] // stacks
        y = y.reshape(num_rows, block.num_copies, stacks, width).transpose(1, 2)
        parts.append(y.reshape(num_rows, stacks, block.num_copies * width))
    y = join(parts, dim=2)
    y = y.reshape(*x.shape[:-1], stacks * y.shape[2])
    return y if bias is None or bias_fits(algebra) else add_bias(y, bias)
