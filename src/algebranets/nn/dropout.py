"""Dropout of whole tuples. Component-wise dropout, which the paper uses, is `torch.nn.Dropout` itself."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra


class TupleDropout(nn.Module):
    """`torch.nn.Dropout` that zeroes all components of a tuple together; ``dim`` is the channel axis."""

    def __init__(self, p: float = 0.5, dim: int = -1, *, algebra: Algebra | str) -> None:
        super().__init__()
        self.p, self.dim = checks.share("p", p), checks.whole("dim", dim)
        self.algebra = algebras.get(algebra)

    def forward(self, x: Tensor) -> Tensor:
        dim = product.tuple_axis(x, self.algebra, self.dim)
        channels = x.shape[dim] // self.algebra.dim
        keep = F.dropout(x.new_ones(*x.shape[:dim], 1, channels, *x.shape[dim + 1 :]), self.p, self.training)
        return (x.unflatten(dim, (self.algebra.dim, channels)) * keep).flatten(dim, dim + 1)

    def extra_repr(self) -> str:
        return f"p={self.p}, dim={self.dim}, algebra={self.algebra.name}"
