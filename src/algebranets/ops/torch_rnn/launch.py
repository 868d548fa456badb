"""Calls of torch's fused recurrent kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import _VF, Tensor

_KERNELS: dict[str, Callable[..., Any]] = {
    "RNN_TANH": _VF.rnn_tanh,
    "RNN_RELU": _VF.rnn_relu,
    "GRU": _VF.gru,
    "LSTM": _VF.lstm,
}


def torch_rnn(
    mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], has_bias: bool, batch_sizes: Tensor | None
) -> list[Tensor]:
    """Call torch's own kernel, and return the output and the last states."""
    hx = tuple(state) if mode == "LSTM" else state[0]
    # One direction has two matrices, their biases and perhaps a projection. We count weights, because torch.jit.trace
    # turns sizes into tensors, and torch's kernel does not accept a tensor here.
    bidirectional = len(weights) > (5 if has_bias else 3)
    # cuDNN must know in the forward whether a backward follows. A trace fixes this flag, and may need gradients later.
    records = torch.is_grad_enabled() or torch.jit.is_tracing()
    options = (has_bias, 1, 0.0, records, bidirectional)
    arguments = (x, hx, weights, *options, False) if batch_sizes is None else (x, batch_sizes, hx, weights, *options)
    if not x.is_cuda:
        return list(_KERNELS[mode](*arguments))
    with warnings.catch_warnings():
        # cuDNN warns if the weights are not in one buffer. Ours are computed in each forward, and cuDNN copies them.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return list(_KERNELS[mode](*arguments))


def torch_rnn_backward(
    grads: list[Tensor], mode: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *options: Any
) -> list[Tensor]:
    """The gradients of ``x``, states and weights.

    A graph cannot keep what autograd recorded, so the forward is computed again.
    """
    leaves = [t.detach().requires_grad_() for t in (x, *state, *weights)]
    # Operators run below autograd, where nothing is recorded. This turns recording on again.
    recording = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False)
    with torch.enable_grad(), recording:
        outputs = torch_rnn(mode, *apart(leaves, len(state)), *options)
        found = torch.autograd.grad(outputs, leaves, grads)
    # An operator's outputs must not share memory, but cuDNN's gradients do.
    return [grad.clone(memory_format=torch.contiguous_format) for grad in found]


def apart(tensors: list[Tensor], num_states: int) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Split one list into ``x``, the states and the weights."""
    end = 1 + num_states
    return tensors[0], tensors[1:end], tensors[end:]
