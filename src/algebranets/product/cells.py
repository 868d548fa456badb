"""The equations of torch.nn's recurrent cells, and the parameters of one direction of a recurrent layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Direction(NamedTuple):
    """The parameters of one direction of one layer. Gates are stacked along the first axis, in torch's order.

    Each bias may be None. ``w_hr`` is the LSTM's projection, or None.
    """

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None
    b_hh: Tensor | None
    w_hr: Tensor | None = None


@dataclass(frozen=True)
class Mode:
    """The number of gates and the number of states of a recurrent cell."""

    num_gates: int
    num_states: int


MODES = {"RNN_TANH": Mode(1, 1), "RNN_RELU": Mode(1, 1), "GRU": Mode(3, 1), "LSTM": Mode(4, 2)}


def step(mode: str, gates_x: Tensor, gates_h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next state of a cell, from ``gates_x`` = W_ih x + b_ih and ``gates_h`` = W_hh h + b_hh."""
    if mode == "GRU":
        (xr, xz, xn), (hr, hz, hn) = gates_x.chunk(3, -1), gates_h.chunk(3, -1)
        z = torch.sigmoid(xz + hz)
        n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        return ((1 - z) * n + z * state[0],)
    if mode == "LSTM":
        i, f, g, o = (gates_x + gates_h).chunk(4, -1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    activation = {"RNN_TANH": torch.tanh, "RNN_RELU": torch.relu}[mode]
    return (activation(gates_x + gates_h),)
