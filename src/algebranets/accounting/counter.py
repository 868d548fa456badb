"""Formulas for torch's own FLOP counter, where it has none: so that it sees every lowering right.

Our layers run as matrix products, convolutions and attention, which it knows, except for fused recurrent kernels
(cuDNN's, the CPU's, and the operator of ours that stands for them in compiled graphs), the Triton kernels and, in older
versions, the CPU's fused attention. A kernel multiplies what the algebra's table says; combinations of components are
additions and count nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

from algebranets.nn import decoding, windowed  # noqa: F401  # these define the operators
from algebranets.product.blocks import fused  # noqa: F401
from algebranets.product.kernels import lowering  # noqa: F401

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


def decode_linear(x: Shape, weight: Shape, _bias: Shape | None, algebra: list[int], *_: Any, **__: Any) -> int:
    """A weight has a number for each component, output and input tuple, and an algebra four for each of its terms."""
    dim, *terms = algebra
    return 2 * x[0] * (prod(weight) // dim) * (len(terms) // 4)


def sparse_linear(
    x: Shape,
    _starts: Shape,
    _indices: Shape,
    values: Shape,
    _maps: Shape,
    _bias: Shape | None,
    algebra: list[int],
    *_: Any,
    **__: Any,
) -> int:
    """As `decode_linear`; ``values`` are (tuple, component)."""
    return 2 * x[0] * values[0] * (len(algebra) // 4)


def decode_step(
    x: Shape, _state: list[Shape], weights: list[Shape], b_ih: Shape | None, _b_hh: Shape | None, _mode: str,
    algebra: list[int], *_: Any, **__: Any,
) -> int:  # fmt: skip
    """As `decode_linear`, of the input and of the state."""
    return sum(decode_linear(x, weight, b_ih, algebra) for weight in weights)


def scan(gates: Shape, _state: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """In each step and row, the product by the recurrent weight."""
    return 2 * gates[0] * gates[1] * prod(weight)


def scan_backward(
    grad: Shape, _final: Shape | None, _states: Shape, _kept: Shape, weight: Shape, *_: Any, **__: Any
) -> int:
    """As `scan`; gradients of the weight are a product behind it."""
    return scan(grad, _states, weight)


def depthwise(x: Shape, weight: Shape, terms: list[int], size: list[int], adjoint: bool, *_: Any, **__: Any) -> int:
    """Every tap at every place of the convolution's output, as torch counts padding in; ``x`` is that if adjoint."""
    return _taps(x[0], x[2:] if adjoint else size, weight, terms)


def depthwise_sums(grad: Shape, _x: Shape, terms: list[int], kernel: list[int], *_: Any, **__: Any) -> int:
    """As `depthwise`."""
    return _taps(grad[0], grad[2:], kernel, terms)


def _taps(batch: int, places: Sequence[int], weight: Sequence[int], terms: list[int]) -> int:
    """A depthwise weight is (tap row, tap column, component, tuple)."""
    height, width, _, num_tuples = weight
    return 2 * batch * prod(places) * height * width * num_tuples * (len(terms) // 4)


def attend(_query: Shape, _key: Shape, _value: Shape, _u: Shape, _v: Shape, keys: Shape, *_: Any, **__: Any) -> int:
    """One token and each slot of a cache: its key, its distance and its value."""
    return 3 * 2 * prod(keys)


def windowed_attention(content: Shape, _position: Shape, _k: Shape, _v: Shape, r: Shape, *_: Any, **__: Any) -> int:
    """Each query and each distance: the key's score, the position's and the value."""
    return 3 * 2 * prod(content) * r[1]


def windowed_attention_backward(_grad: Shape, *arguments: Any, **__: Any) -> int:
    """Both scores once more, then gradients of weights, values, keys and queries, and two of the position's product."""
    return windowed_attention(*arguments) // 3 * 8


FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._cudnn_rnn: cudnn_rnn,
    torch.ops.aten._cudnn_rnn_backward: cudnn_rnn_backward,
    torch.ops.aten.mkldnn_rnn_layer: mkldnn_rnn,
    torch.ops.aten.mkldnn_rnn_layer_backward: mkldnn_rnn_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    torch.ops.algebranets.recurrent: recurrent,
    torch.ops.algebranets.recurrent_backward: recurrent_backward,
    torch.ops.algebranets.decode_linear: decode_linear,
    torch.ops.algebranets.decode_step: decode_step,
    torch.ops.algebranets.sparse_linear: sparse_linear,
    torch.ops.algebranets.scan: scan,
    torch.ops.algebranets.scan_backward: scan_backward,
    torch.ops.algebranets.depthwise: depthwise,
    torch.ops.algebranets.depthwise_sums: depthwise_sums,
    torch.ops.algebranets.attend: attend,
    torch.ops.algebranets.windowed_attention: windowed_attention,
    torch.ops.algebranets.windowed_attention_backward: windowed_attention_backward,
}


def register() -> None:
    """Give torch's counter these formulas, wherever it has none of its own."""
    for op, formula in FORMULAS.items():
        if op not in flop_registry:
            register_flop_formula(op)(formula)
