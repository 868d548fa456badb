"""``gru_scan``: a GRU's recurrence over a whole sequence in one launch, and its gradients in another.

The caller computes the products W_ih x of all steps in one matrix product before the scan. The gradient of W_hh is one
matrix product after it. As with cuDNN, there are no gradients of gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.device import records_gradients


def gru_scan(
    gates: Float[Tensor, "time row gates"],
    state: Float[Tensor, "row unit"],
    weight: Float[Tensor, "gates unit"],
    bias: Float[Tensor, "four copy unit"],
    reverse: bool = False,
) -> tuple[Float[Tensor, "time row unit"], Float[Tensor, "row unit"]]:
    """The states after each step, and the last one.

    Args:
        gates: The products W_ih x of all steps, without biases. The gates are in the order r, z, n.
        state: The first state.
        weight: W_hh. The gates are in the order r, z, n.
        bias: The biases in float32, for each copy of a block: b_ih + b_hh of r, b_ih + b_hh of z, b_ih of n, b_hh of n.
        reverse: Whether time runs from the last step to the first.
    """
    return _GruScan.apply(gates, state, weight, bias, reverse, records_gradients(gates, state, weight, bias))


def fits(num_rows: int, num_units: int, device: torch.device) -> bool:
    """Whether all programs for states of shape (rows, units) can run at the same time on ``device``."""
    from algebranets.ops.gru_scan import launch  # needs triton

    return launch.choose(num_rows, num_units, device) is not None


class _GruScan(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor, reverse: bool, keep: bool
    ) -> tuple[Tensor, Tensor]:
        states, kept = _gru_scan(gates, state, weight, bias, reverse, keep)
        ctx.save_for_backward(states, kept, weight)
        ctx.num_copies, ctx.reverse = bias.shape[1], reverse
        ctx.set_materialize_grads(False)
        return (states[:-1], states[0].clone()) if reverse else (states[1:], states[-1].clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_last: Tensor | None) -> tuple[Any, ...]:
        states, kept, weight = ctx.saved_tensors
        before = states[1:] if ctx.reverse else states[:-1]
        grad = torch.zeros_like(before) if grad is None else grad
        grad_x, grad_h, grad_state, sums = _gru_scan_backward(grad, grad_last, states, kept, weight, ctx.reverse)
        grad_weight = grad_h.flatten(0, 1).mT @ before.flatten(0, 1) if ctx.needs_input_grad[2] else None
        grad_bias = sums.unflatten(1, (-1, ctx.num_copies)).sum(1)
        return grad_x, grad_state, grad_weight, grad_bias, None, None


@torch.library.custom_op(
    "algebranets::gru_scan",
    mutates_args=(),
    schema="(Tensor gates, Tensor state, Tensor weight, Tensor bias, bool reverse, bool keep) -> (Tensor, Tensor)",
)
def _gru_scan(
    gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor, reverse: bool, keep: bool
) -> tuple[Tensor, Tensor]:
    from algebranets.ops.gru_scan import launch  # needs triton

    return launch.gru_scan(gates, state, weight, bias, reverse, keep)


@_gru_scan.register_fake
def _(
    gates: Tensor, state: Tensor, _weight: Tensor, _bias: Tensor, _reverse: bool, keep: bool
) -> tuple[Tensor, Tensor]:
    steps, (rows, units) = gates.shape[0], state.shape
    return state.new_empty(steps + 1, rows, units), state.new_empty(steps if keep else 0, rows, 4, units)


@torch.library.custom_op(
    "algebranets::gru_scan_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor? grad_last, Tensor states, Tensor kept, Tensor weight, bool reverse) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def _gru_scan_backward(
    grad: Tensor, grad_last: Tensor | None, states: Tensor, kept: Tensor, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from algebranets.ops.gru_scan import launch  # needs triton

    return launch.gru_scan_backward(grad, grad_last, states, kept, weight, reverse)


@_gru_scan_backward.register_fake
def _(grad: Tensor, _grad_last: Tensor | None, states: Tensor, *_rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    steps, rows, units = grad.shape
    gates = states.new_empty(steps, rows, 3 * units)
    sums = states.new_empty(4, rows, units, dtype=torch.float32)
    return gates, torch.empty_like(gates), states.new_empty(rows, units), sums


def flops(gates: tuple[int, ...], _state: Any, weight: tuple[int, ...], *_: Any, **__: Any) -> int:
    """The FLOPs of a product by the recurrent weight for each step and row."""
    return 2 * gates[0] * gates[1] * weight[0] * weight[1]


def flops_backward(
    grad: tuple[int, ...], _last: Any, _states: Any, _kept: Any, weight: tuple[int, ...], *_: Any, **__: Any
) -> int:
    """The FLOPs of the backward scan, the same as forward. The weight's gradient is a separate product."""
    return flops(grad, None, weight)
