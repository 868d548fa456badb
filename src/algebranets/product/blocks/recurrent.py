"""Recurrent layers through blocks: torch's fused kernels on one row for each copy of each block.

Copies share weights but not biases. So biases enter as the weights of one-hot features that name the copy. These are
additional input features. But the GRU multiplies its hidden bias by the reset gate. For that bias they are additional
hidden units. The update gate of these units is exactly 1, so they keep their initial value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.ops.torch_rnn import torch_rnn
from algebranets.product.blocks.matrix import join, matrix, split
from algebranets.product.cells import MODES, Direction

#: The number of one-hot features is rounded up to a multiple of this, which tensor cores need of every size.
ALIGNMENT = 8

#: A gate's input so large that its sigmoid is exactly 1 in every precision.
OPEN = 64.0


class _Over(NamedTuple):
    """A block of an algebra, and the place of its first component in `Algebra.order`."""

    algebra: Algebra
    block: Block
    offset: int


def recurrent(
    mode: str,
    x: Tensor,
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer over a whole sequence. ``x`` is (time, batch, features), or packed with ``batch_sizes``.

    The tensors of ``state`` and the returned states are (direction, batch, features).
    """
    xs = split(x, algebra, dim=-1)
    states = [split(s, algebra, dim=-1) for s in state]
    outputs, finals = [], []
    offset = 0
    for b, block in enumerate(algebra.blocks):
        over = _Over(algebra, block, offset)
        output, final = _block(mode, xs[b], tuple(s[b] for s in states), directions, over, batch_sizes)
        outputs.append(output)
        finals.append(final)
        offset += block.dim
    return join(outputs, dim=-1), tuple(join(list(parts), dim=-1) for parts in zip(*finals, strict=True))


def _block(
    mode: str,
    x: Tensor,
    state: tuple[Tensor, ...],
    directions: list[Direction],
    over: _Over,
    batch_sizes: Tensor | None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The part of a recurrent layer that belongs to one block."""
    size, copies = over.block.size, over.block.num_copies
    batch = state[0].shape[1]
    rows = x.reshape(*x.shape[:-2], x.shape[-2] * copies, x.shape[-1] // copies)
    folded = [s.reshape(s.shape[0], batch * copies, s.shape[2] // copies) for s in state]
    has_hidden_bias = any(direction.b_hh is not None for direction in directions)
    has_bias = has_hidden_bias or any(direction.b_ih is not None for direction in directions)
    hot = _round_up(copies) if has_bias and copies > 1 else 0
    held = hot if mode == "GRU" and has_hidden_bias else 0
    if hot:
        rows = torch.cat([rows, _one_hot(rows.shape[:-1], copies, hot, rows)], dim=-1)
    if held:
        folded = [torch.cat([s, _one_hot(s.shape[:-1], copies, held, s)], dim=-1) for s in folded]
    weights = []
    for direction in directions:
        weights += _weights(mode, direction, over, has_bias, hot, held)
    folded = [s.contiguous() for s in folded]  # cuDNN needs contiguous states
    sizes = None if batch_sizes is None else batch_sizes * copies
    output, *final = torch_rnn(mode, rows, folded, weights, has_bias and not hot, sizes)
    output = output.unflatten(-1, (len(directions), -1))
    width = output.shape[-1] - held
    output = output[..., :width].unflatten(-1, (size, -1)).transpose(-3, -2)
    last = [s[..., : s.shape[-1] - held] for s in final]
    # Every size is given, since torch cannot infer one if the batch is empty.
    output = output.reshape(*x.shape[:-1], copies * len(directions) * width)
    return output, tuple(s.reshape(len(directions), batch, copies * s.shape[-1]) for s in last)


def _weights(mode: str, direction: Direction, over: _Over, has_bias: bool, hot: int, held: int) -> list[Tensor]:
    """torch's flat weights of one direction, with the copies' biases in the columns of the one-hot features."""
    gates, (algebra, block, offset) = MODES[mode].num_gates, over
    w_ih = matrix(direction.w_ih, algebra, block, stacks=gates)
    w_hh = matrix(direction.w_hh, algebra, block, stacks=gates)
    projection = [] if direction.w_hr is None else [matrix(direction.w_hr, algebra, block)]
    if not has_bias:
        return [w_ih, w_hh, *projection]

    def by_copy(bias: Tensor | None) -> Tensor:
        """The bias as (gate, copy, component and tuple). A missing one is zeros: torch's kernels take both or none."""
        if bias is None:
            return w_ih.new_zeros(gates, block.num_copies, w_ih.shape[0] // gates)
        own = bias.unflatten(0, (gates, algebra.dim, -1))[:, offset : offset + block.dim]
        return own.unflatten(1, (block.num_copies, block.size)).flatten(2)

    biases = [by_copy(direction.b_ih), by_copy(direction.b_hh)]
    if not hot:
        return [w_ih, w_hh, *(bias.flatten() for bias in biases), *projection]
    columns_ih, columns_hh = (F.pad(bias.mT, (0, hot - block.num_copies)) for bias in biases)
    if not held:
        columns = (columns_ih + columns_hh).flatten(0, 1)
        return [torch.cat([w_ih, columns], dim=1), w_hh, *projection]
    # The rows of the held units are zero except for an open update gate (torch's order is reset, update, new).
    wide_ih = torch.cat([w_ih.unflatten(0, (gates, -1)), columns_ih], dim=2)
    wide_hh = torch.cat([w_hh.unflatten(0, (gates, -1)), columns_hh], dim=2)
    rows_ih = wide_ih.new_zeros(gates, held, wide_ih.shape[2])
    rows_ih[1, :, w_ih.shape[1] :] = OPEN
    rows_hh = wide_hh.new_zeros(gates, held, wide_hh.shape[2])
    return [torch.cat([wide_ih, rows_ih], 1).flatten(0, 1), torch.cat([wide_hh, rows_hh], 1).flatten(0, 1)]


def _one_hot(rows: torch.Size, copies: int, width: int, like: Tensor) -> Tensor:
    """The copy of each row as a one-hot vector, (..., rows, width). Consecutive rows belong to consecutive copies."""
    eye = torch.eye(copies, width, dtype=like.dtype, device=like.device)
    return eye.repeat(rows[-1] // copies, 1).expand(*rows, width)


def _round_up(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT
