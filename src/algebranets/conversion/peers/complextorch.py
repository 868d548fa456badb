"""Converts layers of complextorch, and torch's layers with complex weights, to layers over C."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch import nn as torch_nn

from algebranets import nn
from algebranets.algebra import C
from algebranets.conversion.peers.weights import (
    Tuples,
    check_plain,
    class_path,
    complex_tuples,
    factory,
    load,
    stacked_tuples,
)
from algebranets.conversion.peers.wrappers import ComplexForms, ComplexTensors
from algebranets.nn.conv import Conv
from algebranets.nn.linear import Weighted

_NAMES = ("linear.Linear", *(f"conv.Conv{n}d" for n in (1, 2, 3)), *(f"conv.ConvTranspose{n}d" for n in (1, 2, 3)))

#: Layers that contain one of torch's layers with a complex weight.
WRAPPERS = frozenset(f"complextorch.nn.modules.{name}" for name in _NAMES)
#: Layers that contain a real layer for real parts and one for imaginary parts, and compute three real products.
GAUSS = frozenset(f"complextorch.nn.gauss.{name}" for name in _NAMES)
BILINEAR = "complextorch.nn.modules.linear.Bilinear"
#: torch's layers, which can have complex weights.
TORCH = frozenset(f"torch.nn.modules.{name}" for name in _NAMES)

_MASKED = (
    "it multiplies its weight by a mask at every call. Apply the mask to the weight of complextorch's layer without a "
    "mask, and convert that one"
)
_SAMPLED = "it adds random noise to its output during training, and learns how much"
_MEAN = "it computes weighted means of magnitudes and phases, not products with weights over C"

#: Layers with weights that are not converted, with the reason.
KEPT = {
    "complextorch.nn.masked.linear.LinearMasked": _MASKED,
    "complextorch.nn.masked.linear.BilinearMasked": _MASKED,
    **{f"complextorch.nn.masked.conv.Conv{n}dMasked": _MASKED for n in (1, 2, 3)},
    **{f"complextorch.nn.relevance.linear.{name}{kind}": _SAMPLED
       for name in ("Linear", "Bilinear") for kind in ("VD", "ARD")},
    **{f"complextorch.nn.relevance.conv.Conv{n}d{kind}": _SAMPLED for n in (1, 2, 3) for kind in ("VD", "ARD")},
    **{f"complextorch.nn.modules.manifold.{name}": _MEAN
       for name in ("wFMConv1d", "wFMConv2d", "wFMConvStrict2d", "wFMDistanceLinear")},
}  # fmt: skip


def knows(module: torch_nn.Module) -> bool:
    """Return whether `from_complextorch` can convert a module or can say why not.

    Args:
        module: Any module.
    """
    path = class_path(module)
    return path in WRAPPERS | GAUSS | {BILINEAR} | KEPT.keys() or (path in TORCH and _has_complex_weight(module))


def from_complextorch(module: torch_nn.Module) -> ComplexTensors:
    """Return a layer over C that computes the same as a layer of complextorch, with a copy of its weights.

    The result takes and returns complex tensors. Its child ``layer`` is the layer of ours, which takes and returns real
    tensors: all real parts, then all imaginary parts.

    Args:
        module: `Linear`, `Bilinear`, `Conv1d` to `Conv3d` or `ConvTranspose1d` to `ConvTranspose3d` of complextorch.nn,
            the same layers of complextorch.nn.gauss, or torch's own layers with complex weights.

    >>> import torch
    >>> theirs = torch.nn.Linear(3, 2, dtype=torch.cdouble)
    >>> ours = from_complextorch(theirs)
    >>> ours.layer
    Linear(in_features=6, out_features=4, bias=True, algebra=C)
    >>> x = torch.randn(7, 3, dtype=torch.cdouble)
    >>> torch.allclose(ours(x), theirs(x))
    True
    """
    path, name = class_path(module), type(module).__name__
    if path in KEPT:
        raise ValueError(f"{name} of complextorch has no counterpart over C: {KEPT[path]}.")
    if not knows(module):
        raise ValueError(
            f"from_complextorch takes linear layers and convolutions of complextorch, or torch's own with complex "
            f"weights; got {path}."
        )
    check_plain(module)
    if path in GAUSS:
        return _from_gauss(module)
    inner: Any = next(module.children()) if path in WRAPPERS else module
    if not inner.weight.is_complex():
        raise ValueError(
            f"this {name} is real: its weight is {inner.weight.dtype}. Replace it by torch.nn.{name}, which can then "
            "be converted to any algebra."
        )
    weight = complex_tuples(inner.weight)
    bias = None if inner.bias is None else complex_tuples(inner.bias)
    if path == BILINEAR:
        sizes = (2 * inner.in1_features, 2 * inner.in2_features, 2 * inner.out_features)
        form = nn.Bilinear(*sizes, bias=bias is not None, **factory(weight, C))
        return ComplexForms(load(form, weight, bias, module.training), inner.conjugate)
    return _loaded(inner, weight, bias, module.training)


def _has_complex_weight(module: torch_nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.is_complex()


def _from_gauss(module: Any) -> ComplexTensors:
    real, imaginary = module.children()
    if getattr(real, "padding_mode", "zeros") != "zeros":
        raise ValueError(
            f"{type(module).__name__} of complextorch.nn.gauss has padding_mode={real.padding_mode!r}, but pads one of "
            "its three products with zeros, so it computes no convolution over C. Use the layer of complextorch.nn."
        )
    weight = stacked_tuples([real.weight, imaginary.weight])
    bias = None if module.bias_r is None else stacked_tuples([module.bias_r, module.bias_i])
    return _loaded(real, weight, bias, module.training)


def _loaded(like: Any, weight: Tuples, bias: Tuples | None, training: bool) -> ComplexTensors:
    """Return a layer with the settings of one of torch's layers and the given parameters."""
    options: dict[str, Any] = {"bias": bias is not None, **factory(weight, C)}
    layer_type: type[Weighted] = getattr(nn, type(like).__name__)
    if not issubclass(layer_type, Conv):
        layer = layer_type(2 * like.in_features, 2 * like.out_features, **options)
        return ComplexTensors(load(layer, weight, bias, training))
    names = ["stride", "padding", "dilation", "groups", "padding_mode"] + ["output_padding"] * layer_type.transposed
    options |= {name: getattr(like, name) for name in names}
    conv = layer_type(2 * like.in_channels, 2 * like.out_channels, like.kernel_size, **options)
    return ComplexTensors(load(conv, weight, bias, training), -1 - layer_type.num_axes)
