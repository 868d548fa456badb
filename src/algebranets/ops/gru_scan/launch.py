"""Launches of ``gru_scan``, with at most as many programs as run at the same time."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.ops.counters import counters
from algebranets.ops.device import ceil_div, next_power_of_2
from algebranets.ops.gru_scan.kernel import gru_scan_bwd_kernel, gru_scan_fwd_kernel
from algebranets.ops.kernel import is_interpreted

#: The hidden units of a program, and the choices for its rows. Tensor cores need at least 16.
UNITS, ROWS = 16, (16, 32)
#: The warps of a program, forward and backward. The backward loads three times as much, with all loads in flight.
FORWARD_WARPS, BACKWARD_WARPS = 8, 16
#: The distance between counters of arrived programs, in numbers, so that each has a cache line of its own.
APART = 32


class Tile(NamedTuple):
    """The rows and hidden units of a program."""

    rows: int
    units: int


def choose(num_rows: int, num_units: int, device: torch.device) -> Tile | None:
    """The tile with which all programs run at once, one on each multiprocessor, or None if no tile allows it."""
    if device.type != "cuda":  # the interpreter runs programs one after the other, so one program has all units
        return Tile(ROWS[0], next_power_of_2(num_units))
    properties = torch.cuda.get_device_properties(device)
    processors, memory = properties.multi_processor_count, properties.shared_memory_per_block_optin
    for rows in ROWS:
        programs = ceil_div(num_units, UNITS) * ceil_div(num_rows, rows)
        # The weights of three gates, and what the backward loads: all gates at once with the fewest rows, else one.
        bytes_a_unit = 2 * (3 * UNITS + (3 * rows if rows == ROWS[0] else rows))
        if programs <= processors and bytes_a_unit * next_power_of_2(num_units) <= memory:
            return Tile(rows, UNITS)
    return None


def gru_scan(
    gates: Float[Tensor, "time row gates"],
    state: Float[Tensor, "row unit"],
    weight: Float[Tensor, "gates unit"],
    bias: Float[Tensor, "four copy unit"],
    reverse: bool = False,
    keep: bool = False,
    tile: Tile | None = None,
) -> tuple[Float[Tensor, "time1 row unit"], Float[Tensor, "kept row four unit"]]:
    """All states including the first and, if ``keep``, the values for `gru_scan_backward`: r, z, n and W_hn h + b_hn.

    ``gates`` are W_ih x, without biases. ``bias`` has the biases of r and z, then b_ih of n and b_hh of n.
    """
    steps, (num_rows, num_units) = gates.shape[0], state.shape
    states = state.new_empty(steps + 1, num_rows, num_units)
    kept = state.new_empty(steps if keep else 0, num_rows, 4, num_units)
    first = -1 if reverse else 0
    states[first] = state
    if steps:
        _launch(
            gru_scan_fwd_kernel, state, tile, FORWARD_WARPS,
            gates.contiguous()[first], states[first], kept[first] if keep else None, weight.contiguous(),
            bias.contiguous(), steps, num_rows, num_units, bias.shape[1], -1 if reverse else 1,
        )  # fmt: skip
    return states, kept


def gru_scan_backward(
    grad: Float[Tensor, "time row unit"],
    grad_last: Float[Tensor, "row unit"] | None,
    states: Float[Tensor, "time1 row unit"],
    kept: Float[Tensor, "time row four unit"],
    weight: Float[Tensor, "gates unit"],
    reverse: bool = False,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of W_ih x, of W_hh h and of the first state, and those of ``bias`` for each row.

    ``grad`` is the gradient of all states but the first. ``grad_last`` is an additional gradient of the last state.
    """
    steps, num_rows, num_units = grad.shape
    grad_x = states.new_empty(steps, num_rows, 3 * num_units)
    grad_h, grad_state = torch.empty_like(grad_x), torch.zeros_like(states[0])
    grad_bias = states.new_zeros(4, num_rows, num_units, dtype=torch.float32)
    before = states[1:] if reverse else states[:-1]
    if steps:
        last = 0 if reverse else -1
        _launch(
            gru_scan_bwd_kernel, grad_state, tile, BACKWARD_WARPS,
            grad.contiguous()[last], None if grad_last is None else grad_last.contiguous(), before[last], kept[last],
            weight.contiguous(), grad_x[last], grad_h[last], grad_state, grad_bias, steps, num_rows, num_units,
            1 if reverse else -1,
        )  # fmt: skip
    return grad_x, grad_h, grad_state, grad_bias


def _launch(kernel: Any, state: Tensor, tile: Tile | None, num_warps: int, *arguments: Any) -> None:
    num_rows, num_units = state.shape
    tile = tile or choose(num_rows, num_units, state.device)
    assert tile is not None, f"states {tuple(state.shape)} do not fit; `gru_scan.fits` says which do"
    programs, groups = ceil_div(num_units, tile.units), ceil_div(num_rows, tile.rows)
    arrived = counters(state.device, groups * APART)
    # Each warp sums over its chunk of the units. Tensor cores need at least 16 units in a chunk.
    width = max(16, next_power_of_2(num_units))
    chunks = min(num_warps, width // 16)
    options = {} if is_interpreted() else {"launch_cooperative_grid": True}
    with torch.cuda.device_of(state):
        kernel[programs, groups](
            *arguments, arrived, programs, tile.rows, tile.units, chunks, width // chunks, APART,
            num_warps=num_warps, **options,
        )  # fmt: skip
