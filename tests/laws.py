"""Two laws of tuples: multiplication of all tuples on the right, and permutation of whole tuples."""

import torch

import algebranets as an


def times(x, q, algebra, dim):
    """Multiply every tuple of ``x`` on its right by the tuple ``q``. ``dim`` is the channel axis."""
    t = an.tuples(x, algebra, dim).movedim(dim if dim >= 0 else dim - 1, 0)
    y = torch.zeros_like(t)
    for i, j, k, c in algebra.terms:
        y[k] += c * t[i] * q[j]
    return an.from_tuples(y.movedim(0, dim if dim >= 0 else dim - 1), algebra, dim if dim >= 0 else dim - 1)


def permuted(x, order, algebra, dim):
    """Put the tuples of ``x`` in another order. ``dim`` is the channel axis."""
    axis = dim % x.dim()
    t = x.unflatten(axis, (algebra.dim, -1))
    return t.index_select(axis + 1, order).flatten(axis, axis + 1)
