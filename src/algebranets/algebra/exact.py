"""Linear equations solved in fractions."""

from __future__ import annotations

from fractions import Fraction


def solve(equations: list[tuple[dict[int, int], int]], num_unknowns: int) -> tuple[Fraction, ...] | None:
    """The one solution of a system of sparse linear equations, or None where there is none or more than one."""
    pivots: dict[int, tuple[dict[int, Fraction], Fraction]] = {}
    for row, rhs in equations:
        left, right = {k: Fraction(v) for k, v in row.items()}, Fraction(rhs)
        for unknown in sorted(left):
            if unknown in pivots and left.get(unknown):
                factor, (pivot, value) = left[unknown], pivots[unknown]
                left = {k: left.get(k, Fraction(0)) - factor * pivot.get(k, Fraction(0)) for k in {*left, *pivot}}
                right -= factor * value
        left = {k: v for k, v in left.items() if v}
        if not left:
            if right:
                return None
            continue
        lead = min(left)
        left, right = {k: v / left[lead] for k, v in left.items()}, right / left[lead]
        for unknown, (pivot, value) in pivots.items():
            factor = pivot.get(lead, Fraction(0))
            reduced = {k: pivot.get(k, Fraction(0)) - factor * left.get(k, Fraction(0)) for k in {*pivot, *left}}
            pivots[unknown] = {k: v for k, v in reduced.items() if v}, value - factor * right
        pivots[lead] = left, right
    if len(pivots) < num_unknowns:
        return None
    return tuple(pivots[k][1] for k in range(num_unknowns))
