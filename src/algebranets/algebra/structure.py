"""The structure of an algebra: whether it is semisimple, and which matrix algebras it consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from algebranets.algebra import elements as el
from algebranets.algebra.parts import Part, Terms, find_parts, radical_dim


@dataclass(frozen=True)
class Structure:
    """The matrix algebras that an algebra consists of.

    By Wedderburn's theorem, a semisimple algebra is a direct sum of matrix algebras over R, C or H.

    Args:
        radical_dim: The dimension of the radical, which is 0 for semisimple algebras, or None if the algebra is not
            associative.
        parts: The simple parts, sorted. Empty unless the algebra is semisimple.
        units: The matrix units of the parts, one for each component of the parts' matrices (part by part, row by row):
            their coefficients in the algebra's own components. These are whole numbers and fractions where that is
            possible, else floats.
        is_orthogonal: Whether the matrix units are orthogonal, and those of one part have the same length.

    >>> import algebranets as an
    >>> structure = an.algebra.clifford(4, 1).structure
    >>> str(structure), structure.multiplies
    ('M4(C)', 256)
    >>> str(an.algebra.cyclic(8).structure), str(an.DUAL.structure)
    ('2 R + 3 C', 'not semisimple: its radical has dimension 1')
    """

    radical_dim: int | None
    parts: tuple[Part, ...] = ()
    units: tuple[tuple[Any, ...], ...] = field(default=(), repr=False)
    is_orthogonal: bool = False

    @property
    def is_semisimple(self) -> bool:
        """Whether the algebra is a direct sum of matrix algebras."""
        return self.radical_dim == 0

    @property
    def is_exact(self) -> bool:
        """Whether ``units`` holds whole numbers and fractions only."""
        return not any(isinstance(number, float) for unit in self.units for number in unit)

    @property
    def multiplies(self) -> int:
        """The number of real multiplies in a product that is computed part by part."""
        return sum(part.multiplies for part in self.parts)

    def __str__(self) -> str:
        if self.radical_dim is None:
            return "not associative"
        if not self.is_semisimple:
            return f"not semisimple: its radical has dimension {self.radical_dim}"
        return " + ".join(f"{n} {part}" if n > 1 else str(part) for part, n in Counter(self.parts).items())


def find_structure(dim: int, terms: Terms, unit: Sequence[Any] | None, is_associative: bool) -> Structure:
    """The structure of an algebra.

    Args:
        dim: The number of components.
        terms: The table, as in `Algebra.terms`.
        unit: The coefficients of the unit, or None if there is none.
        is_associative: Whether the algebra is associative.
    """
    if not is_associative:
        return Structure(None)
    found = find_parts(dim, terms, unit)
    if found is None:
        return Structure(radical_dim(dim, terms))
    units = tuple(tuple(el.whole(one.get(k, 0)) for k in range(dim)) for one in found.units)
    return Structure(0, found.parts, units, found.is_orthogonal)
