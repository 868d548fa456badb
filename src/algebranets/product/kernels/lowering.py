"""The lowering "kernels" as a module like the others: what its kernels are not for goes through blocks."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product import blocks, kernels
from algebranets.product.cells import Direction
from algebranets.product.geometry import Geometry
from algebranets.product.kernels import depthwise, scan
from algebranets.product.kernels import linear as decode
from algebranets.product.kernels import recurrent as steps


def linear(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)``, compact weights read once: for few rows."""
    _check(x)
    return decode.linear(x, weight, bias, algebra, stacks, activation)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """Depthwise convolutions in two axes."""
    _check(x)
    way = depthwise if depthwise.applies(x, weight, algebra, geometry) else blocks
    return way.conv(x, weight, bias, algebra, geometry)


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Single steps in one direction, and long sequences of a GRU in half precision."""
    _check(x)
    if steps.applies(x, directions, batch_sizes):
        return steps.step(mode, x, state, directions[0], algebra)
    if scan.applies(mode, x, directions, algebra, batch_sizes):
        return scan.recurrent(x, state[0], directions, algebra)
    return blocks.recurrent(mode, x, state, directions, algebra, batch_sizes)


def _check(x: Tensor) -> None:
    if not kernels.usable(x):
        raise ValueError(
            f"lowering 'kernels' needs triton and a CUDA device; got a tensor on {x.device}. "
            "Leave the choice to lowering='auto'."
        )
