"""Converts quaternion and complex layers of SpeechBrain to layers over H and C."""

from __future__ import annotations

from typing import Any

from torch import nn as torch_nn

from algebranets import nn
from algebranets.algebra import Algebra, C, H
from algebranets.conversion.peers.weights import Tuples, check_plain, class_path, factory, load, stacked_tuples
from algebranets.conversion.peers.wrappers import ChannelsLast

_QUATERNION, _COMPLEX = "speechbrain.nnet.quaternion_networks.q_", "speechbrain.nnet.complex_networks.c_"

LINEAR = {f"{_QUATERNION}linear.QLinear": H, f"{_COMPLEX}linear.CLinear": C}
#: Convolutions: the algebra and the number of spatial axes.
CONVS = {f"{folder}CNN.{letter}Conv{n}d": (algebra, n) for folder, letter, algebra in
         ((_QUATERNION, "Q", H), (_COMPLEX, "C", C)) for n in (1, 2)}  # fmt: skip

#: The prefixes of the names of weights, one for each component, by the number of components.
_PREFIXES = {2: ("real", "imag"), 4: ("r", "i", "j", "k")}


def knows(module: torch_nn.Module) -> bool:
    """Return whether `from_speechbrain` can convert a module or can say why not.

    Args:
        module: Any module.
    """
    return class_path(module) in LINEAR.keys() | CONVS.keys()


def from_speechbrain(module: torch_nn.Module) -> torch_nn.Module:
    """Return a layer that computes the same as a layer of SpeechBrain, with a copy of its weights.

    A linear layer becomes a `Linear`. A convolution becomes a `ChannelsLast`, because SpeechBrain has the channels on
    the last axis. Its child ``layer`` is the convolution of ours. docs/coming_from/speechbrain.md has an example.

    Args:
        module: `QLinear`, `QConv1d`, `QConv2d`, `CLinear`, `CConv1d` or `CConv2d`.
    """
    path = class_path(module)
    if not knows(module):
        raise ValueError(
            "from_speechbrain takes QLinear, QConv1d, QConv2d, CLinear, CConv1d and CConv2d of SpeechBrain; "
            f"got {path}."
        )
    check_plain(module)
    _check_options(module)
    algebra = LINEAR[path] if path in LINEAR else CONVS[path][0]
    parts = [getattr(module, f"{prefix}_weight") for prefix in _PREFIXES[algebra.dim]]
    weight, bias = stacked_tuples(parts), _bias(module, algebra)
    return _linear(module, weight, bias, algebra) if path in LINEAR else _conv(module, weight, bias, CONVS[path])


def _check_options(module: Any) -> None:
    """Raise an error if an option makes the layer compute something other than the product w . x."""
    name = type(module).__name__
    if getattr(module, "spinor", False):
        raise ValueError(
            f"{name} has spinor=True: it rotates its input by normalized weights, w . x . w^-1. That is not a product "
            "with a weight over H."
        )
    if getattr(module, "max_norm", None) is not None:
        raise ValueError(
            f"{name} has max_norm={module.max_norm}: it rescales its weights at every call, and the converted layer "
            "would not. After training, call it once and set layer.max_norm = None before you convert it."
        )
    if getattr(module, "groups", 1) != 1:
        raise ValueError(
            f"{name} has groups={module.groups}. SpeechBrain's groups separate the components of a quaternion, and "
            "ours separate quaternions, so the two compute different things."
        )
    if getattr(module, "skip_transpose", False):
        raise ValueError(f"{name} has skip_transpose=True, with which its forward returns None: it has no output.")


def _bias(module: Any, algebra: Algebra) -> Tuples | None:
    """Return the bias, or None. In a layer without bias, the attribute is None or a tensor that is not a parameter."""
    name = "b" if "real_weight" in module._parameters else "bias"
    bias = module._parameters.get(name)
    if bias is None:
        return None
    if not bias.requires_grad and class_path(module) in LINEAR:
        raise ValueError(
            f"the bias of this {type(module).__name__} has requires_grad=False, and then SpeechBrain does not add it. "
            "Set bias.requires_grad_(True) to convert the layer with its bias, and freeze the converted layer. Or "
            "convert a layer with bias=False."
        )
    return Tuples(bias.detach().unflatten(0, (algebra.dim, -1)), bias.requires_grad)


def _linear(module: Any, weight: Tuples, bias: Tuples | None, algebra: Algebra) -> nn.Linear:
    weight = weight._replace(value=weight.value.transpose(1, 2))  # theirs is (in, out)
    sizes = (algebra.dim * module.in_features, algebra.dim * module.out_features)
    layer = nn.Linear(*sizes, bias=bias is not None, **factory(weight, algebra))
    return load(layer, weight, bias, module.training)


def _conv(module: Any, weight: Tuples, bias: Tuples | None, kind: tuple[Algebra, int]) -> ChannelsLast:
    algebra, num_axes = kind
    kernel, stride, dilation = (
        tuple(value) if isinstance(value, (tuple, list)) else (value,) * num_axes
        for value in (module.kernel_size, module.stride, module.dilation)
    )
    padding, pad = (0,) * num_axes, (0, 0)
    if module.padding == "same":
        padding = tuple(_same(*sizes) for sizes in zip(kernel, stride, dilation, strict=True))
    elif module.padding == "causal" and num_axes == 1:
        pad = ((kernel[0] - 1) * dilation[0], 0)
    elif module.padding != "valid":
        raise ValueError(
            f"{type(module).__name__} has padding={module.padding!r}, with which its forward fails: there is nothing "
            "to convert."
        )
    if type(module).__name__ == "QConv2d":  # its padding uses both numbers, its convolution only the first
        stride, dilation = (stride[0],) * 2, (dilation[0],) * 2
    layer_type = (nn.Conv1d, nn.Conv2d)[num_axes - 1]
    layer = layer_type(
        algebra.dim * module.in_channels, algebra.dim * module.out_channels, kernel, stride, padding, dilation,
        bias=bias is not None, padding_mode=module.padding_mode.replace("constant", "zeros"),
        **factory(weight, algebra),
    )  # fmt: skip
    # SpeechBrain exchanges axis 1 and the last axis. Without ``swap``, this exchanges the two axes of images too.
    axes = (0, 3, 1, 2) if getattr(module, "swap", False) else (0, *range(num_axes + 1, 0, -1))
    return ChannelsLast(load(layer, weight, bias, module.training), axes, pad)


def _same(kernel_size: int, stride: int, dilation: int) -> int:
    """The padding on each side for SpeechBrain's "same". With a stride it does not depend on the dilation."""
    return kernel_size // 2 if stride > 1 else dilation * (kernel_size - 1) // 2
