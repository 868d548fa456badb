"""Formulas for torch's own FLOP counter, where it has none: so that it sees every lowering right.

Our layers run as matrix products, convolutions and attention, which it knows, except for fused recurrent kernels
(cuDNN's, the CPU's, and the operator of ours that stands for them in compiled graphs) and, in older versions, the CPU's
fused attention.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

from algebranets.product.blocks import fused  # noqa: F401  # defines the operators

Shape = tuple[int, ...]


def cudnn_rnn(input_shape: Shape, weight_shapes: list[Shape], *_: Any, **__: Any) -> int:
    """Every matrix once for each row of the input, which is (time, batch, features) or packed, (rows, features)."""
    return 2 * prod(input_shape[:-1]) * sum(prod(shape) for shape in weight_shapes if len(shape) == 2)


def cudnn_rnn_backward(*arguments: Any, **options: Any) -> int:
    """Gradients of the input and of the weights, each as much as the forward."""
    return 2 * cudnn_rnn(*arguments, **options)


def mkldnn_rnn(input_shape: Shape, *rest: Any, **__: Any) -> int:
    """One layer and direction on a CPU: two matrices, then what stands for the biases."""
    return 2 * prod(input_shape[:-1]) * sum(prod(shape) for shape in rest[:2])


def mkldnn_rnn_backward(*arguments: Any, **options: Any) -> int:
    """As `cudnn_rnn_backward`."""
    return 2 * mkldnn_rnn(*arguments, **options)


def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Products of queries and keys, and of weights and values."""
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def attention_backward(_grad: Shape, *arguments: Any, **__: Any) -> int:
    """The scores once more, then gradients of scores, values, queries and keys."""
    query, key, value = arguments[:3]
    return 2 * attention(query, key, value) + 2 * prod(query[:-1]) * key[-2] * query[-1]


def recurrent(
    _mode: str, input_shape: Shape, _state: list[Shape], weight_shapes: list[Shape], *_: Any, **__: Any
) -> int:
    """As `cudnn_rnn`."""
    return cudnn_rnn(input_shape, weight_shapes)


def recurrent_backward(_grads: list[Shape], *arguments: Any, **options: Any) -> int:
    """The forward once more, then gradients of the input and of the weights."""
    return 3 * recurrent(*arguments, **options)


FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._cudnn_rnn: cudnn_rnn,
    torch.ops.aten._cudnn_rnn_backward: cudnn_rnn_backward,
    torch.ops.aten.mkldnn_rnn_layer: mkldnn_rnn,
    torch.ops.aten.mkldnn_rnn_layer_backward: mkldnn_rnn_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    torch.ops.algebranets.recurrent: recurrent,
    torch.ops.algebranets.recurrent_backward: recurrent_backward,
}


def register() -> None:
    """Give torch's counter these formulas, wherever it has none of its own."""
    for op, formula in FORMULAS.items():
        if op not in flop_registry:
            register_flop_formula(op)(formula)
