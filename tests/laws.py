"""Laws of layers that keep tuples whole: multiplication on the right, and permutation of whole tuples."""

from functools import partial

import pytest
import torch

import algebranets as an
from algebranets import CROSS, DUAL, M2C, M2R, C, H
from algebranets.algebra import cayley_dickson, diagonal

ASSOCIATIVE = [C, H, M2R, M2C, DUAL, diagonal(4)]
over_associative = pytest.mark.parametrize("algebra", ASSOCIATIVE, ids=str)
over_algebras = pytest.mark.parametrize("algebra", [*ASSOCIATIVE, CROSS, cayley_dickson(3)], ids=str)

#: Assert that two float64 tensors are equal up to rounding.
assert_exact = partial(torch.testing.assert_close, atol=1e-10, rtol=1e-10)


def multiplied(x, y, algebra):
    """The products of tuples with their components on the last axis, term by term."""
    x, y = torch.broadcast_tensors(x, y)
    out = torch.zeros_like(x)
    for i, j, k, c in algebra.terms:
        out[..., k] += c * x[..., i] * y[..., j]
    return out


def times(x, q, algebra, dim):
    """Multiply every tuple of ``x`` on its right by the tuple ``q``. ``dim`` is the channel axis."""
    axis = dim % x.dim()
    t = an.tuples(x, algebra, axis).movedim(axis, -1)
    return an.from_tuples(multiplied(t, q, algebra).movedim(-1, axis), algebra, axis)


def permuted(x, order, algebra, dim):
    """Put the tuples of ``x`` in another order. ``dim`` is the channel axis."""
    axis = dim % x.dim()
    t = x.unflatten(axis, (algebra.dim, -1))
    return t.index_select(axis + 1, order).flatten(axis, axis + 1)


def set_affine(layer, weight, bias):
    """Set the scales and the offsets of a norm, if it has them."""
    with torch.no_grad():
        if getattr(layer, "weight", None) is not None:
            layer.weight.copy_(weight)
        if getattr(layer, "bias", None) is not None:
            layer.bias.copy_(bias)
