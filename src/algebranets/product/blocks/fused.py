"""torch's fused recurrent kernels, and the same as one operator for torch.compile's graphs.

torch.compile would trace torch's kernels step by step: the graph would grow with the sequence and be made anew for each
length, and that of the CPU's LSTM has no backward. In its graphs the kernel is one operator of ours instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import _VF, Tensor

from algebranets.product.cells import MODES

_FUSED: dict[str, Callable[..., Any]] = {
    "RNN_TANH": _VF.rnn_tanh,
    "RNN_RELU": _VF.rnn_relu,
    "GRU": _VF.gru,
    "LSTM": _VF.lstm,
}


def run(
    mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], has_bias: bool, batch_sizes: Tensor | None
) -> list[Tensor]:
    """One layer over a whole sequence, in one or both directions: the output and the last states."""
    kernel = _run_in_a_graph if torch.compiler.is_dynamo_compiling() else _run
    return kernel(mode, x, state, weights, has_bias, batch_sizes)


def _run(
    mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], has_bias: bool, batch_sizes: Tensor | None
) -> list[Tensor]:
    """torch's own kernel."""
    hx = tuple(state) if mode == "LSTM" else state[0]
    # One direction has two matrices, their biases and perhaps a projection. Weights are counted because torch.jit.trace
    # makes tensors of sizes, which torch's kernel does not take.
    bidirectional = len(weights) > (5 if has_bias else 3)
    # cuDNN's backward needs to know in the forward. A trace keeps what it is told, and may record gradients later.
    records = torch.is_grad_enabled() or torch.jit.is_tracing()
    options = (has_bias, 1, 0.0, records, bidirectional)
    arguments = (x, hx, weights, *options, False) if batch_sizes is None else (x, batch_sizes, hx, weights, *options)
    if not x.is_cuda:
        return list(_FUSED[mode](*arguments))
    with warnings.catch_warnings():
        # cuDNN wants all weights in one buffer and says so; ours are made anew in each forward, and it copies them.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return list(_FUSED[mode](*arguments))


def _run_in_a_graph(
    mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], has_bias: bool, batch_sizes: Tensor | None
) -> list[Tensor]:
    """`_run` in a graph. Autocast does not know our operator, so the casts to its precision are made here."""
    if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, state, weights = x.to(dtype), [s.to(dtype) for s in state], [w.to(dtype) for w in weights]
    return _OPERATOR(mode, x, state, weights, has_bias, batch_sizes)


def _gradients(
    grads: list[Tensor], mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *options: Any
) -> list[Tensor]:
    """Of ``x``, states and weights. A graph cannot keep what autograd recorded of `_run`, so that is run once more."""
    leaves = [t.detach().requires_grad_() for t in (x, *state, *weights)]
    # Operators run below autograd, where nothing is recorded; this brings it back.
    recording = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False)
    with torch.enable_grad(), recording:
        outputs = _run(mode, *_apart(mode, leaves), *options)
        found = torch.autograd.grad(outputs, leaves, grads)
    # An operator's outputs must not share memory, and cuDNN's gradients do.
    return [grad.clone(memory_format=torch.contiguous_format) for grad in found]


def _run_shapes(_mode: str, x: Tensor, state: list[Tensor], *_rest: Any) -> list[Tensor]:
    num_directions, _, features = state[0].shape
    return [x.new_empty(*x.shape[:-1], num_directions * features), *(s.new_empty(s.shape) for s in state)]


def _gradients_shapes(
    _grads: list[Tensor], _mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *_rest: Any
) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in (x, *state, *weights)]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:  # noqa: ARG001, passed by name
    ctx.mode, x, state, weights, ctx.has_bias, batch_sizes = inputs
    ctx.save_for_backward(batch_sizes, x, *state, *weights)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    batch_sizes, *tensors = ctx.saved_tensors
    found = _BACKWARD(grads, ctx.mode, *_apart(ctx.mode, tensors), ctx.has_bias, batch_sizes)
    return None, *_apart(ctx.mode, found), None, None


def _apart(mode: str, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """``x``, states and weights out of one list."""
    end = 1 + MODES[mode].num_states
    return tensors[0], tensors[1:end], tensors[end:]


_ARGUMENTS = "str mode, Tensor x, Tensor[] state, Tensor[] weights, bool has_bias, Tensor? batch_sizes"
_OPERATOR = torch.library.custom_op(
    "algebranets::recurrent", _run, mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor[]"
)
_BACKWARD = torch.library.custom_op(
    "algebranets::recurrent_backward", _gradients, mutates_args=(), schema=f"(Tensor[] grads, {_ARGUMENTS}) -> Tensor[]"
)
_OPERATOR.register_fake(_run_shapes)
_BACKWARD.register_fake(_gradients_shapes)
_OPERATOR.register_autograd(_backward, setup_context=_remember)
