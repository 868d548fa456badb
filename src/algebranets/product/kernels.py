"""The lowering "kernels": GPU kernels where memory or launches limit the speed, and blocks otherwise.

Decoding kernels have no gradients. When gradients are recorded, the product goes through blocks instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.ops import device
from algebranets.ops.decode_linear import decode_linear
from algebranets.ops.decode_step import decode_step
from algebranets.ops.depthwise import depthwise
from algebranets.ops.device import cast_for_autocast, precision, records_gradients, sum_dtype
from algebranets.ops.gru_scan import gru_scan
from algebranets.product import auto, blocks, cells, parts
from algebranets.product.activation import ACTIVATIONS
from algebranets.product.blocks.matrix import join, matrix, split
from algebranets.product.cells import MODES, Direction
from algebranets.product.geometry import Geometry
from algebranets.product.layout import from_tuples, tuples, weight_tuples


def linear(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)``, by a kernel for few rows that reads compact weights once."""
    _check(x)
    if records_gradients(x, weight, bias):
        return ACTIVATIONS[activation](parts.linear(x, weight, bias, algebra, stacks))
    return decode(x, weight, bias, algebra, stacks, activation)


def decode(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
    scale: Tensor | None = None,
) -> Float[Tensor, "*batch out"]:
    """`decode_linear`. If `auto` does not let it change the basis, passes before and after it do."""
    if algebra.change is None or auto.changes_in_registers(x, weight, algebra):
        return decode_linear(x, weight, bias, algebra, stacks, activation, scale)
    y = decode_linear(parts.change_inputs(x, algebra), weight, None, algebra.stored, stacks, scale=scale)
    return ACTIVATIONS[activation](parts.change_outputs(y, algebra, bias, stacks))


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """A convolution. Depthwise ones in two axes use a kernel, which is fast for channels_last."""
    _check(x)
    way = _depthwise if auto.is_depthwise(x, weight, algebra, geometry) else blocks.conv
    return way(x, weight, bias, algebra, geometry)


def recurrent(
    mode: str,
    x: Float[Tensor, "*time_batch inp"],
    state: tuple[Tensor, ...],
    directions: list[Direction],
    algebra: Algebra,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A recurrent layer. Single steps, and long sequences of a GRU in half precision, use kernels."""
    _check(x)
    weights = [weight for direction in directions for weight in direction]
    if auto.is_single_step(x, directions, batch_sizes) and not records_gradients(x, *state, *weights):
        return _step(mode, x, state, directions[0], algebra)
    if auto.is_gru_scan(mode, x, directions, algebra, batch_sizes):
        return _scan(x, state[0], directions, algebra)
    return blocks.recurrent(mode, x, state, directions, algebra, batch_sizes)


def _check(x: Tensor) -> None:
    if not device.is_usable(x):
        raise ValueError(
            f"lowering 'kernels' needs triton and a CUDA device; got a tensor on {x.device}. "
            "Leave the choice to lowering='auto'."
        )


# Depthwise convolutions -----------------------------------------------------------------------------------------------


def _depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    x, weight = cast_for_autocast(x, weight)
    w = weight_tuples(weight, algebra)[:, :, 0].permute(2, 3, 0, 1)
    w = w.to(sum_dtype(w)).contiguous()
    place = [algebra.order.index(k) for k in range(algebra.dim)]
    terms = [n for i, j, k, c in algebra.terms for n in (i, place[j], place[k], c)]
    size, padding = _output(x.shape[2:], w.shape[:2], geometry)
    slides = [n for axis in zip(geometry.stride, padding, geometry.dilation, strict=True) for n in axis]
    y: Tensor = depthwise(x, w, terms, size, slides, False, _few_multiplies(algebra))
    return y if bias is None else y + bias.to(y.dtype)[:, None, None]


def _few_multiplies(algebra: Algebra) -> list[float] | None:
    """The algorithm for `depthwise`, if it has at most half of the multiplies of the table."""
    few = algebra.bilinear
    if 2 * few.rank > len(algebra.terms):
        return None
    inputs = [row[k] for row in few.inputs for k in algebra.order]
    outputs = [c for k in algebra.order for c in few.outputs[k]]
    return [c for row in few.weights for c in row] + inputs + outputs


def _output(size: Sequence[int], kernel: Sequence[int], geometry: Geometry) -> tuple[list[int], list[int]]:
    """The size of the output, and the padding before each axis. (torch's "same" may pad one more after it.)"""
    reach = [d * (k - 1) for d, k in zip(geometry.dilation, kernel, strict=True)]
    if isinstance(geometry.padding, str):
        before = [r // 2 if geometry.padding == "same" else 0 for r in reach]
        both = reach if geometry.padding == "same" else [0, 0]
    else:
        before, both = list(geometry.padding), [2 * p for p in geometry.padding]
    room = [n + b - r - 1 for n, b, r in zip(size, both, reach, strict=True)]
    if min(room) < 0:
        raise ValueError(
            f"the kernel must fit into the padded image: it spans {[r + 1 for r in reach]} places, dilation included, "
            f"and the image has {[n + b for n, b in zip(size, both, strict=True)]}; pad more or dilate less."
        )
    return [r // s + 1 for r, s in zip(room, geometry.stride, strict=True)], before


# Recurrent layers -----------------------------------------------------------------------------------------------------


def _step(
    mode: str, x: Tensor, state: tuple[Tensor, ...], direction: Direction, algebra: Algebra
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One step of a recurrent layer. ``x`` and the states are (1, batch, features)."""
    w_ih, w_hh, b_ih, b_hh, _ = direction
    before = [s[0] for s in state]
    if auto.steps_at_once(x[0], algebra):
        new = decode_step(mode, x[0], before, (w_ih, w_hh), (b_ih, b_hh), algebra)
    else:
        gates = MODES[mode].num_gates
        gates_x = decode(x[0], w_ih, b_ih, algebra, gates)
        gates_h = decode(before[0], w_hh, b_hh, algebra, gates)
        new = list(cells.step(mode, gates_x, gates_h, tuple(cast_for_autocast(*before))))
    return new[0][None], tuple(s[None] for s in new)


def _scan(x: Tensor, state: Tensor, directions: list[Direction], algebra: Algebra) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A GRU over a sequence. ``x`` is (time, batch, features), and ``state`` is (direction, batch, features)."""
    outputs, finals = [], []
    for d, direction in enumerate(directions):
        gates = _scan_gates(x, direction.w_ih, algebra)
        firsts, biases = split(state[d], algebra, dim=-1), _scan_biases(direction, state, algebra)
        found = [
            _scan_block(part, first, direction.w_hh, bias, (algebra, block), reverse=d == 1)
            for part, first, bias, block in zip(gates, firsts, biases, algebra.blocks, strict=True)
        ]
        outputs.append(join([output for output, _ in found], dim=-1))
        finals.append(join([final for _, final in found], dim=-1))
    if len(directions) == 1:
        return outputs[0], (finals[0][None],)
    both = from_tuples(torch.cat([tuples(output, algebra) for output in outputs], dim=-1), algebra)
    return both, (torch.stack(finals),)


def _scan_gates(x: Tensor, w_ih: Tensor, algebra: Algebra) -> list[Tensor]:
    """The gates' inputs for each block of the algebra, (time, batch, copy, gate and component and tuple)."""
    dtype = precision(x)
    if algebra.change is not None:
        gates = parts.linear(x, w_ih, None, algebra, stacks=3).unflatten(-1, (3, -1))
        own = zip(split(gates, algebra, dim=-1), algebra.blocks, strict=True)
        return [part.unflatten(-1, (block.num_copies, -1)).transpose(2, 3).flatten(3) for part, block in own]
    found = []
    for part, block in zip(split(x, algebra, dim=-1), algebra.blocks, strict=True):
        w = matrix(w_ih, algebra, block, stacks=3, dtype=dtype).to(dtype)
        found.append(F.linear(part.to(dtype).unflatten(-1, (block.num_copies, -1)), w))
    return found


def _scan_block(
    gates: Tensor, state: Tensor, w_hh: Tensor, bias: Tensor, over: tuple[Algebra, Block], reverse: bool
) -> tuple[Tensor, Tensor]:
    """The part of one direction that belongs to one block of the algebra. Each copy of the block is one more row."""
    (algebra, block), dtype = over, gates.dtype
    w = matrix(w_hh, algebra, block, stacks=3, dtype=dtype).to(dtype)
    num_steps, batch = gates.shape[:2]
    rows = gates.flatten(1, 2)
    output, final = gru_scan(rows, state.to(dtype).reshape(rows.shape[1], -1), w, bias, reverse)
    return output.reshape(num_steps, batch, -1), final.reshape(batch, -1)


def _scan_biases(direction: Direction, state: Tensor, algebra: Algebra) -> list[Tensor]:
    """For each block, the sums of r's and of z's biases and both of n's: (4, copy, component and tuple) in float32."""
    zeros = state.new_zeros(3, state.shape[-1], dtype=torch.float32)
    ih, hh = (zeros if bias is None else bias.float().unflatten(0, (3, -1)) for bias in direction[2:4])
    four = torch.stack([ih[0] + hh[0], ih[1] + hh[1], ih[2], hh[2]])
    parts = zip(algebra.blocks, split(four, algebra, dim=-1), strict=True)
    return [part.unflatten(1, (block.num_copies, -1)) for block, part in parts]
