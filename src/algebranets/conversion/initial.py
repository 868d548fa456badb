"""The parameters of converted layers: weights of the original scale, and the original biases."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from algebranets.conversion.layers import Spec, core, weight_of, weights_over_algebra
from algebranets.conversion.parts import planar_index
from algebranets.nn.weights import AlgebraWeight, algebra_weights

#: How weights over an algebra are initialized.
INITS = ("scale", "glorot")


def take_over(old: nn.Module, new: nn.Module, spec: Spec, init: str) -> None:
    """Give a new layer the parameters of the old one, and initialize its weights over the algebra.

    Parameters that are not weights over an algebra, such as biases and the tables of embeddings, remain the same
    `Parameter` objects, so other modules may share them. If the layer writes its channels in parts, its bias is
    reordered, which makes a copy.

    Args:
        old: The real layer.
        new: The layer that `build` made from it.
        spec: What the layer becomes.
        init: "scale": the outputs of the new layer have the variance of the outputs of the old one, for inputs of
            independent numbers. A layer whose weights are zero stays zero, except a head with a TupleNorm. "glorot":
            the weights stay as the new layer initialized them.
    """
    layer = core(new)
    over = {id(getattr(owner, weight.name)) for _, owner, weight in weights_over_algebra(layer)}
    for path, owner, weight in weights_over_algebra(layer):
        source = old.get_submodule(path)
        parameter = getattr(owner, weight.name)
        given = weight_of(source, weight.name)
        parameter.requires_grad_(getattr(source, weight.name).requires_grad)
        if init == "scale":
            keep_scale(parameter, given, weight, _groups(source), _groups(owner))
            if spec.head == "tuple_norm" and not parameter.is_meta and not parameter.any():
                owner.reset_parameters()  # type: ignore[operator]  # the norm of zero tuples has no gradient
    for path, owner in layer.named_modules():
        source = old.get_submodule(path)
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None and id(parameter) not in over:
                owner._parameters[name] = _carried(getattr(source, name), parameter, owner, spec)


def keep_scale(parameter: Tensor, given: Tensor, weight: AlgebraWeight, groups: int, new_groups: int) -> None:
    """Fill a weight with normal numbers such that outputs have the same variance as with a real weight.

    The variance of an output is the sum of the variances of its terms. In a real layer, an output has ``fan`` terms. In
    a layer over an algebra, each product of tuples adds to a component one term for each entry of the multiplication
    table that gives this component, and its variance is multiplied by the square of the entry. This factor is averaged
    over the components.

    Args:
        parameter: The weight over the algebra, which is changed in place.
        given: The real weight.
        weight: How the weight is stored.
        groups: The number of groups of the real convolution; 1 for other layers.
        new_groups: The number of groups of the convolution over the algebra; 1 for other layers.
    """
    if parameter.is_meta or given.is_meta or not parameter.numel():
        return
    algebra = weight.algebra
    with torch.no_grad():
        tuples = weight.tuples(parameter)
        energy = sum(c * c for *_, c in algebra.terms) / algebra.dim
        fan = _fan(given.shape, weight.transposed, groups)
        new_fan = _fan(tuples.shape[1:], weight.transposed, new_groups) * energy**weight.num_inputs
        roots = [chunk.double().square().mean().sqrt().item() for chunk in given.chunk(weight.stacks)]
        scales = torch.tensor(roots, dtype=torch.float64) * math.sqrt(fan / new_fan)
        per_row = scales.to(tuples).repeat_interleave(tuples.shape[1] // weight.stacks)
        value = torch.randn_like(tuples) * per_row.reshape(1, -1, *[1] * (tuples.dim() - 2))
        parameter.copy_(weight.from_tuples(value))


def _fan(shape: Any, transposed: bool, groups: int) -> int:
    """The number of terms that are summed in one output."""
    first, *rest = shape
    return first // groups * math.prod(rest[1:]) if transposed else math.prod(rest)


def _groups(layer: nn.Module) -> int:
    return getattr(layer, "groups", 1)


def _carried(given: nn.Parameter, parameter: nn.Parameter, owner: nn.Module, spec: Spec) -> nn.Parameter:
    """The parameter of the old layer in the form of the new layer."""
    algebra, dim = spec.algebra, spec.algebra.dim
    if given.shape == parameter.shape:
        if spec.out_parts is None or given.dim() != 1 or len(given) != sum(spec.out_parts):
            return given
        index = torch.tensor(planar_index(spec.out_parts, algebra), device=given.device)
        return nn.Parameter(given.detach()[index].clone(), given.requires_grad)
    if not algebra_weights(owner) and given.numel() == dim * parameter.numel():  # one scale for each tuple
        ordered = given.detach()
        if spec.out_parts is not None:
            ordered = ordered[torch.tensor(planar_index(spec.out_parts, algebra), device=given.device)]
        return nn.Parameter(ordered.unflatten(0, (dim, -1)).mean(0), given.requires_grad)
    parameter.requires_grad_(given.requires_grad)  # the bias of a head with one tuple for each output
    return parameter
