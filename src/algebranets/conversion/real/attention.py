"""Plain torch versions of attention and transformers over an algebra.

A head of ours holds whole tuples, whose components are not neighbors on a planar axis. A head of torch is a range of
neighboring features. So the rows of the input projections and the columns of the output projection are sorted by head.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import nn as ann
from algebranets import product
from algebranets.conversion.real.layers import Twin
from algebranets.conversion.real.weights import RealParameters, on_parts, parts_of, real_weight


def attention(layer: Any, real: RealParameters) -> nn.Module:
    """`torch.nn.MultiheadAttention`. The layer's child ``out_proj`` is already torch's."""
    algebra, size = layer.algebra, layer.embed_dim
    in_parts, out_parts = parts_of(layer)
    has_bias = layer.in_proj_bias is not None
    made = nn.MultiheadAttention(
        size,
        layer.num_heads,
        layer.dropout,
        has_bias,
        layer.bias_k is not None,
        layer.add_zero_attn,
        layer.kdim,
        layer.vdim,
        layer.batch_first,
        device="meta",
    )

    def by_head(planar: Tensor, axis: int = 0) -> Tensor:
        split = planar.unflatten(axis, (algebra.dim, layer.num_heads, -1))
        return split.transpose(axis, axis + 1).flatten(axis, axis + 2)

    def projections(stored: Tensor, stacks: int) -> Tensor:
        rows = [by_head(part) for part in real_weight(stored, algebra, stacks=stacks).chunk(stacks)]
        parts = in_parts if stored.shape == _stored_shape(layer, size, stacks) else None
        return on_parts(torch.cat(rows), 1, parts, algebra)

    how = (algebra, layer.num_heads, in_parts)
    for name, stacks in (("in_proj_weight", 3), ("q_proj_weight", 1), ("k_proj_weight", 1), ("v_proj_weight", 1)):
        if (stored := getattr(layer, name)) is not None:
            setattr(made, name, real.make(stored, partial(projections, stacks=stacks), stacks, *how))
    if has_bias:

        def biases(stored: Tensor) -> Tensor:
            return torch.cat([by_head(part) for part in stored.chunk(3)])

        made.in_proj_bias = real.make(layer.in_proj_bias, biases, *how)
    for name in ("bias_k", "bias_v"):
        if (stored := getattr(layer, name)) is not None:
            setattr(made, name, real.make(stored, lambda value: by_head(value, 2), *how))

    def outputs(stored: Tensor) -> Tensor:
        return on_parts(by_head(stored, 1), 0, out_parts, algebra)

    made.out_proj.weight = real.make(layer.out_proj.weight, outputs, *how, out_parts)
    if layer.out_proj.bias is not None:
        made.out_proj.bias = real.make(layer.out_proj.bias, lambda b: on_parts(b, 0, out_parts, algebra), out_parts)
    return made


def _stored_shape(layer: Any, num_features: int, stacks: int) -> torch.Size:
    """The shape of stacked projections of ``num_features`` features."""
    dim = layer.algebra.dim
    return torch.Size(product.weight_shape(layer.algebra, layer.embed_dim // dim, num_features // dim, stacks=stacks))


def encoder_layer(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.TransformerEncoderLayer`. The layer's children are already torch's."""
    return _with_children(nn.TransformerEncoderLayer(*_sizes(layer), **_options(layer)), layer)


def decoder_layer(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.TransformerDecoderLayer`. The layer's children are already torch's."""
    return _with_children(nn.TransformerDecoderLayer(*_sizes(layer), **_options(layer)), layer)


def encoder(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.TransformerEncoder`. The layer's children are already torch's."""
    empty = nn.TransformerEncoderLayer(2, 1, 1)
    made = nn.TransformerEncoder(empty, 1, layer.norm, enable_nested_tensor=False, mask_check=layer.mask_check)
    made.layers, made.num_layers = layer.layers, layer.num_layers
    return made


def transformer(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.Transformer`. The layer's children are already torch's."""
    made = nn.Transformer(layer.d_model, layer.nhead, custom_encoder=nn.Identity(), custom_decoder=nn.Identity())
    made.batch_first, made.encoder, made.decoder = layer.batch_first, layer.encoder, layer.decoder
    return made


def _sizes(layer: Any) -> tuple[int, int, int]:
    return layer.linear1.in_features, layer.self_attn.num_heads, layer.linear1.out_features


def _options(layer: Any) -> dict[str, Any]:
    return {
        "dropout": layer.dropout.p,
        "activation": layer.activation,
        "layer_norm_eps": layer.norm1.eps,
        "batch_first": layer.self_attn.batch_first,
        "norm_first": layer.norm_first,
        "bias": layer.linear1.bias is not None,
        "device": "meta",
    }


def _with_children(made: nn.Module, layer: nn.Module) -> nn.Module:
    for name, child in layer.named_children():
        setattr(made, name, child)
    return made


TWINS: dict[type, Twin] = {
    ann.MultiheadAttention: attention,
    ann.TransformerEncoderLayer: encoder_layer,
    ann.TransformerDecoderLayer: decoder_layer,
    ann.TransformerEncoder: encoder,
    ann.Transformer: transformer,
}
