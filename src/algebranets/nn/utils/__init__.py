"""torch.nn.utils, with its functions that change weights adapted to layers over an algebra.

The functions defined here, and those of `algebranets.nn.utils.parametrizations`, treat layers over an algebra correctly
or raise an error. Everything else is torch's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch.nn.utils
from torch import nn
from torch.nn.utils import parametrize

from algebranets.nn.utils import parametrizations
from algebranets.nn.utils.parametrizations import spectral_norm, weight_norm
from algebranets.nn.weights import algebra_weights, own_class

if TYPE_CHECKING:
    from torch.nn.utils import (
        clip_grad_norm,
        clip_grad_norm_,
        clip_grad_value_,
        clip_grads_with_norm_,
        fuse_conv_bn_weights,
        fuse_linear_bn_weights,
        get_total_norm,
        parameters_to_vector,
        rnn,
        skip_init,
        stateless,
        vector_to_parameters,
    )

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def remove_spectral_norm(module: ModuleT, name: str = "weight") -> ModuleT:
    """Make a weight under `spectral_norm` a plain parameter again, with the value that it has now.

    Args:
        module: The layer.
        name: The name of the weight.

    >>> from algebranets import nn
    >>> layer = spectral_norm(nn.Linear(8, 8, algebra="H"))
    >>> list(remove_spectral_norm(layer.eval()).state_dict())
    ['bias', 'weight', 'algebra_id']
    """
    return _removed(module, name, "spectral_norm", "_SpectralNorm")


def remove_weight_norm(module: ModuleT, name: str = "weight") -> ModuleT:
    """Make a weight under `weight_norm` a plain parameter again, with the value that it has now.

    Args:
        module: The layer.
        name: The name of the weight.

    >>> from algebranets import nn
    >>> layer = weight_norm(nn.Linear(8, 8, algebra="H"))
    >>> list(remove_weight_norm(layer).state_dict())
    ['bias', 'weight', 'algebra_id']
    """
    return _removed(module, name, "weight_norm", "_WeightNorm")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """`torch.nn.utils.fuse_conv_bn_eval`, with an error if the result would not be over the layer's algebra.

    A batch norm scales each real channel by its own number. A weight over an algebra that is scaled in this way is in
    general no longer over the algebra, because the components of an output share the weight's numbers.

    Args:
        conv: A convolution in eval mode: torch's, or one over R or a diagonal algebra.
        bn: The batch norm after it, in eval mode.
        transpose: Whether the convolution is transposed.

    >>> import torch
    >>> conv, bn = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
    >>> type(fuse_conv_bn_eval(conv.eval(), bn.eval())).__name__
    'Conv2d'
    """
    _check_fusible(conv, bn)
    return torch.nn.utils.fuse_conv_bn_eval(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """`torch.nn.utils.fuse_linear_bn_eval`, with an error if the result would not be over the layer's algebra.

    A batch norm scales each real channel by its own number. A weight over an algebra that is scaled in this way is in
    general no longer over the algebra, because the components of an output share the weight's numbers.

    Args:
        linear: A linear layer in eval mode: torch's, or one over R or a diagonal algebra.
        bn: The batch norm after it, in eval mode.

    >>> import torch
    >>> linear, bn = torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8)
    >>> type(fuse_linear_bn_eval(linear.eval(), bn.eval())).__name__
    'Linear'
    """
    _check_fusible(linear, bn)
    return torch.nn.utils.fuse_linear_bn_eval(linear, bn)


def convert_conv2d_weight_memory_format(module: ModuleT, memory_format: torch.memory_format) -> ModuleT:
    """Store the weights of all 2d convolutions in a model, over an algebra or not, in a memory format.

    Args:
        module: The model.
        memory_format: The memory format, such as ``torch.channels_last``.

    >>> import torch
    >>> from algebranets import nn
    >>> conv = convert_conv2d_weight_memory_format(nn.Conv2d(8, 8, 3, algebra="H"), torch.channels_last)
    >>> conv.weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    _convert_weights(module, 4, memory_format)
    return torch.nn.utils.convert_conv2d_weight_memory_format(module, memory_format)


def convert_conv3d_weight_memory_format(module: ModuleT, memory_format: torch.memory_format) -> ModuleT:
    """Store the weights of all 3d convolutions in a model, over an algebra or not, in a memory format.

    Args:
        module: The model.
        memory_format: The memory format, such as ``torch.channels_last_3d``.

    >>> import torch
    >>> from algebranets import nn
    >>> conv = convert_conv3d_weight_memory_format(nn.Conv3d(8, 8, 3, algebra="H"), torch.channels_last_3d)
    >>> conv.weight.is_contiguous(memory_format=torch.channels_last_3d)
    True
    """
    _convert_weights(module, 5, memory_format)
    return torch.nn.utils.convert_conv3d_weight_memory_format(module, memory_format)


def _convert_weights(model: nn.Module, num_axes: int, memory_format: torch.memory_format) -> None:
    for layer in model.modules():
        for weight in algebra_weights(layer):
            stored = layer._parameters.get(weight.name)
            if stored is not None and stored.dim() == num_axes:
                stored.data = stored.detach().clone(memory_format=memory_format)


def _removed(module: Any, name: str, function: str, kind: str) -> Any:
    """Remove a parametrization whose class is named ``kind``, torch's or ours, or torch's older hook."""
    chain = module.parametrizations[name] if parametrize.is_parametrized(module, name) else ()
    stages = [type(stage).__name__ for stage in chain]
    if kind not in stages:
        return getattr(torch.nn.utils, f"remove_{function}")(module, name)
    if len(stages) > 1:
        raise ValueError(
            f"{function} of {name} cannot be removed alone, because {name} is parametrized by {', '.join(stages)}: "
            f"call finish() of the Pruner, or remove all of them with "
            f"parametrize.remove_parametrizations(layer, {name!r})."
        )
    own_class(module)
    return parametrize.remove_parametrizations(module, name)


def _check_fusible(layer: nn.Module, norm: nn.Module) -> None:
    for weight in algebra_weights(layer):
        # Output component k must depend on weight component k only, as over R and over diagonal algebras.
        algebra = weight.algebra
        if any(i != k for i, _, k, _ in algebra.terms) or list(algebra.order) != sorted(algebra.order):
            raise ValueError(
                f"a {type(norm).__name__} cannot be fused into a {type(layer).__name__} over {algebra.name}: it "
                f"scales each real channel by its own number, so the result would not be a layer over {algebra.name}. "
                "Keep the two layers."
            )


if not TYPE_CHECKING:  # type checkers report names that do not exist only if there is no __getattr__

    def __getattr__(name: str) -> Any:
        return getattr(torch.nn.utils, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(torch.nn.utils)})
