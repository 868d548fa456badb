"""Recurrent layers step by step, for algebras that consist of matrix algebras (see `parts`).

The gates act on the components of the table, so each step changes the basis of the states and of the gates. torch's
fused kernels cannot do that. They multiply by rho(w) of the table, which takes longer than these steps do.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops.device import is_autocast, sums_may_overflow
from algebranets.product import blocks, cells
from algebranets.product.blocks.matrix import join, matrix, split
from algebranets.product.cells import MODES, Direction
from algebranets.product.channels import cat
from algebranets.product.layout import num_tuples

#: A linear layer with gates: from (..., features) to (..., gate and feature).
Gates = Callable[[Tensor], Tensor]


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer over a whole sequence. The arguments are those of `blocks.recurrent`.

    Packed sequences, layers with a projection, autocast and graphs go through blocks, as do other algebras and float16.
    """
    if algebra.change is None or batch_sizes is not None or directions[0].w_hr is not None or not _can_step(x):
        return blocks.recurrent(mode, x, state, directions, algebra, batch_sizes)
    outputs, finals = [], []
    for d, direction in enumerate(directions):
        output, final = _one_direction(mode, x, tuple(s[d] for s in state), direction, algebra, reverse=d == 1)
        outputs.append(output)
        finals.append(final)
    output = outputs[0] if len(outputs) == 1 else cat(outputs, -1, algebra=algebra)
    return output, tuple(torch.stack(states) for states in zip(*finals, strict=True))


def _can_step(x: Tensor) -> bool:
    """Whether steps may be computed one by one. A graph of them would be long, and right for one length only."""
    is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return not (is_graph or is_autocast(x) or sums_may_overflow(x))


def _one_direction(
    mode: str, x: Tensor, state: tuple[Tensor, ...], direction: Direction, algebra: Algebra, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    num_gates = MODES[mode].num_gates
    inputs = _gates(direction.w_ih, direction.b_ih, num_gates, algebra)(x).unbind(0)
    of_state = _gates(direction.w_hh, direction.b_hh, num_gates, algebra)
    outputs = []
    for gates in reversed(inputs) if reverse else inputs:
        state = cells.step(mode, gates, of_state(state[0]), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs), state


def _gates(weight: Tensor, bias: Tensor | None, num_gates: int, algebra: Algebra) -> Gates:
    """W . x + b for all gates, with everything prepared that is the same in each step."""
    stored, change = algebra.stored, algebra.change
    assert change is not None
    to_stored, to_table = (weight.new_tensor(m) for m in (change.inputs, change.outputs))
    weights = [matrix(weight, stored, block, stacks=num_gates) for block in stored.blocks]
    biases = None if bias is None else bias.view(num_gates, algebra.dim, -1)
    num_numbers = algebra.dim * num_tuples(weight, algebra, num_gates)[0] * num_gates

    def gates(x: Tensor) -> Tensor:
        rows, features = prod(x.shape[:-1]), x.shape[-1]
        inputs = (to_stored @ x.reshape(rows, algebra.dim, features // algebra.dim)).flatten(1)
        found = []
        for part, w, block in zip(split(inputs, stored, 1), weights, stored.blocks, strict=True):
            y = F.linear(part.unflatten(1, (block.num_copies, -1)), w)
            found.append(y.unflatten(2, (num_gates, -1)).transpose(1, 2).flatten(2))
        y = to_table @ join(found, 2).unflatten(2, (algebra.dim, -1))
        y = y if biases is None else y + biases.to(y.dtype)
        return y.reshape(*x.shape[:-1], num_numbers)

    return gates
