"""The simple parts of a semisimple algebra, found from its multiplication table.

By Wedderburn's theorem a semisimple algebra is a direct sum of matrix algebras M_n(D), where D is R, C or H.
`find_parts` splits the unit into primitive idempotents, which are the diagonal matrix units, and connects those of the
same part by off-diagonal matrix units. Numbers stay exact fractions while the square roots that occur are rational, as
for all Clifford algebras. Otherwise they become floats.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from algebranets.algebra import elements as el
from algebranets.algebra.elements import TOLERANCE, Element
from algebranets.algebra.linear import rank, solve_all

Terms = tuple[tuple[int, int, int, int], ...]

#: How many random elements to try to split an idempotent.
TRIES = 20


#: The products of the components of R, C and H: ``(i, j, k, sign)`` says that i . j = sign k.
_SCALARS: dict[str, Terms] = {
    "R": ((0, 0, 0, 1),),
    "C": ((0, 0, 0, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, -1)),
    "H": (
        *((0, n, n, 1) for n in range(4)),
        *((n, 0, n, 1) for n in range(1, 4)),
        *((n, n, 0, -1) for n in range(1, 4)),
        *((1, 2, 3, 1), (2, 3, 1, 1), (3, 1, 2, 1), (2, 1, 3, -1), (3, 2, 1, -1), (1, 3, 2, -1)),
    ),
}
_DIMENSIONS = {"R": 1, "C": 2, "H": 4}


@dataclass(frozen=True)
class Part:
    """A matrix algebra M_n(D).

    Args:
        over: D: "R", "C" or "H".
        size: n.

    >>> str(Part("C", 4)), Part("C", 4).dim, Part("C", 4).multiplies
    ('M4(C)', 32, 256)
    """

    over: str
    size: int

    @property
    def dim(self) -> int:
        """The number of real components."""
        return self.size**2 * _DIMENSIONS[self.over]

    @property
    def multiplies(self) -> int:
        """The multiplies of a product by blocks: for each of the n columns, a real matrix of n dim(D) rows."""
        return self.size**3 * _DIMENSIONS[self.over] ** 2

    @property
    def name(self) -> str:
        """The name of the algebra, as in `algebranets.algebra.get`."""
        return f"M{self.size}{self.over}" if self.size > 1 else self.over

    @property
    def terms(self) -> Terms:
        """The table of the algebra. Components are the entries of matrices, row by row."""
        n, dim, scalars = self.size, _DIMENSIONS[self.over], _SCALARS[self.over]
        return tuple(
            sorted(
                ((p * n + q) * dim + i, (q * n + r) * dim + j, (p * n + r) * dim + k, sign)
                for p in range(n)
                for q in range(n)
                for r in range(n)
                for i, j, k, sign in scalars
            )
        )

    def __str__(self) -> str:
        return f"M{self.size}({self.over})" if self.size > 1 else self.over


@dataclass(frozen=True)
class Parts:
    """The simple parts of an algebra, and their matrix units.

    Args:
        parts: The parts, sorted.
        units: For each part and each component of its matrices (entry by entry, row by row), the element of the algebra
            that has a one there. A number is a fraction or a float.
        is_orthogonal: Whether the matrix units are orthogonal to one another in the algebra's own components, and all
            matrix units of a part have the same length.
    """

    parts: tuple[Part, ...]
    units: tuple[Element, ...]
    is_orthogonal: bool

    @property
    def name(self) -> str:
        """The name of the direct sum of the parts, such as "R+M2C"."""
        return "+".join(part.name for part in self.parts)

    @property
    def terms(self) -> Terms:
        """The table of the direct sum of the parts, as in `Algebra.terms`."""
        terms, offset = [], 0
        for part in self.parts:
            terms += [(i + offset, j + offset, k + offset, sign) for i, j, k, sign in part.terms]
            offset += part.dim
        return tuple(terms)

    @property
    def multiplies(self) -> int:
        """The number of real multiplies in a product that is computed part by part."""
        return sum(part.multiplies for part in self.parts)


def find_parts(dim: int, terms: Terms, unit: Sequence[Any] | None, must_be_orthogonal: bool = False) -> Parts | None:
    """The simple parts of an associative algebra, or None if it is not semisimple.

    Args:
        dim: The number of components.
        terms: The table, as in `Algebra.terms`.
        unit: The coefficients of the unit, or None if there is none.
        must_be_orthogonal: Return None also if the matrix units are not orthogonal. This is decided quickly.
    """
    if unit is None:
        return None
    search = _Search(dim, terms, {k: Fraction(c) for k, c in enumerate(unit) if c})
    if search.adjoints is None and (must_be_orthogonal or radical_dim(dim, terms)):
        return None
    return search.parts()


def radical_dim(dim: int, terms: Terms) -> int:
    """The dimension of the radical of an associative algebra: 0 if and only if it is semisimple.

    The radical is the kernel of the trace form (x, y) -> trace of z -> x y z, taken after a unit was added.
    """
    trace: dict[int, int] = defaultdict(int)
    for i, j, k, c in terms:
        trace[i] += c if j == k else 0
    form: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for i, j, k, c in terms:
        form[i][j] += c * trace[k]
    form[dim] = {**trace, dim: dim + 1}  # the added unit
    for i in range(dim):
        form[i][dim] = trace[i]
    return dim + 1 - rank({j: c for j, c in row.items() if c} for row in form.values())


class _Search:
    """The search for matrix units in one algebra.

    If the transposes of left and right multiplications are again multiplications, by the adjoint x* of each element x,
    then the algebra is semisimple, and idempotents with e* = e make everything orthogonal. Otherwise the search takes
    elements without this symmetry.
    """

    def __init__(self, dim: int, terms: Terms, unit: Element) -> None:
        self.dim, self.unit = dim, unit
        self.products: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        self.trace: dict[int, int] = defaultdict(int)
        for i, j, k, c in terms:
            self.products[i][j].append((k, c))
            self.trace[i] += c if j == k else 0
        self.random = random.Random(0)

    # Elements ---------------------------------------------------------------------------------------------------------

    def times(self, *factors: Element) -> Element:
        """The product of elements."""
        left, *others = factors
        for right in others:
            out: Element = defaultdict(int)
            for i, a in left.items():
                row = self.products[i]
                for j, b in right.items():
                    if j in row:
                        ab = a * b
                        for k, c in row[j]:
                            out[k] += c * ab
            left = el.clean(out)
        return left

    @cached_property
    def adjoints(self) -> list[Element] | None:
        """The adjoint of each basis element, or None if one of them has none."""
        found = []
        # {i: {(j, k): c}} and {j: {(i, k): c}}, if e_i e_j contains c e_k.
        by_first: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        by_second: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        for i, row in self.products.items():
            for j, out in row.items():
                for k, c in out:
                    by_first[i][j, k] = by_second[j][i, k] = c
        for i in range(self.dim):
            adjoint: Element = defaultdict(int)
            for (j, k), c in by_second[i].items():
                adjoint[j] += c * self.unit.get(k, 0)
            adjoint = el.clean(adjoint)
            if not (self._is_transposed(by_second, adjoint, i) and self._is_transposed(by_first, adjoint, i)):
                return None
            found.append(adjoint)
        return found

    @staticmethod
    def _is_transposed(multiplications: dict[int, dict[tuple[int, int], int]], adjoint: Element, i: int) -> bool:
        """Whether multiplication by ``adjoint`` is the transpose of multiplication by basis element ``i``."""
        total: dict[tuple[int, int], Any] = defaultdict(int)
        for element, factor in adjoint.items():
            for (j, k), c in multiplications.get(element, {}).items():
                total[k, j] += factor * c
        return {place: c for place, c in total.items() if c} == multiplications.get(i, {})

    def adjoint(self, x: Element) -> Element:
        assert self.adjoints is not None
        return el.total((c, self.adjoints[k]) for k, c in x.items())

    def basis_between(self, e: Element, f: Element) -> Iterator[Element]:
        """The elements e g f that are not zero, for the basis elements g."""
        for g in range(self.dim):
            x = self.times(e, {g: 1}, f)
            if x and (not el.is_inexact(x) or el.size(x) > TOLERANCE):
                yield x

    # Parts ------------------------------------------------------------------------------------------------------------

    def parts(self) -> Parts:
        """All parts, with matrix units of each."""
        waiting = self.split(self.unit)
        found = []
        while waiting:
            first, rest = waiting[0], []
            rows = [(first, first)]
            for other in waiting[1:]:
                connected = self.connect(first, other)
                if connected is None:
                    rest.append(other)
                else:
                    rows.append(connected)
            scalars = self.scalars(first)
            units = [self.times(down, d, across) for down, _ in rows for _, across in rows for d in scalars]
            found.append((Part("RC-H"[len(scalars) - 1], len(rows)), units))
            waiting = rest
        found.sort(key=lambda one: ("RCH".index(one[0].over), one[0].size))
        units_of_all = tuple(unit for _, units in found for unit in units)
        return Parts(tuple(part for part, _ in found), units_of_all, self.adjoints is not None)

    def split(self, e: Element) -> list[Element]:
        """Primitive idempotents that are orthogonal to one another and add up to the idempotent ``e``."""
        halves = self._symmetric_halves(e) if self.adjoints is not None else self._halves(e)
        return [e] if halves is None else [primitive for half in halves for primitive in self.split(half)]

    def _symmetric_halves(self, e: Element) -> tuple[Element, Element] | None:
        """Two orthogonal idempotents f = f* with sum ``e``, or None if e is primitive. Exact ones are preferred."""
        generic = self._symmetric_between(e, self._random_element())
        if el.ratio(generic, e) is not None:
            return None
        if not el.is_inexact(e):
            for g in range(self.dim):
                h = self._symmetric_between(e, {g: 1})
                if not h or el.ratio(h, e) is not None:
                    continue
                roots = self.quadratic(h, e)
                if roots is not None and isinstance(el.sqrt(roots[1] + roots[0] ** 2 / 4), Fraction):
                    return self.halves(el.total([(1, h), (-roots[0] / 2, e)]), e)
        return self.halves(self.centered(generic, e), e)

    def _symmetric_between(self, e: Element, x: Element) -> Element:
        """e (x + x*) e."""
        return self.times(e, el.total([(1, x), (1, self.adjoint(x))]), e)

    def _halves(self, e: Element) -> tuple[Element, Element] | None:
        """Two idempotents with sum ``e`` that are orthogonal to each other, or None if e is primitive."""
        dim = rank(self.basis_between(e, e), TOLERANCE)
        for _ in range(TRIES if dim > 1 else 0):
            h = self.centered(self._random_between(e), e)
            roots = self.quadratic(h, e)
            if roots is None or roots[1] > 0:
                if halves := self.halves(h, e):
                    return halves
            elif dim == 2:
                return None  # eAe is C
            else:  # H or M2(R): elements that anticommute with h square to negative numbers only in H
                x = self._random_between(e)
                x = el.total([(1, x), (-1 / roots[1], self.times(h, x, h))])
                return self.halves(x, e) if el.ratio(self.times(x, x), e) > 0 else None
        if dim > 1:
            raise ValueError(
                "the algebra could not be split into simple parts: the numbers in its table are too large."
            )
        return None

    def _random_between(self, e: Element) -> Element:
        """A random element of eAe."""
        return self.times(e, self._random_element(), e)

    def _random_element(self) -> Element:
        return {k: self.random.uniform(-1, 1) for k in range(self.dim)}

    def halves(self, h: Element, e: Element) -> tuple[Element, Element] | None:
        """Idempotents for the eigenvalues of ``h`` in eAe with positive and with negative real parts, if both exist."""
        half = el.total([(Fraction(1, 2), e), (Fraction(1, 2), self.sign(h, e))])
        if el.is_inexact(half):  # Newton's iteration for x^2 = x removes rounding errors
            square = self.times(half, half)
            half = el.total([(3, square), (-2, self.times(square, half))])
        other = el.total([(1, e), (-1, half)])
        is_trivial = min(el.size(half), el.size(other)) <= TOLERANCE * el.size(e)
        return None if is_trivial else (half, other)

    def centered(self, h: Element, e: Element) -> Element:
        """h minus the mean of its eigenvalues in eAe."""
        mean = self.trace_of(h) / self.trace_of(e)
        return el.total([(1, h), (-mean, e)])

    def trace_of(self, x: Element) -> Any:
        return sum(c * self.trace[k] for k, c in x.items())

    def quadratic(self, h: Element, e: Element) -> tuple[Any, Any] | None:
        """The numbers (a, b) with h^2 = a h + b e, or None if there are none. h is not a multiple of e."""
        square = self.times(h, h)
        hh, he, ee = el.dot(h, h), el.dot(h, e), el.dot(e, e)
        det = hh * ee - he * he
        sh, se = el.dot(square, h), el.dot(square, e)
        a, b = (sh * ee - se * he) / det, (se * hh - sh * he) / det
        rest = el.total([(1, square), (-a, h), (-b, e)])
        scale = max(el.size(square), abs(a) * el.size(h), abs(b) * el.size(e))
        if rest and (not el.is_inexact(rest) or el.size(rest) > TOLERANCE * scale):
            return None
        return (Fraction(0) if abs(a) * el.size(h) <= TOLERANCE * scale else a), b

    def sign(self, h: Element, e: Element) -> Element:
        """The element s of eAe with s^2 = e whose eigenvalues are the signs of the real parts of those of ``h``."""
        roots = self.quadratic(h, e)
        if roots is not None and roots[0] == 0 and roots[1] > 0:
            return el.total([(1 / el.sqrt(roots[1]), h)])
        x = el.total([(1.0, h)])
        for _ in range(100):  # Newton's iteration
            following = el.total([(0.5, x), (0.5, self.inverse(x, e))])
            change = el.size(el.total([(1, following), (-1, x)]))
            x = following
            if change <= 1e-13 * el.size(x):
                break
        return x

    def inverse(self, x: Element, e: Element) -> Element:
        """The inverse of ``x`` in eAe, in floats."""
        whole = el.total([(1, x), (1, self.unit), (-1, e)])  # invertible in A
        columns = [self.times(whole, {j: 1.0}) for j in range(self.dim)]
        matrix = [[float(column.get(k, 0)) for column in columns] for k in range(self.dim)]
        solution = solve_all(matrix, [[float(self.unit.get(k, 0))] for k in range(self.dim)])
        return self.times(e, el.clean({k: value for k, (value,) in enumerate(solution)}), e)

    def connect(self, e: Element, f: Element) -> tuple[Element, Element] | None:
        """Elements v of fAe and u of eAf with u v = e and v u = f, or None if e and f belong to different parts."""
        generic = self.times(e, self._random_element(), f)
        if el.size(generic) <= TOLERANCE:
            return None
        u = max(self.basis_between(e, f), key=el.square)
        if self.adjoints is not None:
            factor = el.ratio(self.times(u, self.adjoint(u)), e)
            u = el.total([(1 / el.sqrt(factor), u)])
            return self.adjoint(u), u
        v = max(self.basis_between(f, e), key=lambda v: el.square(self.times(u, v)))
        d = self.times(u, v)
        factor = el.ratio(d, e)
        if factor is not None:
            return el.total([(1 / factor, v)]), u
        a, b = self.quadratic(d, e) or (0, 0)  # d is in R, C or H: its inverse is (d - a) / b
        return self.times(v, el.total([(1 / b, d), (-a / b, e)])), u

    def scalars(self, e: Element) -> list[Element]:
        """The basis 1, i, j, k of H, 1, i of C or 1 of R in eAe, whose unit is the primitive idempotent ``e``."""
        found = [e]
        for x in self.basis_between(e, e):
            x = el.total([(1, x), (-1, self.adjoint(x))]) if self.adjoints is not None else self.centered(x, e)
            if len(found) == 2:  # keep what anticommutes with i
                x = el.total([(1, x), (1, self.times(found[1], x, found[1]))])
            if len(found) > 2 or el.size(x) <= TOLERANCE * max(el.size(e), 1e-6):
                continue
            square = el.ratio(self.times(x, x), e)
            assert square is not None
            found.append(el.total([(1 / el.sqrt(-square), x)]))
            if len(found) == 3:
                found.append(self.times(found[1], found[2]))
        return found
