"""Pruning criteria: measures of a tuple's size. The smallest tuples are pruned first.

The determinant and the eigenvalues are those of left multiplication by the tuple, x -> w . x. Over M_n(R) they are
those of the matrix itself. Over C and H multiplication rotates and scales, so all criteria rank tuples like the norm.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra, Block
from algebranets.nn.activation import block_matrices, determinant

Tuples = Float[Tensor, "comp *rest"]
Sizes = Float[Tensor, "*rest"]


def norm(t: Tuples, algebra: Algebra) -> Sizes:  # noqa: ARG001  # all criteria have the same arguments
    """The L2 norm of the components; for a matrix this is the Frobenius norm.

    Args:
        t: Tuples, with components in table order on the first axis.
        algebra: The algebra.
    """
    return t.norm(dim=0)


def absolute_determinant(t: Tuples, algebra: Algebra) -> Sizes:
    """The absolute value of the determinant. It is zero if and only if the tuple divides zero.

    Args:
        t: Tuples, with components in table order on the first axis.
        algebra: The algebra.
    """
    return determinant(t, algebra).abs()


def smallest_eigenvalue(t: Tuples, algebra: Algebra) -> Sizes:
    """The smallest absolute value of an eigenvalue.

    Args:
        t: Tuples, with components in table order on the first axis.
        algebra: The algebra.
    """
    return _eigenvalues(t, algebra).amin(0)


def largest_eigenvalue(t: Tuples, algebra: Algebra) -> Sizes:
    """The largest absolute value of an eigenvalue.

    Args:
        t: Tuples, with components in table order on the first axis.
        algebra: The algebra.
    """
    return _eigenvalues(t, algebra).amax(0)


#: All criteria, by the names that `Pruner` takes.
CRITERIA: dict[str, Callable[[Tuples, Algebra], Sizes]] = {
    "norm": norm,
    "determinant": absolute_determinant,
    "smallest-eigenvalue": smallest_eigenvalue,
    "largest-eigenvalue": largest_eigenvalue,
}


def _eigenvalues(t: Tuples, algebra: Algebra) -> Float[Tensor, "eigenvalue *rest"]:
    """The absolute values of the eigenvalues, with copies of a block counted once."""
    return torch.cat([_of_block(t, block) for block in algebra.blocks])


def _of_block(t: Tensor, block: Block) -> Tensor:
    matrices = block_matrices(t, block)
    if block.size == 1:
        return matrices[..., 0, 0].abs()[None]
    if block.size > 2:  # a GPU solves them one by one, which is slower than on the CPU
        return torch.linalg.eigvals(matrices.cpu()).abs().movedim(-1, 0).to(t.device)
    (a, b), (c, d) = (row.unbind(-1) for row in matrices.unbind(-2))
    middle, quarter = (a + d) / 2, ((a - d) / 2).square() + b * c
    root = quarter.abs().sqrt()
    both = torch.hypot(middle, root)  # the absolute value of a complex pair
    real = quarter >= 0
    return torch.stack([torch.where(real, (middle + root).abs(), both), torch.where(real, (middle - root).abs(), both)])
