"""``torch_rnn``: torch's fused recurrent layers as one operator, for torch.compile's graphs.

torch.compile would trace torch's kernels step by step. The graph would grow with the sequence and be compiled again for
each length, and the graph of the CPU's LSTM has no backward. So in compiled graphs the kernel is one operator of ours.
Outside of graphs, torch's kernel is called directly.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from algebranets.ops.device import cast_for_autocast
from algebranets.ops.torch_rnn import launch


def torch_rnn(
    mode: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    has_bias: bool = True,
    batch_sizes: Tensor | None = None,
) -> list[Tensor]:
    """The output and the last states of a recurrent layer over a whole sequence, in one or both directions.

    Args:
        mode: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM".
        x: (time, batch, features), or packed, (steps, features), with ``batch_sizes``.
        state: The first states, (direction, batch, features) each. The LSTM has two.
        weights: torch's flat weights of each direction: W_ih, W_hh, both biases if any, and the projection if any.
        has_bias: Whether biases are among the weights.
        batch_sizes: torch's batch sizes of a packed sequence, or None.
    """
    if not torch.compiler.is_dynamo_compiling():
        return launch.torch_rnn(mode, x, state, weights, has_bias, batch_sizes)
    x, *rest = cast_for_autocast(x, *state, *weights)
    return _torch_rnn(mode, x, rest[: len(state)], rest[len(state) :], has_bias, batch_sizes)


_ARGUMENTS = "str mode, Tensor x, Tensor[] state, Tensor[] weights, bool has_bias, Tensor? batch_sizes"


@torch.library.custom_op("algebranets::torch_rnn", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor[]")
def _torch_rnn(
    mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], has_bias: bool, batch_sizes: Tensor | None
) -> list[Tensor]:
    return launch.torch_rnn(mode, x, state, weights, has_bias, batch_sizes)


@_torch_rnn.register_fake
def _(_mode: str, x: Tensor, state: list[Tensor], *_rest: Any) -> list[Tensor]:
    num_directions, _, features = state[0].shape
    return [x.new_empty(*x.shape[:-1], num_directions * features), *(s.new_empty(s.shape) for s in state)]


@torch.library.custom_op(
    "algebranets::torch_rnn_backward", mutates_args=(), schema=f"(Tensor[] grads, {_ARGUMENTS}) -> Tensor[]"
)
def _torch_rnn_backward(
    grads: list[Tensor], mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *options: Any
) -> list[Tensor]:
    return launch.torch_rnn_backward(grads, mode, x, state, weights, *options)


@_torch_rnn_backward.register_fake
def _(
    _grads: list[Tensor], _mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *_rest: Any
) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in (x, *state, *weights)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:  # noqa: ARG001, passed by name
    ctx.mode, x, state, weights, ctx.has_bias, batch_sizes = inputs
    ctx.num_states = len(state)
    ctx.save_for_backward(batch_sizes, x, *state, *weights)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    batch_sizes, *tensors = ctx.saved_tensors
    x, state, weights = launch.apart(tensors, ctx.num_states)
    found = _torch_rnn_backward(grads, ctx.mode, x, state, weights, ctx.has_bias, batch_sizes)
    return None, *launch.apart(found, ctx.num_states), None, None


_torch_rnn.register_autograd(_backward, setup_context=_save)


def flops(_mode: str, x: tuple[int, ...], _state: Any, weights: list[tuple[int, ...]], *_: Any, **__: Any) -> int:
    """The FLOPs of every matrix for each row of the input, (time, batch, features) or packed, (rows, features)."""
    return 2 * prod(x[:-1]) * sum(prod(weight) for weight in weights if len(weight) == 2)


def flops_backward(_grads: Any, *arguments: Any, **options: Any) -> int:
    """The FLOPs of a second forward and of the gradients of the input and the weights."""
    return 3 * flops(*arguments, **options)
