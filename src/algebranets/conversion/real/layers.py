"""Plain torch versions of linear layers, convolutions and embeddings over an algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import nn as ann
from algebranets.conversion.real.modules import GroupedConv, traced
from algebranets.conversion.real.weights import (
    RealParameters,
    bias_of,
    dense,
    on_parts,
    parts_of,
    real_weight,
    scale_of,
)
from algebranets.nn.adaptive_softmax import LogitHead
from algebranets.product.compressed import expand

_CONVS: dict[tuple[int, bool], type[nn.Module]] = {
    (1, False): nn.Conv1d,
    (2, False): nn.Conv2d,
    (3, False): nn.Conv3d,
    (1, True): nn.ConvTranspose1d,
    (2, True): nn.ConvTranspose2d,
    (3, True): nn.ConvTranspose3d,
}


def linear(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.Linear`."""
    weight, bias = dense(layer, real)
    return _filled(nn.Linear(layer.in_features, layer.out_features, bias=bias is not None, device="meta"), weight, bias)


def conv(layer: Any, real: RealParameters) -> nn.Module:
    """torch's convolution or transposed convolution. With groups, channels are rearranged before and after it."""
    if layer.groups == 1:
        return _filled(_empty_conv(layer, bias_of(layer) is not None), *dense(layer, real))
    # torch needs the channels of a group side by side, so the components of each tuple are put side by side.
    algebra = layer.algebra

    def interleaved(planar: Tensor, axis: int) -> Tensor:
        return planar.unflatten(axis, (algebra.dim, -1)).transpose(axis, axis + 1).flatten(axis, axis + 1)

    def weights(stored: Tensor) -> Tensor:
        return interleaved(interleaved(real_weight(stored, algebra, layer.transposed), 0), 1)

    weight = real.make(layer.weight, weights, algebra, layer.transposed, "interleaved")
    bias = layer.bias
    if bias is not None:
        bias = real.make(bias, lambda stored: interleaved(stored, 0), algebra, "interleaved")
    made = _filled(_empty_conv(layer, bias is not None), weight, bias)
    rearranged = GroupedConv(made, layer.num_axes, parts_of(layer), algebra)
    if (scale := scale_of(layer)) is not None:
        rearranged.multiply(scale, layer.offset)
    return traced(rearranged.to(layer.weight.device).train(layer.training), type(made).__name__)


def _empty_conv(layer: Any, has_bias: bool) -> nn.Module:
    """torch's layer with the arguments of a convolution over an algebra, on the meta device."""
    names = ("stride", "padding", "dilation", "groups", "padding_mode")
    options = {name: getattr(layer, name) for name in names}
    if layer.transposed:
        options["output_padding"] = layer.output_padding
    make = _CONVS[layer.num_axes, layer.transposed]
    return make(layer.in_channels, layer.out_channels, layer.kernel_size, **options, bias=has_bias, device="meta")


def embedding(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.Embedding`. Its vectors are the same numbers, so its weight stays shared with other layers."""
    options = {name: getattr(layer, name) for name in ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq")}
    made = nn.Embedding(layer.num_embeddings, layer.embedding_dim, **options, sparse=layer.sparse, device="meta")
    return _filled(made, _vectors(layer, real))


def embedding_bag(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.EmbeddingBag`."""
    names = (
        "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "include_last_offset", "padding_idx"
    )  # fmt: skip
    options = {name: getattr(layer, name) for name in names}
    made = nn.EmbeddingBag(layer.num_embeddings, layer.embedding_dim, **options, device="meta")
    return _filled(made, _vectors(layer, real))


def _vectors(layer: Any, real: RealParameters) -> nn.Parameter:
    _, parts = parts_of(layer)
    if parts is None:
        weight = real.same(layer.weight)
        assert weight is not None
        return weight
    return real.make(layer.weight, lambda stored: on_parts(stored, 1, parts, layer.algebra), layer.algebra, parts)


def bilinear(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.Bilinear`."""
    algebra, order = layer.algebra, list(layer.algebra.order)

    def change(stored: Tensor) -> Tensor:
        weight = ann.AlgebraWeight("weight", algebra, num_inputs=2).tuples(stored)  # (component, out, in1, in2)
        table = stored.new_zeros(algebra.dim, algebra.dim, algebra.dim)
        for i, j, k, coefficient in algebra.terms:
            table[i, j, k] = coefficient
        cells = torch.einsum("aoij,abc,cdk->kobidj", weight, table, table)
        planar = cells[order][:, :, order][:, :, :, :, order]
        return planar.flatten(4, 5).flatten(2, 3).flatten(0, 1)

    made = nn.Bilinear(
        layer.in1_features, layer.in2_features, layer.out_features, layer.bias is not None, device="meta"
    )
    return _filled(made, real.make(layer.weight, change, algebra, "bilinear"), real.same(layer.bias))


def sparse_linear(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.Linear` with zeros where the sparse layer has no tuple."""
    made = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    weight = real.make(
        layer.values, lambda _: real_weight(expand(layer.weight), layer.algebra), layer.algebra, "sparse"
    )
    return _filled(made, weight, real.same(layer.bias))


def quantized_linear(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.Linear` with the dequantized weight, in the dtype of the bias, or in float32 without a bias."""
    made = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    dtype = torch.float32 if layer.bias is None else layer.bias.dtype
    weight = real.make(
        layer.weight, lambda _: real_weight(layer.dequantized(dtype), layer.algebra), layer.algebra, "quantized"
    )
    return _filled(made, weight, real.same(layer.bias))


def sparse_conv(layer: Any, real: RealParameters) -> nn.Module:
    """torch's 1 x 1 convolution. The layer's child ``linear`` is already torch's."""
    inner, num_axes = layer.linear, len(layer.stride)
    make: Any = _CONVS[num_axes, False]
    made = make(
        inner.in_features, inner.out_features, 1, stride=layer.stride, bias=inner.bias is not None, device="meta"
    )
    weight = real.make(inner.weight, lambda stored: stored.reshape(*stored.shape, *[1] * num_axes), num_axes)
    return _filled(made, weight, inner.bias)


def logit_head(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.Linear`, then the norms of tuples. The layer's child ``norm`` is already plain torch."""
    weight, bias = dense(layer, real)
    made = nn.Linear(layer.in_features, layer.num_logits * layer.algebra.dim, bias=bias is not None, device="meta")
    return nn.Sequential(_filled(made, weight, bias), layer.norm)


def adaptive_softmax(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.AdaptiveLogSoftmaxWithLoss`. The layer's children are already plain torch."""
    sizes = (layer.in_features, layer.n_classes, layer.cutoffs[:-1])
    made = nn.AdaptiveLogSoftmaxWithLoss(*sizes, div_value=layer.div_value, head_bias=layer.head_bias, device="meta")
    made.head, made.tail = layer.head, layer.tail
    return made


def _filled(made: Any, weight: nn.Parameter, bias: nn.Parameter | None = None) -> nn.Module:
    """Give an empty layer of torch its parameters."""
    assert made.weight.shape == weight.shape, (made, weight.shape)
    made.weight = weight
    if bias is not None:
        made.bias = bias
    result: nn.Module = made
    return result


#: A function that returns the plain torch version of a layer over an algebra, or None if there is none.
Twin = Callable[[Any, RealParameters], nn.Module | None]

TWINS: dict[type, Twin] = {
    ann.Linear: linear,
    **dict.fromkeys(
        (ann.Conv1d, ann.Conv2d, ann.Conv3d, ann.ConvTranspose1d, ann.ConvTranspose2d, ann.ConvTranspose3d), conv
    ),
    ann.Embedding: embedding,
    ann.EmbeddingBag: embedding_bag,
    ann.Bilinear: bilinear,
    ann.QuantizedLinear: quantized_linear,
    ann.SparseLinear: sparse_linear,
    ann.SparseConv: sparse_conv,
    LogitHead: logit_head,
    ann.AdaptiveLogSoftmaxWithLoss: adaptive_softmax,
}
