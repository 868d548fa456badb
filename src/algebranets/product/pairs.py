"""`dot`: sums of products of the tuples of two activations, neither of which is a weight."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, stack

from algebranets.algebra import Algebra
from algebranets.ops.device import sum_dtype
from algebranets.product import reference


def dot(
    x: Float[Tensor, "*batch left"], y: Float[Tensor, "*batch right"], *, algebra: Algebra, lowering: str = "auto"
) -> Float[Tensor, "*batch out"]:
    """Return sums of products of the tuples of two activations: ``z_o = sum_n x_on . y_n``.

    One matrix product for each row of the batch multiplies all pairs of components. The multiplication table says
    which of the products to add.

    Args:
        x: Planar features, (..., features), with the tuples x_on in order of o and then n.
        y: Planar features, (..., features), with the tuples y_n and the same batch axes.
        algebra: The algebra whose product is taken.
        lowering: "reference" for the definition, which multiplies only the pairs of components in the table. All other
            values mean the matrix products above.

    >>> import torch
    >>> from algebranets.algebra import C
    >>> i = torch.tensor([0.0, 1.0])
    >>> dot(i, torch.tensor([3.0, 4.0]), algebra=C)  # i (3 + 4i) = -4 + 3i
    tensor([-4.,  3.])
    """
    if lowering == "reference":
        return reference.dot(x, y, algebra)
    num = y.shape[-1] // algebra.dim
    left = x.unflatten(-1, (algebra.dim, -1, num))
    right = y.unflatten(-1, (1, algebra.dim, num))
    pairs = right @ left.mT  # (..., component of x, component of y, out)
    parts = [row.unbind(-2) for row in pairs.to(sum_dtype(pairs)).unbind(-3)]
    place = {component: place for place, component in enumerate(algebra.order)}
    sums = reference.over_table(lambda i, j: parts[place[i]][place[j]], algebra)
    return stack([sums[k] for k in algebra.order], -2).flatten(-2).to(pairs.dtype)
