"""Formulas that torch's FLOP counter lacks, so that it counts every lowering.

torch's counter knows matrix products, convolutions and attention. It does not know fused recurrent kernels (cuDNN's and
the CPU's), bilinear layers, our operators and, in older versions, the CPU's fused attention. Our operators count the
multiplies of the algebra's table. Combinations of components are additions and count nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

Shape = tuple[int, ...]


def cudnn_rnn(input_shape: Shape, weight_shapes: list[Shape], *_: Any, **__: Any) -> int:
    """FLOPs of a recurrent layer in cuDNN: each matrix multiplies each row of the input.

    The input is (time, batch, features) or, packed, (rows, features).
    """
    return 2 * prod(input_shape[:-1]) * sum(prod(shape) for shape in weight_shapes if len(shape) == 2)


def cudnn_rnn_backward(*arguments: Any, **options: Any) -> int:
    """FLOPs of `cudnn_rnn`'s gradients: those of the input and of the weights each cost as much as the forward."""
    return 2 * cudnn_rnn(*arguments, **options)


def mkldnn_rnn(input_shape: Shape, *rest: Any, **__: Any) -> int:
    """FLOPs of one recurrent layer and direction on a CPU. ``rest`` has the two matrices first, then the biases."""
    return 2 * prod(input_shape[:-1]) * sum(prod(shape) for shape in rest[:2])


def mkldnn_rnn_backward(*arguments: Any, **options: Any) -> int:
    """FLOPs of `mkldnn_rnn`'s gradients: those of the input and of the weights each cost as much as the forward."""
    return 2 * mkldnn_rnn(*arguments, **options)


def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """FLOPs of attention: the products of queries and keys, and of attention weights and values."""
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def attention_backward(_grad: Shape, *arguments: Any, **__: Any) -> int:
    """FLOPs of attention's gradients: the scores again, then the gradients of scores, values, queries and keys."""
    query, key, value = arguments[:3]
    return 2 * attention(query, key, value) + 2 * prod(query[:-1]) * key[-2] * query[-1]


def trilinear(x: Shape, y: Shape, z: Shape, *axes_of: list[int], **_: Any) -> int:
    """FLOPs of ``_trilinear``, which computes `torch.nn.Bilinear` and its gradients: x times y, then times z.

    The three operands share one set of axes. The next three arguments list the axes that x, y and z lack. The fourth
    lists the axes to sum over: after the first product if z lacks them, else after the second.
    """
    x_lacks, y_lacks, z_lacks, sums = axes_of[:4]
    sizes: dict[int, int] = {}
    for shape, lacks in ((x, x_lacks), (y, y_lacks), (z, z_lacks)):
        axes = (axis for axis in range(len(shape) + len(lacks)) if axis not in lacks)
        sizes |= dict(zip(axes, shape, strict=True))
    first = prod(size for axis, size in sizes.items() if axis not in x_lacks or axis not in y_lacks)
    second = prod(size for axis, size in sizes.items() if axis not in sums or axis not in z_lacks)
    return 2 * (first + second)


#: The formulas of torch's own operators. Those of ours are in `algebranets.ops.FLOPS`.
FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._cudnn_rnn: cudnn_rnn,
    torch.ops.aten._cudnn_rnn_backward: cudnn_rnn_backward,
    torch.ops.aten.mkldnn_rnn_layer: mkldnn_rnn,
    torch.ops.aten.mkldnn_rnn_layer_backward: mkldnn_rnn_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    torch.ops.aten._trilinear: trilinear,
}


def register(formulas: dict[Any, Callable[..., int]]) -> None:
    """Add formulas to torch's counter, except for operators that it already knows.

    Args:
        formulas: The formula of each operator.
    """
    for op, formula in formulas.items():
        if op not in flop_registry:
            register_flop_formula(op)(formula)
