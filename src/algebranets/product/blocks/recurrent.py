"""Recurrent layers through blocks: torch's fused kernels on one row for each copy of each block.

Copies share a row's weights but not its biases, so those enter as weights of one-hot features that name the copy: as
further input features and, for the GRU's hidden bias (which the reset gate multiplies), as further hidden units whose
update gate is held open, so that they keep their first value exactly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import _VF, Tensor

from algebranets.algebra import Algebra, Block
from algebranets.product.blocks.matrix import join, matrix, split
from algebranets.product.cells import MODES, Direction

_FUSED: dict[str, Callable[..., Any]] = {
    "RNN_TANH": _VF.rnn_tanh,
    "RNN_RELU": _VF.rnn_relu,
    "GRU": _VF.gru,
    "LSTM": _VF.lstm,
}

#: The one-hot features are padded to a multiple of this, which tensor cores want of every size.
ALIGNMENT = 8

#: A gate's input so large that its sigmoid is exactly 1 in every precision.
OPEN = 64.0


def recurrent(
    mode: str,
    x: Tensor,
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer over a whole sequence: ``x`` is (time, batch, features), or packed with ``batch_sizes``.

    ``state`` tensors are (direction, batch, features); so are those returned.
    """
    xs = split(x, algebra, dim=-1)
    states = [split(s, algebra, dim=-1) for s in state]
    outputs, finals = [], []
    offset = 0
    for b, block in enumerate(algebra.blocks):
        output, final = _block(
            mode, xs[b], tuple(s[b] for s in states), directions, algebra, block, offset, batch_sizes
        )
        outputs.append(output)
        finals.append(final)
        offset += block.dim
    return join(outputs, dim=-1), tuple(join(list(parts), dim=-1) for parts in zip(*finals, strict=True))


def _block(
    mode: str,
    x: Tensor,
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    block: Block,
    offset: int,
    batch_sizes: Tensor | None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The part of a recurrent layer that belongs to one block, whose components start at ``offset``."""
    size, copies = block.size, block.num_copies
    batch = state[0].shape[1]
    rows = x.reshape(*x.shape[:-2], x.shape[-2] * copies, x.shape[-1] // copies)
    folded = [s.reshape(s.shape[0], batch * copies, s.shape[2] // copies) for s in state]
    has_bias = directions[0].b_ih is not None
    hot = _round_up(copies) if has_bias and copies > 1 else 0
    held = hot if mode == "GRU" else 0
    if hot:
        rows = torch.cat([rows, _one_hot(rows.shape[:-1], copies, hot, rows)], dim=-1)
    if held:
        folded = [torch.cat([s, _one_hot(s.shape[:-1], copies, held, s)], dim=-1) for s in folded]
    weights = []
    for direction in directions:
        weights += _weights(mode, direction, algebra, block, offset, hot)
    folded = [s.contiguous() for s in folded]  # cuDNN wants that
    hx = tuple(folded) if mode == "LSTM" else folded[0]
    options = (has_bias and not hot, 1, 0.0, torch.is_grad_enabled(), len(directions) == 2)
    arguments: tuple[Any, ...] = (rows, hx, weights, *options, False)
    if batch_sizes is not None:
        arguments = (rows, batch_sizes * copies, hx, weights, *options)
    output, *final = (_run_outside_graphs if torch.compiler.is_dynamo_compiling() else _run)(mode, arguments)
    output = output.unflatten(-1, (len(directions), -1))
    width = output.shape[-1] - held
    output = output[..., :width].unflatten(-1, (size, -1)).transpose(-3, -2)
    output = output.reshape(*x.shape[:-1], -1)
    return output, tuple(s[..., : s.shape[-1] - held].reshape(s.shape[0], batch, -1) for s in final)


def _weights(mode: str, direction: Direction, algebra: Algebra, block: Block, offset: int, hot: int) -> list[Tensor]:
    """torch's flat weights of one direction, with the copies' biases in the columns of the one-hot features."""
    gates = MODES[mode].num_gates
    w_ih = matrix(direction.w_ih, algebra, block, stacks=gates)
    w_hh = matrix(direction.w_hh, algebra, block, stacks=gates)
    projection = [] if direction.w_hr is None else [matrix(direction.w_hr, algebra, block)]
    if direction.b_ih is None or direction.b_hh is None:
        return [w_ih, w_hh, *projection]
    biases = [
        bias.unflatten(0, (gates, algebra.dim, -1))[:, offset : offset + block.dim]
        .unflatten(1, (block.num_copies, block.size))
        .flatten(2)  # (gate, copy, component and tuple)
        for bias in (direction.b_ih, direction.b_hh)
    ]
    if not hot:
        return [w_ih, w_hh, *(bias.flatten() for bias in biases), *projection]
    columns_ih, columns_hh = (F.pad(bias.mT, (0, hot - block.num_copies)) for bias in biases)
    if mode != "GRU":
        columns = (columns_ih + columns_hh).flatten(0, 1)
        return [torch.cat([w_ih, columns], dim=1), w_hh, *projection]
    # Rows of the held units: nothing but an open update gate (torch's order is reset, update, new).
    wide_ih = torch.cat([w_ih.unflatten(0, (gates, -1)), columns_ih], dim=2)
    wide_hh = torch.cat([w_hh.unflatten(0, (gates, -1)), columns_hh], dim=2)
    rows_ih = wide_ih.new_zeros(gates, hot, wide_ih.shape[2])
    rows_ih[1, :, w_ih.shape[1] :] = OPEN
    rows_hh = wide_hh.new_zeros(gates, hot, wide_hh.shape[2])
    return [torch.cat([wide_ih, rows_ih], 1).flatten(0, 1), torch.cat([wide_hh, rows_hh], 1).flatten(0, 1)]


def _run(mode: str, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """torch's fused kernel."""
    if not arguments[0].is_cuda:
        return _FUSED[mode](*arguments)
    with warnings.catch_warnings():
        # cuDNN wants all weights in one buffer and says so; ours are made anew in each forward, and it copies them.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return _FUSED[mode](*arguments)


def _run_outside_graphs(mode: str, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The same, as a break in the graph that torch.compile traces: it does not take torch's own layers either."""
    return torch.compiler.disable(_run)(mode, arguments)


def _one_hot(rows: torch.Size, copies: int, width: int, like: Tensor) -> Tensor:
    """For each row, the copy it belongs to: (..., rows, width), rows going through the copies in turn."""
    eye = torch.eye(copies, width, dtype=like.dtype, device=like.device)
    return eye.repeat(rows[-1] // copies, 1).expand(*rows, width)


def _round_up(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT
