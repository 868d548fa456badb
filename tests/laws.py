"""Products of tuples, and two laws: multiplication of all tuples on the right, and permutation of whole tuples."""

import torch

import algebranets as an


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
