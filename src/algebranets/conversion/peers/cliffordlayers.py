"""Converts layers of cliffordlayers to layers over Clifford algebras."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

from torch import nn as torch_nn

from algebranets import nn
from algebranets.algebra import Algebra, C, change_basis, clifford, opposite
from algebranets.conversion.peers.weights import Tuples, check_plain, class_path, factory, load, stacked_tuples
from algebranets.conversion.peers.wrappers import ComponentsLast

LINEAR = "cliffordlayers.nn.modules.cliffordlinear.CliffordLinear"
CONVS = {f"cliffordlayers.nn.modules.cliffordconv.CliffordConv{n}d": n for n in (1, 2, 3)}
_CUSTOM = "cliffordlayers.models.custom_layers.CliffordConv"
#: Convolutions whose input lacks some components: the number of spatial axes, and the components of the input.
ENCODERS = {f"{_CUSTOM}2dEncoder": (2, range(3)), f"{_CUSTOM}3dEncoder": (3, range(1, 7))}
#: Convolutions whose output lacks some components: the number of spatial axes, and the components of the output.
DECODERS = {f"{_CUSTOM}2dDecoder": (2, range(3)), f"{_CUSTOM}3dDecoder": (3, range(1, 7))}

_FOURIER = "it multiplies Fourier coefficients, each by a weight of its own"
#: Layers with weights that are not converted, with the reason.
KEPT = {f"cliffordlayers.nn.modules.cliffordfourier.CliffordSpectralConv{n}d": _FOURIER for n in (2, 3)}


def knows(module: torch_nn.Module) -> bool:
    """Return whether `from_cliffordlayers` can convert a module or can say why not.

    Args:
        module: Any module.
    """
    return class_path(module) in {LINEAR} | CONVS.keys() | ENCODERS.keys() | DECODERS.keys() | KEPT.keys()


@cache
def signature_algebra(signature: tuple[int, ...]) -> Algebra:
    """Return the algebra whose product w . x is the product x . w of the Clifford algebra, as cliffordlayers has it.

    Components are in the order of cliffordlayers: 1, the generators, the products of two generators, and so on.

    Args:
        signature: The squares of the generators, each 1, -1 or 0. cliffordlayers calls it ``g``.

    >>> [signature_algebra(g).name for g in ((-1,), (1,), (-1, -1))]
    ['C', 'clifford(1,0,0)', 'opposite(clifford(0,2,0))']
    >>> signature_algebra((-1, 1)).name
    'opposite(clifford(-1,1))'
    """
    num = len(signature)
    ours = sorted(range(num), key=lambda g: (1, -1, 0).index(signature[g]))  # their numbers, in our order
    algebra = clifford(*(signature.count(square) for square in (1, -1, 0)))
    blades = [blade for size in range(num + 1) for blade in combinations(range(num), size)]
    basis = []
    for blade in blades:
        places = [ours.index(g) for g in blade]
        swaps = sum(a > b for a, b in combinations(places, 2))
        row = [0] * algebra.dim
        row[sum(1 << place for place in places)] = -1 if swaps % 2 else 1
        basis.append(row)
    is_same = all(row[n] == 1 for n, row in enumerate(basis))
    if not is_same:
        algebra = change_basis(algebra, basis, name=f"clifford{signature}".replace(" ", ""))
    if algebra.commutative:
        return C if algebra.terms == C.terms else algebra
    return opposite(algebra)


def from_cliffordlayers(module: torch_nn.Module) -> ComponentsLast:
    """Return a layer that computes the same as a layer of cliffordlayers, with a copy of its weights.

    The result takes and returns tensors (batch, tuples, ..., components), as in cliffordlayers. Its child ``layer`` is
    the layer of ours, over `signature_algebra` of the signature. docs/coming_from/cliffordlayers.md has an example.

    Args:
        module: `CliffordLinear`, `CliffordConv1d` to `CliffordConv3d`, or one of the encoders and decoders of
            cliffordlayers.models.custom_layers.
    """
    path, name = class_path(module), type(module).__name__
    if path in KEPT:
        raise ValueError(f"{name} of cliffordlayers has no counterpart: {KEPT[path]}.")
    if not knows(module):
        raise ValueError(f"from_cliffordlayers takes linear layers and convolutions of cliffordlayers; got {path}.")
    check_plain(module)
    algebra = signature_algebra(_signature(module))
    in_components, out_components = (parts[path][1] if path in parts else None for parts in (ENCODERS, DECODERS))
    layer = _linear(module, algebra) if path == LINEAR else _conv(module, algebra)
    return ComponentsLast(layer, algebra, in_components, out_components)


def _signature(module: Any) -> tuple[int, ...]:
    signature = tuple(float(square) for square in module.g)
    if any(square not in (1, -1, 0) for square in signature):
        raise ValueError(
            f"{type(module).__name__} has the signature {signature}. Only signatures of 1, -1 and 0 are converted."
        )
    return tuple(int(square) for square in signature)


def _bias(module: Any) -> Tuples | None:
    return None if module.bias is None else Tuples(module.bias.detach(), module.bias.requires_grad)


def _linear(module: Any, algebra: Algebra) -> torch_nn.Module:
    weight, bias = Tuples(module.weight.detach(), module.weight.requires_grad), _bias(module)
    sizes = (algebra.dim * module.in_channels, algebra.dim * module.out_channels)
    layer = nn.Linear(*sizes, bias=bias is not None, **factory(weight, algebra))
    return load(layer, weight, bias, module.training)


def _conv(module: Any, algebra: Algebra) -> torch_nn.Module:
    name = type(module).__name__
    if module.rotation:
        raise ValueError(
            f"{name} has rotation=True: it rotates its input by normalized weights, w . x . w^-1. That is not a "
            "product with a weight over a Clifford algebra."
        )
    if module.groups != 1:
        raise ValueError(
            f"{name} has groups={module.groups}. cliffordlayers' groups separate the components of a multivector, and "
            "ours separate multivectors, so the two compute different things."
        )
    weight, bias = stacked_tuples(list(module.weight)), _bias(module)
    layer_type = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(module.kernel_size) - 1]
    layer = layer_type(
        algebra.dim * module.in_channels, algebra.dim * module.out_channels, module.kernel_size,
        module.stride, module.padding, module.dilation, bias=bias is not None, **factory(weight, algebra),
    )  # fmt: skip
    return load(layer, weight, bias, module.training)
