"""Single steps of recurrent cells, as in decoding: one operator, ``algebranets::decode_step``, and one kernel.

The products W_ih x and W_hh h of all gates and the cell's equations are one launch for each block of the algebra.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product import blocks, cells, kernels
from algebranets.product.cells import MODES, Direction
from algebranets.product.kernels import linear

#: Rows of a batch up to which all gates are one kernel's work; for more of them, tensor cores take the products.
FEW = 2


def applies(x: Tensor, directions: list[Direction], batch_sizes: Tensor | None = None) -> bool:
    """Whether `step` can take it: one step, not packed, one direction, no projection; `linear.applies` if it pays."""
    return (
        kernels.usable(x)
        and batch_sizes is None
        and x.dim() == 3
        and x.shape[0] == 1
        and len(directions) == 1
        and directions[0].w_hr is None
    )


def step(
    mode: str, x: Tensor, state: tuple[Tensor, ...], direction: Direction, algebra: Algebra
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`product.recurrent` for one time step in one direction: ``x`` is (1, batch, features), and so are states."""
    now, w_ih, w_hh, b_ih, b_hh, *before = linear.in_autocast(x[0], *direction[:4], *(s[0] for s in state))
    if len(now) <= FEW:
        both = linear.frozen(w_ih) and linear.frozen(w_hh)
        new = _OPERATOR(now, before, [w_ih, w_hh], b_ih, b_hh, mode, linear.spell(algebra), both)
    else:
        gates = MODES[mode].num_gates
        gates_x = linear.linear(now, w_ih, b_ih, algebra, gates)
        gates_h = linear.linear(before[0], w_hh, b_hh, algebra, gates)
        new = cells.step(mode, gates_x, gates_h, tuple(before))
    return new[0][None], tuple(s[None] for s in new)


def _run(
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    mode: str,
    algebra: list[int],
    frozen: bool,
) -> list[Tensor]:
    from algebranets.product.kernels.jit import decode  # needs triton

    gates = MODES[mode].num_gates
    return list(decode.step(mode, gates, x, state, weights, (b_ih, b_hh), linear.read(algebra), frozen))


def _shapes(_x: Tensor, state: list[Tensor], *_rest: Any) -> list[Tensor]:
    return [torch.empty_like(s, memory_format=torch.contiguous_format) for s in state]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:  # noqa: ARG001, passed by name
    x, state, weights, b_ih, b_hh, ctx.mode, algebra, _ = inputs
    ctx.algebra = linear.read(algebra)
    ctx.save_for_backward(x, *weights, b_ih, b_hh, *state)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    again = partial(_through_blocks, ctx.mode, ctx.algebra)
    x, w_ih, w_hh, b_ih, b_hh, *state = linear.gradients(again, ctx.saved_tensors, grads)
    return x, state, [w_ih, w_hh], b_ih, b_hh, None, None, None


def _through_blocks(
    mode: str,
    algebra: Algebra,
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    *state: Tensor,
) -> tuple[Tensor, ...]:
    gates = MODES[mode].num_gates
    gates_x = blocks.linear(x, w_ih, b_ih, algebra, gates)
    gates_h = blocks.linear(state[0], w_hh, b_hh, algebra, gates)
    return cells.step(mode, gates_x, gates_h, state)


_OPERATOR = torch.library.custom_op(
    "algebranets::decode_step",
    _run,
    mutates_args=(),
    schema="(Tensor x, Tensor[] state, Tensor[] weights, Tensor? b_ih, Tensor? b_hh, str mode, int[] algebra, "
    "bool frozen) -> Tensor[]",
)
_OPERATOR.register_fake(_shapes)
_OPERATOR.register_autograd(_backward, setup_context=_remember)
