"""``depthwise`` and ``depthwise_sums``: depthwise convolutions, one weight tuple for each tap and channel.

``depthwise`` is the convolution, or its adjoint with respect to the image. ``depthwise_sums`` is the adjoint with
respect to the weight. Both are bilinear, and the gradients of each are computed by these two operators again.

Weights are (tap row, tap column, component in table order, channel), in the dtype of sums. ``terms`` are four numbers
for each term of the algebra (weight, input and output component, coefficient). Components of images are numbered in
memory order. ``slides`` are the stride, padding and dilation of the rows and then of the columns.

``algorithm`` are the coefficients of an algorithm with few multiplies (`algebra.Bilinear`), one after the other: those
of the weights, of the inputs and of the outputs, row by row. It computes the product where that is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from algebranets.ops.depthwise.constants import Algorithm
from algebranets.ops.device import is_channels_last, sum_dtype


@torch.library.custom_op(
    "algebranets::depthwise",
    mutates_args=(),
    schema="(Tensor x, Tensor w, int[] terms, SymInt[] size, int[] slides, bool adjoint=False, "
    "float[]? algorithm=None) -> Tensor",
)
def depthwise(
    x: Tensor,
    w: Tensor,
    terms: Sequence[int],
    size: Sequence[int],
    slides: Sequence[int],
    adjoint: bool = False,
    algorithm: Sequence[float] | None = None,
) -> Tensor:
    """The convolution of ``x`` by ``w``, or its adjoint, for which ``x`` is the gradient of the output.

    Args:
        x: Images, (batch, features, height, width).
        w: The weight, (tap row, tap column, component, channel).
        terms: The terms of the algebra, as described in the module.
        size: The height and width of the result.
        slides: The stride, padding and dilation of each axis, as described in the module.
        adjoint: Whether to compute the gradient of the convolution's input instead.
        algorithm: An algorithm with few multiplies, as described in the module, or None.
    """
    from algebranets.ops.depthwise import launch  # needs triton

    y = _image_like(x, size)
    launch.depthwise(x, w, y, tuple(terms), _axes(slides), adjoint, _algorithm(algorithm, w.shape[2]))
    return y


@torch.library.custom_op(
    "algebranets::depthwise_sums",
    mutates_args=(),
    schema="(Tensor dy, Tensor x, int[] terms, int[] kernel, int[] slides, float[]? algorithm=None) -> Tensor",
)
def depthwise_sums(
    dy: Tensor,
    x: Tensor,
    terms: Sequence[int],
    kernel: Sequence[int],
    slides: Sequence[int],
    algorithm: Sequence[float] | None = None,
) -> Tensor:
    """The gradient of the weight of shape ``kernel``, for the input ``x`` and the gradient ``dy`` of the output."""
    from algebranets.ops.depthwise import launch  # needs triton

    dw = _weight_for(x, kernel)
    launch.depthwise_sums(dy, x, dw, tuple(terms), _axes(slides), _algorithm(algorithm, kernel[2]))
    return dw


def _algorithm(numbers: Sequence[float] | None, dim: int) -> Algorithm | None:
    return None if numbers is None else Algorithm.of(numbers, dim)


def _axes(slides: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(slides[:3]), tuple(slides[3:])]


def _image_like(x: Tensor, size: Sequence[int]) -> Tensor:
    memory_format = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    return torch.empty((*x.shape[:2], *size), dtype=x.dtype, device=x.device, memory_format=memory_format)


def _weight_for(x: Tensor, kernel: Sequence[int]) -> Tensor:
    return x.new_empty(list(kernel), dtype=sum_dtype(x))


@depthwise.register_fake
def _(x: Tensor, _w: Tensor, _terms: Sequence[int], size: Sequence[int], *_rest: Any) -> Tensor:
    return _image_like(x, size)


@depthwise_sums.register_fake
def _(_dy: Tensor, x: Tensor, _terms: Sequence[int], kernel: Sequence[int], *_rest: Any) -> Tensor:
    return _weight_for(x, kernel)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001, passed by name
    ctx.save_for_backward(*inputs[:2])
    ctx.options = inputs[2:]


def _depthwise_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (x, w), (terms, _, slides, adjoint, algorithm) = ctx.saved_tensors, ctx.options
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = depthwise(grad, w, terms, x.shape[2:], slides, not adjoint, algorithm)
    if ctx.needs_input_grad[1]:
        dw = depthwise_sums(*((x, grad) if adjoint else (grad, x)), terms, w.shape, slides, algorithm)
    return dx, dw, *[None] * len(ctx.options)


def _depthwise_sums_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (dy, x), (terms, _, slides, algorithm) = ctx.saved_tensors, ctx.options
    ddy = dx = None
    if ctx.needs_input_grad[0]:
        ddy = depthwise(x, grad, terms, dy.shape[2:], slides, False, algorithm)
    if ctx.needs_input_grad[1]:
        dx = depthwise(dy, grad, terms, x.shape[2:], slides, True, algorithm)
    return ddy, dx, *[None] * len(ctx.options)


depthwise.register_autograd(_depthwise_backward, setup_context=_save)
depthwise_sums.register_autograd(_depthwise_sums_backward, setup_context=_save)


def flops(
    x: tuple[int, ...], w: tuple[int, ...], terms: list[int], size: list[int], _slides: Any, adjoint: bool = False,
    *_: Any, **__: Any,
) -> int:  # fmt: skip
    """Two FLOPs for each multiply, at every tap and place of the convolution's output. As in torch, padding counts."""
    return _flops_of_taps(x[0], x[2:] if adjoint else size, w, terms)


def flops_sums(dy: tuple[int, ...], _x: Any, terms: list[int], kernel: list[int], *_: Any, **__: Any) -> int:
    """The FLOPs of the weight's gradient, the same number as for the convolution."""
    return _flops_of_taps(dy[0], dy[2:], kernel, terms)


def _flops_of_taps(batch: int, places: Sequence[int], weight: Sequence[int], terms: list[int]) -> int:
    height, width, _, num_tuples = weight
    return 2 * batch * prod(places) * height * width * num_tuples * (len(terms) // 4)
