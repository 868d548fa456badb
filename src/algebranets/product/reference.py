"""The definition: products summed over the table, no branches, no speed. Every other lowering is tested against it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product.cells import MODES, Direction, step
from algebranets.product.geometry import Geometry
from algebranets.product.layout import from_tuples, tuples, weight_tuples


def linear(
    x: Float[Tensor, "*batch inp"], weight: Tensor, bias: Tensor | None, algebra: Algebra, stacks: int = 1
) -> Float[Tensor, "*batch out"]:
    """``y_o = sum_i w_oi . x_i``, products taken in ``algebra``."""
    table = x.new_zeros(algebra.dim, algebra.dim, algebra.dim)
    for i, j, k, c in algebra.terms:
        table[i, j, k] = c
    stacked = weight_tuples(weight, algebra, stacks=stacks).unflatten(1, (stacks, -1))
    y = torch.einsum("ijk,isoc,...jc->...sko", table, stacked, tuples(x, algebra))
    y = from_tuples(y, algebra).flatten(-2)
    return y if bias is None else y + bias.to(y.dtype)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """The paper's example code: one real convolution for each entry of the table, summed."""
    w, xs = weight_tuples(weight, algebra, geometry.transposed), tuples(x, algebra, dim=1)
    ys: list[Tensor | int] = [0] * algebra.dim
    for i, j, k, c in algebra.terms:
        ys[k] = ys[k] + c * geometry.convolve(xs[:, j], w[i])
    zero = 0 * geometry.convolve(xs[:, 0], w[0])
    y = from_tuples(torch.stack([zero + y for y in ys], dim=1), algebra, dim=1)
    return y if bias is None else y + bias.to(y.dtype).unflatten(0, (-1, *[1] * geometry.num_axes))


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A loop over time, in which step t reads and changes the first ``batch_sizes[t]`` rows."""
    sizes = [x.shape[1]] * x.shape[0] if batch_sizes is None else batch_sizes.tolist()
    chunks = x.reshape(-1, x.shape[-1]).split(sizes)
    outputs, finals = [], []
    for d, weights in enumerate(directions):
        h = tuple(s[d] for s in state)
        steps: list[Tensor] = [x] * len(chunks)
        for t in reversed(range(len(chunks))) if d else range(len(chunks)):
            size = sizes[t]
            gates_x = linear(chunks[t], weights.w_ih, weights.b_ih, algebra, MODES[mode].num_gates)
            gates_h = linear(h[0][:size], weights.w_hh, weights.b_hh, algebra, MODES[mode].num_gates)
            new = step(mode, gates_x, gates_h, tuple(s[:size] for s in h))
            if weights.w_hr is not None:
                new = (linear(new[0], weights.w_hr, None, algebra), *new[1:])
            h = tuple(torch.cat([now, before[size:]]) for now, before in zip(new, h, strict=True))
            steps[t] = new[0]
        outputs.append(tuples(torch.cat(steps), algebra))
        finals.append(h)
    output = from_tuples(torch.cat(outputs, dim=-1), algebra).reshape(*x.shape[:-1], -1)
    return output, tuple(torch.stack(s) for s in zip(*finals, strict=True))
