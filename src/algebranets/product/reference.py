"""The lowering "reference": the product by its definition. Tests compare every other lowering with it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
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
    w, xs = weight_tuples(weight, algebra, stacks=stacks), tuples(x, algebra)
    ys = over_table(lambda i, j: F.linear(xs[..., j, :], w[i]).unflatten(-1, (stacks, -1)), algebra)
    y = from_tuples(torch.stack(ys, dim=-2), algebra).flatten(-2)
    return y if bias is None else y + bias.to(y.dtype)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """A convolution, transposed or not, with products taken in ``algebra``."""
    w, xs = weight_tuples(weight, algebra, geometry.transposed), tuples(x, algebra, dim=1)
    ys = over_table(lambda i, j: geometry.convolve(xs[:, j], w[i]), algebra)
    y = from_tuples(torch.stack(ys, dim=1), algebra, dim=1)
    return y if bias is None else y + bias.to(y.dtype).unflatten(0, (-1, *[1] * geometry.num_axes))


def dot(
    x: Float[Tensor, "*batch left"], y: Float[Tensor, "*batch right"], algebra: Algebra
) -> Float[Tensor, "*batch out"]:
    """``z_o = sum_n x_on . y_n``, products of activations taken in ``algebra``."""
    ys = tuples(y, algebra)
    xs = tuples(x, algebra).unflatten(-1, (-1, ys.shape[-1]))
    zs = over_table(lambda i, j: (xs[..., i, :, :] @ ys[..., j, :, None]).squeeze(-1), algebra)
    return from_tuples(torch.stack(zs, dim=-2), algebra)


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A recurrent layer as a loop over time. Step t reads and changes the first ``batch_sizes[t]`` rows, or all."""
    sizes = [x.shape[1]] * x.shape[0] if batch_sizes is None else batch_sizes.tolist()
    rows = x.reshape(-1, x.shape[-1])
    outputs, finals = [], []
    for d, weights in enumerate(directions):
        h = tuple(s[d] for s in state)
        gates_x = linear(rows, weights.w_ih, weights.b_ih, algebra, MODES[mode].num_gates).split(sizes)
        steps: list[Tensor] = [x] * len(sizes)
        for t in reversed(range(len(sizes))) if d else range(len(sizes)):
            size = sizes[t]
            gates_h = linear(h[0][:size], weights.w_hh, weights.b_hh, algebra, MODES[mode].num_gates)
            new = step(mode, gates_x[t], gates_h, tuple(s[:size] for s in h))
            if weights.w_hr is not None:
                new = (linear(new[0], weights.w_hr, None, algebra), *new[1:])
            h = tuple(torch.cat([now, before[size:]]) for now, before in zip(new, h, strict=True))
            steps[t] = new[0]
        outputs.append(tuples(torch.cat(steps), algebra))
        finals.append(h)
    output = from_tuples(torch.cat(outputs, dim=-1), algebra)
    return output.reshape(*x.shape[:-1], output.shape[-1]), tuple(torch.stack(s) for s in zip(*finals, strict=True))


def over_table(times: Callable[[int, int], Tensor], algebra: Algebra) -> list[Tensor]:
    """Sum real products over the table, as in the paper's example code. Returns the components of the result.

    ``times(i, j)`` is the real product of weight component i and input component j.
    """
    ys: dict[int, Tensor] = {}
    for i, j, k, c in algebra.terms:
        term = c * times(i, j)
        ys[k] = ys[k] + term if k in ys else term
    zero = torch.zeros_like(next(iter(ys.values())) if ys else times(0, 0))
    return [ys.get(k, zero) for k in range(algebra.dim)]
