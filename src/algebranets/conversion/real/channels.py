"""Plain torch versions of layers without weights over an algebra: norms, gates, shuffles, Lift."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import nn as ann
from algebranets.conversion.real import modules as plain
from algebranets.conversion.real.layers import Twin
from algebranets.conversion.real.modules import traced
from algebranets.conversion.real.weights import RealParameters, parts_of


def lift(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph that concatenates the components of the lifted input. Over R it is the identity."""
    if layer.algebra.dim == 1:
        return nn.Identity()
    return _graph(layer, plain.Lift(layer.mlp, layer.mode, layer.num_axes, layer.algebra.order))


def tuple_norm(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph with `torch.linalg.vector_norm`. Over R it is the identity."""
    if layer.algebra.dim == 1:
        return nn.Identity()
    return _graph(layer, plain.TupleNorm(layer.dim, layer.algebra.dim))


def tuple_gate(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph that computes the gate of each tuple."""
    return _graph(layer, plain.TupleGate(layer.g, layer.f, layer.dim, layer.algebra))


def tuple_dropout(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph with `torch.nn.Dropout` of one number for each tuple."""
    return _graph(layer, plain.TupleDropout(layer.p, layer.dim, layer.algebra.dim))


def glu(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph with torch's `glu` on tuples."""
    return _graph(layer, plain.GLU(layer.dim, layer.algebra.dim))


def channel_shuffle(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph that interleaves groups of tuples."""
    return _graph(layer, plain.ChannelShuffle(layer.groups, layer.algebra.dim))


def pixel_shuffle(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.PixelShuffle`."""
    return nn.PixelShuffle(layer.upscale_factor)


def pixel_unshuffle(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.PixelUnshuffle`."""
    return nn.PixelUnshuffle(layer.downscale_factor)


def group_norm(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph that normalizes groups of tuples."""
    norm = plain.GroupNorm(layer.num_groups, layer.algebra.dim, layer.eps, layer.weight, layer.bias)
    parts = parts_of(layer)
    return _graph(layer, norm if parts == (None, None) else plain.Reordered(norm, parts, layer.algebra, axis=1))


def instance_norm(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph that normalizes tuples. If the layer has running statistics, it always uses them."""
    num_axes = next(n for n, cls in enumerate(_INSTANCE_NORMS, start=1) if isinstance(layer, cls))
    return _graph(layer, plain.InstanceNorm(layer, num_axes))


def rms_norm(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.RMSNorm`, with a scale for each number."""
    made = nn.RMSNorm(layer.normalized_shape, layer.eps, layer.weight is not None)
    if layer.weight is not None:
        made.weight = _repeated(layer.weight, layer.algebra.dim)
    return made


def tuple_layer_norm(layer: Any, _real: RealParameters) -> nn.Module:
    """`torch.nn.LayerNorm`, with a scale and an offset for each number."""
    made = nn.LayerNorm(layer.num_features, layer.eps, layer.weight is not None, layer.bias is not None)
    for name in ("weight", "bias"):
        if getattr(layer, name) is not None:
            setattr(made, name, _repeated(getattr(layer, name), layer.algebra.dim))
    return made


def local_response_norm(layer: Any, _real: RealParameters) -> nn.Module:
    """A graph that divides tuples by a function of their neighbors."""
    return _graph(layer, plain.LocalResponseNorm(layer))


def whitening(layer: Any, _real: RealParameters) -> nn.Module | None:
    """A graph with one affine map for each tuple, or None if the layer has no running statistics."""
    if layer.running_mean is None:
        return None
    wide, dim = deepcopy(layer).double().eval(), layer.algebra.dim
    basis = torch.zeros(dim + 1, dim, layer.num_features // dim, dtype=torch.float64, device=layer.running_mean.device)
    for j in range(dim):
        basis[j, j] = 1
    with torch.no_grad():
        values = wide(basis.flatten(1).reshape(dim + 1, -1, *[1] * (max(layer.num_dims) - 2)))
    values = values.reshape(basis.shape)
    dtype = layer.running_mean.dtype if layer.weight is None else layer.weight.dtype
    matrix, offset = (values[:-1] - values[-1]).transpose(0, 1).to(dtype), values[-1].to(dtype)
    return _graph(layer, plain.TupleAffine(matrix.contiguous(), offset.contiguous()))


def _graph(layer: nn.Module, module: nn.Module) -> nn.Module:
    device = next((tensor.device for tensor in (*layer.parameters(), *layer.buffers())), None)
    return traced(module.to(device).train(layer.training), layer._get_name())


def _repeated(parameter: Tensor, times: int) -> nn.Parameter:
    return plain.kept(parameter, parameter.repeat(times))


_INSTANCE_NORMS = (ann.InstanceNorm1d, ann.InstanceNorm2d, ann.InstanceNorm3d)

TWINS: dict[type, Twin] = {
    **dict.fromkeys((ann.Lift, ann.Lift1d, ann.Lift2d, ann.Lift3d), lift),
    ann.TupleNorm: tuple_norm,
    ann.TupleGate: tuple_gate,
    ann.TupleDropout: tuple_dropout,
    ann.GLU: glu,
    ann.ChannelShuffle: channel_shuffle,
    ann.PixelShuffle: pixel_shuffle,
    ann.PixelUnshuffle: pixel_unshuffle,
    ann.GroupNorm: group_norm,
    **dict.fromkeys(_INSTANCE_NORMS, instance_norm),
    ann.RMSNorm: rms_norm,
    ann.TupleLayerNorm: tuple_layer_norm,
    ann.LocalResponseNorm: local_response_norm,
    **dict.fromkeys((ann.Whitening1d, ann.Whitening2d, ann.Whitening3d), whitening),
}
