"""`GLU`, a gate of whole tuples."""

from __future__ import annotations

from torch import Tensor, nn

from algebranets import checks
from algebranets.algebra import Algebra
from algebranets.nn import functional
from algebranets.nn.layer import REQUIRED, Layer


class GLU(Layer, nn.GLU):
    """`torch.nn.GLU` for tuples: ``value * sigmoid(gate)``, component by component.

    The first half of the tuples are values, the second half are gates. Over R it is `torch.nn.GLU`.

    Args:
        dim: The channel axis, -1 by default; 1 for images. It must hold an even number of tuples.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.GLU(algebra=an.H)(torch.randn(2, 24)).shape
    torch.Size([2, 12])
    """

    reason = (
        "torch.nn.GLU takes the first half of the channels as values and the second half as gates, so some "
        "components of each tuple become values and the others become gates."
    )

    def __init__(self, dim: int = -1, *, algebra: Algebra | str = REQUIRED) -> None:
        over = self.resolve(algebra)
        super().__init__(checks.whole("dim", dim))
        self.algebra = over

    def forward(self, input: Tensor) -> Tensor:
        return functional.glu(input, self.dim, algebra=self.algebra)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"
