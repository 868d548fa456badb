"""Depthwise convolutions by Triton: one weight tuple for each tuple of the image and tap, and one output tuple.

Two bilinear operators, whose gradients are the two themselves: `_correlate` is the convolution or its adjoint in the
image, `_sums` its adjoint in the weight. Their weights are (tap row, tap column, component in table order, channel), in
the precision of sums; in ``terms`` components of images are counted as they lie there, in `Algebra.order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.product.geometry import Geometry
from algebranets.product.layout import channels_last, num_tuples, weight_tuples

#: Terms times taps, and strides, up to which a kernel is worth its compilation: all of them are written out in it.
MOST_PRODUCTS, MOST_STRIDE = 1024, 4


def applies(x: Tensor, weight: Tensor, algebra: Algebra, geometry: Geometry) -> bool:
    """Whether this is a depthwise convolution in two axes that there is a kernel for."""
    if geometry.num_axes != 2 or geometry.transposed or not x.is_floating_point():
        return False
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        return False
    is_depthwise = num_tuples(weight, algebra) == (geometry.groups, 1)
    products = len(algebra.terms) * weight.shape[2] * weight.shape[3]
    return is_depthwise and products <= MOST_PRODUCTS and max(geometry.stride) <= MOST_STRIDE


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, geometry: Geometry) -> Tensor:
    """The same as `reference.conv`; channels_last comes out as it went in, and is what it is fast for."""
    if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    w = weight_tuples(weight, algebra)[:, :, 0].permute(2, 3, 0, 1)
    w = w.to(torch.promote_types(w.dtype, torch.float32)).contiguous()
    place = [algebra.order.index(k) for k in range(algebra.dim)]
    terms = [n for i, j, k, c in algebra.terms for n in (i, place[j], place[k], c)]
    size, padding = _output(x.shape[2:], w.shape[:2], geometry)
    y: Tensor = _correlate(x, w, terms, size, False, geometry.stride, padding, geometry.dilation)
    return y if bias is None else y + bias.to(y.dtype)[:, None, None]


def _output(size: Sequence[int], kernel: Sequence[int], geometry: Geometry) -> tuple[list[int], list[int]]:
    """The size of the output, and the padding before each axis (torch's "same" pads more behind)."""
    reach = [d * (k - 1) for d, k in zip(geometry.dilation, kernel, strict=True)]
    if isinstance(geometry.padding, str):
        before = [r // 2 if geometry.padding == "same" else 0 for r in reach]
        both = reach if geometry.padding == "same" else [0, 0]
    else:
        before, both = list(geometry.padding), [2 * p for p in geometry.padding]
    room = [n + b - r - 1 for n, b, r in zip(size, both, reach, strict=True)]
    if min(room) < 0:
        raise ValueError(
            f"the kernel must fit into the padded image: it spans {[r + 1 for r in reach]} places, dilation included, "
            f"and the image has {[n + b for n, b in zip(size, both, strict=True)]}; pad more or dilate less."
        )
    return [r // s + 1 for r, s in zip(room, geometry.stride, strict=True)], before


# Operators ------------------------------------------------------------------------------------------------------------


@torch.library.custom_op(
    "algebranets::depthwise",
    mutates_args=(),
    schema="(Tensor x, Tensor w, int[] terms, SymInt[] size, bool adjoint, int[] stride, int[] padding, int[] dilation)"
    " -> Tensor",
)
def _correlate(
    x: Tensor,
    w: Tensor,
    terms: Sequence[int],
    size: Sequence[int],
    adjoint: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The convolution of ``x`` by ``w``, or the gradient of its input, for a gradient ``x`` of its output."""
    from algebranets.product.kernels.jit import depthwise  # needs triton

    y = _image_like(x, size)
    table = depthwise.table_of(tuple(terms), w.shape[2], 0, *((2, 1) if adjoint else (1, 2)))
    depthwise.correlate(x, w, y, table, adjoint, list(zip(stride, padding, dilation, strict=True)))
    return y


@torch.library.custom_op(
    "algebranets::depthwise_sums",
    mutates_args=(),
    schema="(Tensor dy, Tensor x, int[] terms, int[] kernel, int[] stride, int[] padding, int[] dilation) -> Tensor",
)
def _sums(
    dy: Tensor,
    x: Tensor,
    terms: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The gradient of the weight, of shape ``kernel``, for an input ``x`` and a gradient ``dy`` of the output."""
    from algebranets.product.kernels.jit import depthwise  # needs triton

    dw = _weight_for(x, kernel)
    table = depthwise.table_of(tuple(terms), kernel[2], 2, 1, 0)
    depthwise.sums(dy, x, dw, table, list(zip(stride, padding, dilation, strict=True)))
    return dw


def _image_like(x: Tensor, size: Sequence[int]) -> Tensor:
    memory_format = torch.channels_last if channels_last(x) else torch.contiguous_format
    shape = (*x.shape[:2], *size)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format)


def _weight_for(x: Tensor, kernel: Sequence[int]) -> Tensor:
    return x.new_empty(list(kernel), dtype=torch.promote_types(x.dtype, torch.float32))


@_correlate.register_fake
def _(x: Tensor, _w: Tensor, _terms: Sequence[int], size: Sequence[int], *_slide: Any) -> Tensor:
    return _image_like(x, size)


@_sums.register_fake
def _(_dy: Tensor, x: Tensor, _terms: Sequence[int], kernel: Sequence[int], *_slide: Any) -> Tensor:
    return _weight_for(x, kernel)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001, passed by name
    ctx.save_for_backward(*inputs[:2])
    ctx.options = inputs[2:]


def _correlate_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (x, w), (terms, _, adjoint, *slide) = ctx.saved_tensors, ctx.options
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = _correlate(grad, w, terms, x.shape[2:], not adjoint, *slide)
    if ctx.needs_input_grad[1]:
        dw = _sums(*((x, grad) if adjoint else (grad, x)), terms, w.shape, *slide)
    return dx, dw, *[None] * 6


def _sums_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (dy, x), (terms, _, *slide) = ctx.saved_tensors, ctx.options
    ddy = dx = None
    if ctx.needs_input_grad[0]:
        ddy = _correlate(x, grad, terms, dy.shape[2:], False, *slide)
    if ctx.needs_input_grad[1]:
        dx = _correlate(dy, grad, terms, x.shape[2:], True, *slide)
    return ddy, dx, *[None] * 5


_correlate.register_autograd(_correlate_backward, setup_context=_remember)
_sums.register_autograd(_sums_backward, setup_context=_remember)
