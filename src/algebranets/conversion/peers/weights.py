"""Copies weights of another library into a layer of ours, and checks that nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn.linear import Weighted

LayerT = TypeVar("LayerT", bound=Weighted)


class Tuples(NamedTuple):
    """A parameter of another library as tuples: its components, in the order of the algebra's table, on axis 0."""

    value: Tensor
    requires_grad: bool


def complex_tuples(parameter: Tensor) -> Tuples:
    """Return a complex parameter as tuples (real part, imaginary part).

    Args:
        parameter: A complex parameter.
    """
    return Tuples(torch.view_as_real(parameter.detach()).movedim(-1, 0), parameter.requires_grad)


def stacked_tuples(components: Sequence[Tensor]) -> Tuples:
    """Return parameters as tuples, from one parameter for each component.

    Args:
        components: The components, in the order of the algebra's table.
    """
    if len({component.requires_grad for component in components}) > 1:
        raise ValueError(
            "some components of the weight have requires_grad=True, others False. The converted layer has one weight "
            "for all components: set requires_grad to the same value for all of them."
        )
    return Tuples(torch.stack([component.detach() for component in components]), components[0].requires_grad)


def class_path(module: nn.Module) -> str:
    """Return the full name of a module's class, such as "torch.nn.modules.linear.Linear".

    Args:
        module: Any module.
    """
    return f"{type(module).__module__}.{type(module).__qualname__}"


def check_plain(module: nn.Module) -> None:
    """Raise an error if a layer has hooks or parametrizations, which its replacement would not have.

    Args:
        module: A layer of another library.
    """
    name = type(module).__name__
    for part in module.modules():
        if parametrize.is_parametrized(part):
            raise ValueError(
                f"{name} is parametrized, and the converted layer would not be. Call "
                "torch.nn.utils.parametrize.remove_parametrizations first, and parametrize the converted layer."
            )
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            raise ValueError(
                f"{name} has hooks, and the converted layer would not have them. Remove them first, and register them "
                "on the converted layer."
            )


def factory(weight: Tuples, algebra: Algebra) -> dict[str, Any]:
    """Return the arguments ``device``, ``dtype`` and ``algebra`` for a layer of ours that gets a weight.

    Args:
        weight: The weight.
        algebra: The algebra of its tuples.
    """
    return {"device": weight.value.device, "dtype": weight.value.dtype, "algebra": algebra}


def load(layer: LayerT, weight: Tuples, bias: Tuples | None, training: bool) -> LayerT:
    """Copy a weight and a bias into a layer of ours, and return the layer.

    Args:
        layer: A layer with one weight and one bias over an algebra.
        weight: The weight, (component, out, in, ...), or (component, in, out, ...) for a transposed convolution.
        bias: The bias, (component, out), or None.
        training: Whether to put the layer into training mode.
    """
    layer.weight_tuples = weight.value
    layer.weight.requires_grad_(weight.requires_grad)
    if bias is not None:
        assert layer.bias is not None
        layer.bias.data.copy_(product.from_tuples(bias.value, layer.algebra, 0))
        layer.bias.requires_grad_(bias.requires_grad)
    return layer.train(training)
