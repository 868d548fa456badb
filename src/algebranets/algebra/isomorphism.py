"""Isomorphisms between semisimple algebras."""

from __future__ import annotations

from typing import Any

from algebranets.algebra import elements as el
from algebranets.algebra.linear import solve_all
from algebranets.algebra.value import Algebra


def isomorphic(a: Algebra, b: Algebra) -> tuple[tuple[Any, ...], ...] | None:
    """An isomorphism between two semisimple algebras, or None if there is none.

    Args:
        a: A semisimple algebra.
        b: Another semisimple algebra.

    Returns:
        For each component of ``a``, its image as coefficients of the components of ``b``. They are whole numbers and
        fractions if the structures of both are exact, else floats.

    >>> import algebranets as an
    >>> an.algebra.isomorphic(an.algebra.clifford(2, 0), an.M2R)  # 1, e1, e2 and e1e2 as 2 x 2 matrices
    ((1, 0, 0, 1), (1, 0, 0, -1), (0, 1, 1, 0), (0, 1, -1, 0))
    >>> an.algebra.isomorphic(an.H, an.M2R) is None
    True
    """
    for algebra in (a, b):
        if not algebra.structure.is_semisimple:
            raise ValueError(
                f"isomorphic needs semisimple algebras, but {algebra.name} is {algebra.structure}. Compare its table "
                "with the other one."
            )
    if a.structure.parts != b.structure.parts:
        return None
    units, dim = zip(*a.structure.units, strict=True), range(a.dim)
    coefficients = solve_all(list(units), [[int(i == j) for j in dim] for i in dim])  # of a's matrix units
    images = [[sum(coefficients[f][k] * b.structure.units[f][j] for f in dim) for j in dim] for k in dim]
    return tuple(tuple(map(el.whole, image)) for image in images)
