"""The Cholesky factor of each tuple's covariance, finite and invertible whatever was rounded before.

Matrices of all tuples lie side by side, (component, component, tuple), so that each step is one operation for all of
them; torch's own factorization wants the tuple first, and fails where rounding has made a covariance indefinite.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def cholesky(covariance: Float[Tensor, "comp comp chan"], eps: Float[Tensor, " chan"]) -> list[Tensor]:
    """The lower triangle L with L L^T = covariance + eps, as columns from the diagonal down, (A - j, tuples) each.

    Row i of L splits the variance of component i into what it shares with each component before it and a rest, its
    pivot. A share is limited to what the component has left, less a floor of its own rounding, so no pivot vanishes.
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
    """``matrix`` times the inverse of a lower triangle from `cholesky`, by substitution from the last column."""
    columns: list[Tensor] = []
    for j in reversed(range(len(lower))):
        column = matrix[:, j]
        for k, later in enumerate(columns):
            column = column - later * lower[j][k + 1]
        columns.insert(0, column / lower[j][0])
    return torch.stack(columns, 1)
