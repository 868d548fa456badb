"""GRUs over whole sequences: the recurrence of each block of the algebra is one launch, forward, and one backward.

The products W_ih x of all times are one ordinary product before, and the gradient of W_hh is one behind. Two operators,
``algebranets::scan`` and ``algebranets::scan_backward``; of gradients there are no further ones, as with cuDNN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.product import kernels
from algebranets.product.blocks.matrix import join, matrix, split
from algebranets.product.cells import Direction
from algebranets.product.combine import precision
from algebranets.product.layout import from_tuples, num_tuples, tuples

#: Steps from which on a sequence is worth it.
MANY_STEPS = 16
#: Hidden units of a program, and rows: tensor cores want 16 of them.
UNITS, ROWS = 16, (16, 32)


class Tile(NamedTuple):
    """What a program has."""

    rows: int
    units: int


def applies(
    mode: str, x: Tensor, directions: list[Direction], algebra: Algebra, batch_sizes: Tensor | None = None
) -> bool:
    """Whether `recurrent` can take it, and pays: a GRU, many steps in half precision, not packed, states that fit."""
    pays = (
        mode == "GRU"
        and kernels.usable(x)
        and algebra.dim > 1
        and batch_sizes is None
        and x.dim() == 3
        and all(direction.w_hr is None for direction in directions)
        and precision(x).itemsize == 2
        and x.shape[0] >= MANY_STEPS
        and x.shape[1] > 0
    )
    if not pays:
        return False
    num_hidden = num_tuples(directions[0].w_hh, algebra)[1]
    shapes = [(x.shape[1] * block.num_copies, block.size * num_hidden) for block in algebra.blocks]
    return all(choose(num_rows, num_units, x.device) is not None for num_rows, num_units in shapes)


def recurrent(
    x: Tensor, state: Tensor, directions: list[Direction], algebra: Algebra
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`product.recurrent` for a GRU: ``x`` is (time, batch, features), ``state`` (direction, batch, features)."""
    outputs, finals = [], []
    for d, direction in enumerate(directions):
        parts = split(x, algebra, dim=-1), split(state[d], algebra, dim=-1)
        biases = _biases(direction, state, algebra)
        found = [
            _block(part, first, direction, bias, algebra, block, reverse=d == 1)
            for part, first, bias, block in zip(*parts, biases, algebra.blocks, strict=True)
        ]
        outputs.append(join([output for output, _ in found], dim=-1))
        finals.append(join([final for _, final in found], dim=-1))
    if len(directions) == 1:
        return outputs[0], (finals[0][None],)
    both = from_tuples(torch.cat([tuples(output, algebra) for output in outputs], dim=-1), algebra)
    return both, (torch.stack(finals),)


def _block(
    x: Tensor, state: Tensor, direction: Direction, bias: Tensor, algebra: Algebra, block: Block, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The part of one direction that belongs to one block: one row for each of its copies."""
    dtype, copies = precision(x), block.num_copies
    w_ih, w_hh = (matrix(w, algebra, block, stacks=3, dtype=dtype).to(dtype) for w in direction[:2])
    rows = x.to(dtype).reshape(x.shape[0], x.shape[1] * copies, x.shape[2] // copies)
    first = state.to(dtype).reshape(rows.shape[1], -1)
    recorded = torch.is_grad_enabled() and any(t.requires_grad for t in (rows, first, w_ih, w_hh, bias))
    output, final = _Scan.apply(F.linear(rows, w_ih), first, w_hh, bias, reverse, recorded)
    return output.reshape(*x.shape[:2], -1), final.reshape(x.shape[1], -1)


def _biases(direction: Direction, state: Tensor, algebra: Algebra) -> list[Tensor]:
    """For each block (4, copy, component and tuple) in float32: r's, z's, and both of n's, which r stands between."""
    zeros = state.new_zeros(3, state.shape[-1], dtype=torch.float32)
    ih, hh = (zeros if bias is None else bias.float().unflatten(0, (3, -1)) for bias in direction[2:4])
    four = torch.stack([ih[0] + hh[0], ih[1] + hh[1], ih[2], hh[2]])
    parts = zip(algebra.blocks, split(four, algebra, dim=-1), strict=True)
    return [part.unflatten(1, (block.num_copies, -1)) for block, part in parts]


class _Scan(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor, reverse: bool, recorded: bool
    ) -> tuple[Tensor, Tensor]:
        states, kept = _OPERATOR(gates, state, weight, bias, reverse, recorded)
        ctx.save_for_backward(states, kept, weight)
        ctx.num_copies, ctx.reverse = bias.shape[1], reverse
        ctx.set_materialize_grads(False)
        return (states[:-1], states[0].clone()) if reverse else (states[1:], states[-1].clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_final: Tensor | None) -> tuple[Any, ...]:
        states, kept, weight = ctx.saved_tensors
        before = states[1:] if ctx.reverse else states[:-1]
        grad = torch.zeros_like(before) if grad is None else grad
        grad_x, grad_h, grad_state, sums = _BACKWARD(grad, grad_final, states, kept, weight, ctx.reverse)
        grad_weight = grad_h.flatten(0, 1).mT @ before.flatten(0, 1) if ctx.needs_input_grad[2] else None
        grad_bias = sums.unflatten(1, (-1, ctx.num_copies)).sum(1)
        return grad_x, grad_state, grad_weight, grad_bias, None, None


def choose(num_rows: int, num_units: int, device: torch.device) -> Tile | None:
    """The tile with which all programs run at once, one on each multiprocessor; None if there is none."""
    if device.type != "cuda":  # the interpreter runs one program after the other, so one has all units
        return Tile(ROWS[0], _padded(num_units))
    properties = torch.cuda.get_device_properties(device)
    processors, memory = properties.multi_processor_count, properties.shared_memory_per_block_optin
    for rows in ROWS:
        programs = -(-num_units // UNITS) * -(-num_rows // rows)
        # Weights of three gates, and what is loaded in a step: backward, all gates of the fewest rows at once.
        bytes_a_unit = 2 * (3 * UNITS + (3 * rows if rows == ROWS[0] else rows))
        if programs <= processors and bytes_a_unit * _padded(num_units) <= memory:
            return Tile(rows, UNITS)
    return None


def _padded(num_units: int) -> int:
    return 1 << (num_units - 1).bit_length()


def _run(
    gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor, reverse: bool, recorded: bool
) -> tuple[Tensor, Tensor]:
    from algebranets.product.kernels.jit import scan  # needs triton

    return scan.forward(gates, state, weight, bias, reverse, recorded, _tile(state))


def _shapes(
    gates: Tensor, state: Tensor, _weight: Tensor, _bias: Tensor, _reverse: bool, recorded: bool
) -> tuple[Tensor, Tensor]:
    steps, (rows, units) = gates.shape[0], state.shape
    return state.new_empty(steps + 1, rows, units), state.new_empty(steps if recorded else 0, rows, 4, units)


def _gradients(
    grad: Tensor, grad_final: Tensor | None, states: Tensor, kept: Tensor, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from algebranets.product.kernels.jit import scan  # needs triton

    return scan.backward(grad, grad_final, states, kept, weight, reverse, _tile(states[0]))


def _tile(state: Tensor) -> Tile:
    num_rows, num_units = state.shape
    tile = choose(num_rows, num_units, state.device)
    assert tile is not None, f"states {tuple(state.shape)} do not fit; `applies` says which do"
    return tile


def _gradients_shapes(
    grad: Tensor, _grad_final: Tensor | None, states: Tensor, *_rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    steps, rows, units = grad.shape
    gates = states.new_empty(steps, rows, 3 * units)
    sums = states.new_empty(4, rows, units, dtype=torch.float32)
    return gates, torch.empty_like(gates), states.new_empty(rows, units), sums


_OPERATOR = torch.library.custom_op(
    "algebranets::scan",
    _run,
    mutates_args=(),
    schema="(Tensor gates, Tensor state, Tensor weight, Tensor bias, bool reverse, bool recorded) -> (Tensor, Tensor)",
)
_OPERATOR.register_fake(_shapes)
_BACKWARD = torch.library.custom_op(
    "algebranets::scan_backward",
    _gradients,
    mutates_args=(),
    schema="(Tensor grad, Tensor? grad_final, Tensor states, Tensor kept, Tensor weight, bool reverse) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
_BACKWARD.register_fake(_gradients_shapes)
