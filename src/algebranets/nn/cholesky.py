"""The Cholesky factor of each tuple's covariance, finite and invertible despite rounding errors.

The matrices of all tuples are one tensor (component, component, tuple), so each step is one operation for all tuples.
torch's own factorization needs the tuple axis first, and it fails if rounding has made a covariance indefinite.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def cholesky(covariance: Float[Tensor, "comp comp chan"], eps: Float[Tensor, " chan"]) -> list[Tensor]:
    """Return the lower triangle L with L L^T = covariance + eps I, as a list of columns.

    Column j starts at the diagonal and has shape (A - j, tuples). Row i of L splits the variance of component i into
    the parts that it shares with earlier components, and a rest, its pivot. A part is limited to the variance that is
    left, minus a floor for the component's rounding error, so no pivot is zero.
    """
    dim = len(covariance)
    variance = covariance.diagonal().mT + eps
    floor = (8 * dim * torch.finfo(covariance.dtype).eps * variance).detach()
    left = variance
    columns: list[Tensor] = []
    for j in range(dim):
        shared = covariance[j + 1 :, j]
        for k, column in enumerate(columns):
            shared = shared - column[j + 1 - k :] * column[j - k]
        pivot, left = left[:1].sqrt(), left[1:]
        most = (left.detach() - floor[j + 1 :]).clamp(min=0).sqrt()
        below = (shared / pivot).clamp(-most, most)
        left = torch.maximum(left - below.square(), floor[j + 1 :])
        columns.append(torch.cat([pivot, below]))
    return columns


def divide(matrix: Float[Tensor, "row comp chan"], lower: list[Tensor]) -> Float[Tensor, "row comp chan"]:
    """Return ``matrix`` times the inverse of L from `cholesky`, by substitution from the last column."""
    columns: list[Tensor] = []
    for j in reversed(range(len(lower))):
        column = matrix[:, j]
        for k, later in enumerate(columns):
            column = column - later * lower[j][k + 1]
        columns.insert(0, column / lower[j][0])
    return torch.stack(columns, 1)
