"""What lowering "auto" is: the fastest one for this device, shape and precision, as `algebranets bench` measured it."""

from __future__ import annotations

from math import prod
from types import ModuleType

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product import bilinear, blocks, kernels
from algebranets.product.cells import Direction
from algebranets.product.combine import precision
from algebranets.product.geometry import Geometry
from algebranets.product.kernels import depthwise, lowering, scan
from algebranets.product.kernels import linear as decode
from algebranets.product.kernels import recurrent as steps

#: Multiply-adds that a GPU does while it moves one number, in half precision and without tensor cores: what an H200's
#: rate and bandwidth are in `algebranets bench layers`. Fewer multiplies pay where more than that is saved.
MULTIPLIES_A_NUMBER = {True: 180, False: 28}
#: Rows from which on a large layer's time is that of its multiplies.
MANY_ROWS = 1024
#: The most by which an algorithm of fewer multiplies may exceed the rounding error of the plain product, in half
#: precision (`Bilinear.half_growth`) and without (`Bilinear.growth`): as much as those of C and H do, and less than
#: Strassen's. `algebranets bench error` measures it.
MAX_GROWTH = {True: 3.0, False: 1.5}


def for_linear(x: Tensor, weight: Tensor, algebra: Algebra, num_in: int, num_out: int) -> ModuleType:
    """Few rows without gradients: a kernel. Many, of many tuples: fewer multiplies. Else blocks."""
    if not kernels.usable(x):
        return blocks
    if decode.applies(x, weight, algebra):
        return lowering
    algorithm, dense = algebra.bilinear, sum(block.num_copies * block.size**2 for block in algebra.blocks)
    saved = (dense - algorithm.rank) * num_in * num_out
    moved = (algebra.dim + algorithm.rank) * (num_in + num_out)
    pays = saved > MULTIPLIES_A_NUMBER[_on_tensor_cores(x)] * moved and prod(x.shape[:-1]) >= MANY_ROWS
    is_half = precision(x).itemsize == 2
    growth = algorithm.half_growth if is_half else algorithm.growth
    return bilinear if pays and growth <= MAX_GROWTH[is_half] and bilinear.is_safe(x) else blocks


def for_conv(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> ModuleType:
    """Depthwise ones: a kernel. Else blocks."""
    return lowering if kernels.usable(x) and depthwise.applies(x, weight, algebra, geometry) else blocks


def for_recurrent(
    mode: str, x: Tensor, directions: list[Direction], algebra: Algebra, batch_sizes: Tensor | None
) -> ModuleType:
    """Single steps without gradients: a kernel. Long sequences: another, for the GRU. Else blocks."""
    if scan.applies(mode, x, directions, algebra, batch_sizes):
        return lowering
    weights = [weight for direction in directions for weight in (direction.w_ih, direction.w_hh)]
    pays = steps.applies(x, directions, batch_sizes) and all(decode.applies(x, weight, algebra) for weight in weights)
    return lowering if pays else blocks


def _on_tensor_cores(x: Tensor) -> bool:
    dtype = precision(x)
    return dtype.itemsize == 2 or (dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32)
