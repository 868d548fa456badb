"""Dropout of whole tuples. Component-wise dropout, which the paper uses, is `torch.nn.Dropout` itself."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra


class TupleDropout(nn.Module):
    """`torch.nn.Dropout` that zeroes all components of a tuple together; ``dim`` is the channel axis."""

    def __init__(self, p: float = 0.5, dim: int = -1, *, algebra: Algebra | str) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p must lie between 0 and 1; got {p}.")
        self.p, self.dim = p, dim
        self.algebra = algebras.get(algebra)

    def forward(self, x: Tensor) -> Tensor:
        dim = self.dim % x.dim()
        channels = product.whole_tuples(x.shape[dim], self.algebra, f"the size of axis {dim}")
        keep = F.dropout(x.new_ones(*x.shape[:dim], 1, channels, *x.shape[dim + 1 :]), self.p, self.training)
        return (x.unflatten(dim, (self.algebra.dim, channels)) * keep).flatten(dim, dim + 1)

    def extra_repr(self) -> str:
        return f"p={self.p}, dim={self.dim}, algebra={self.algebra.name}"
