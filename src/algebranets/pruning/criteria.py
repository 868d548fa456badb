"""How large a tuple is: what is smallest is pruned first.

Determinant and eigenvalues are those of multiplication by the tuple, x -> w . x: over M_n(R) of the matrix itself. Over
C and H, where that is a rotation and a scaling, all of them order tuples as the norm does.
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


def norm(t: Tuples, algebra: Algebra) -> Sizes:  # noqa: ARG001, one signature for all of them
    """The L2 norm of the components; of a matrix, Frobenius'."""
    return t.norm(dim=0)


def absolute_determinant(t: Tuples, algebra: Algebra) -> Sizes:
    """Zero just where the tuple divides zero."""
    return determinant(t, algebra).abs()


def smallest_eigenvalue(t: Tuples, algebra: Algebra) -> Sizes:
    """By absolute value."""
    return _eigenvalues(t, algebra).amin(0)


def largest_eigenvalue(t: Tuples, algebra: Algebra) -> Sizes:
    """By absolute value."""
    return _eigenvalues(t, algebra).amax(0)


#: Every criterion by its name.
CRITERIA: dict[str, Callable[[Tuples, Algebra], Sizes]] = {
    "norm": norm,
    "determinant": absolute_determinant,
    "smallest-eigenvalue": smallest_eigenvalue,
    "largest-eigenvalue": largest_eigenvalue,
}


def _eigenvalues(t: Tuples, algebra: Algebra) -> Float[Tensor, "eigenvalue *rest"]:
    """Their absolute values, each block's once."""
    return torch.cat([_of_block(t, block) for block in algebra.blocks])


def _of_block(t: Tensor, block: Block) -> Tensor:
    matrices = block_matrices(t, block)
    if block.size == 1:
        return matrices[..., 0, 0].abs()[None]
    if block.size > 2:  # a GPU's solver takes them one by one, and is slower at it than a CPU's
        return torch.linalg.eigvals(matrices.cpu()).abs().movedim(-1, 0).to(t.device)
    (a, b), (c, d) = (row.unbind(-1) for row in matrices.unbind(-2))
    middle, quarter = (a + d) / 2, ((a - d) / 2).square() + b * c
    root = quarter.abs().sqrt()
    both = torch.hypot(middle, root)  # of a complex pair
    real = quarter >= 0
    return torch.stack([torch.where(real, (middle + root).abs(), both), torch.where(real, (middle - root).abs(), both)])
