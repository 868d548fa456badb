"""``decode_step``: one step of a recurrent cell, as in decoding. Inference only.

One launch for each block of the algebra computes the products W_ih x and W_hh h of all gates and the cell's equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.ops import decode_linear
from algebranets.ops.device import cast_for_autocast, is_frozen
from algebranets.ops.table import decode_algebra, encode_algebra


def decode_step(
    mode: str,
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    algebra: Algebra,
) -> list[Tensor]:
    """The next states of a recurrent cell, without gradients.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM".
        x: Planar features, (batch, features).
        state: The hidden state, and for the LSTM the cell state, (batch, features) each.
        weights: W_ih and W_hh as a layer stores them, one gate after the other.
        biases: b_ih and b_hh. Either may be None.
        algebra: The algebra whose product is used.
    """
    now, w_ih, w_hh, b_ih, b_hh, *before = cast_for_autocast(x, *weights, *biases, *state)
    frozen = is_frozen(w_ih) and is_frozen(w_hh)
    return _decode_step(now, before, [w_ih, w_hh], b_ih, b_hh, mode, encode_algebra(algebra), frozen)


@torch.library.custom_op(
    "algebranets::decode_step",
    mutates_args=(),
    schema="(Tensor x, Tensor[] state, Tensor[] weights, Tensor? b_ih, Tensor? b_hh, str mode, int[] algebra, "
    "bool frozen) -> Tensor[]",
)
def _decode_step(
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    mode: str,
    algebra: list[int],
    frozen: bool,
) -> list[Tensor]:
    from algebranets.ops.decode_step import launch  # needs triton

    return launch.decode_step(mode, x, state, weights, (b_ih, b_hh), decode_algebra(algebra), frozen)


@_decode_step.register_fake
def _(_x: Tensor, state: list[Tensor], *_rest: Any) -> list[Tensor]:
    return [torch.empty_like(s, memory_format=torch.contiguous_format) for s in state]


def flops(
    x: tuple[int, ...], _state: Any, weights: list[tuple[int, ...]], b_ih: Any, _b_hh: Any, _mode: str,
    algebra: list[int], *_: Any, **__: Any,
) -> int:  # fmt: skip
    """The FLOPs of two calls of ``decode_linear``, one for the input and one for the state."""
    return sum(decode_linear.flops(x, weight, b_ih, algebra) for weight in weights)
