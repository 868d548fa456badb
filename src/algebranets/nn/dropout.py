"""`TupleDropout`, which drops whole tuples. The paper uses component-wise dropout, `torch.nn.Dropout`."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.boundary import channel_axis
from algebranets.nn.layer import REQUIRED, Layer


class TupleDropout(Layer):
    """`torch.nn.Dropout` that sets all components of a tuple to zero together.

    Args:
        p: The probability that a tuple is set to zero in training.
        dim: The channel axis: 1 for images (batch, channels, height, width), -1 for features. It must be given.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> y = an.nn.TupleDropout(0.5, dim=-1, algebra=an.H)(torch.ones(1, 400))
    >>> torch.equal(an.tuples(y, an.H).any(1), an.tuples(y, an.H).all(1))
    True
    """

    def __init__(self, p: float = 0.5, *, dim: int = REQUIRED, algebra: Algebra | str = REQUIRED) -> None:
        super().__init__()
        self.algebra = self.resolve(algebra)
        self.p, self.dim = checks.share("p", p), channel_axis(dim, type(self).__name__)

    def forward(self, x: Tensor) -> Tensor:
        dim = product.tuple_axis(x, self.algebra, self.dim)
        channels = x.shape[dim] // self.algebra.dim
        keep = F.dropout(x.new_ones(*x.shape[:dim], 1, channels, *x.shape[dim + 1 :]), self.p, self.training)
        return (x.unflatten(dim, (self.algebra.dim, channels)) * keep).flatten(dim, dim + 1)

    def extra_repr(self) -> str:
        return f"p={self.p}, dim={self.dim}, algebra={self.algebra.name}"
