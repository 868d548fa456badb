"""Rank and linear equations in numbers of any kind: whole numbers and fractions give exact results, floats do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any


def rank(rows: Iterable[Mapping[int, Any]], tolerance: float = 0) -> int:
    """The number of linearly independent rows of a sparse matrix.

    Args:
        rows: The rows, ``{column: number}``.
        tolerance: For floats: a row counts as zero if, after multiples of other rows were subtracted, it is smaller
            than this share of its original size.
    """
    pivots: dict[int, dict[int, Any]] = {}
    for row in rows:
        left = {k: _divisible(v) for k, v in row.items() if v}
        least = tolerance * max(map(abs, left.values()), default=0)
        for lead, pivot in pivots.items():
            if factor := left.get(lead):
                left = {k: left.get(k, 0) - factor * pivot.get(k, 0) for k in {*left, *pivot}}
                left = {k: v for k, v in left.items() if k != lead and abs(v) > least}
        if left:
            lead = max(left, key=lambda k: abs(left[k]))
            pivots[lead] = {k: v / left[lead] for k, v in left.items()}
    return len(pivots)


def solve_all(matrix: Sequence[Sequence[Any]], rhs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The solution X of the equations M X = B for an invertible matrix M.

    Args:
        matrix: M, row by row.
        rhs: B, row by row.
    """
    size = len(matrix)
    rows = [[_divisible(v) for v in (*left, *right)] for left, right in zip(matrix, rhs, strict=True)]
    for j in range(size):
        best = max(range(j, size), key=lambda r: abs(rows[r][j]))
        rows[j], rows[best] = rows[best], rows[j]
        pivot = rows[j] = [v / rows[j][j] for v in rows[j]]
        for r, row in enumerate(rows):
            if r != j and (factor := row[j]):
                rows[r] = [v - factor * p for v, p in zip(row, pivot, strict=True)]
    return [row[size:] for row in rows]


def _divisible(number: Any) -> Any:
    return number if isinstance(number, float) else Fraction(number)
