"""Associativity and linear equations, decided exactly in whole numbers and fractions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

#: A combination of basis elements, ``((element, coefficient), ...)``, sorted, without zeros.
Combination = tuple[tuple[int, int], ...]
#: The product of each pair of basis elements; pairs whose product is zero are absent.
Products = Mapping[tuple[int, int], Combination]


def is_associative(dim: int, terms: Iterable[tuple[int, int, int, int]]) -> bool:
    """Whether (x y) z = x (y z) for all elements of the algebra whose table has these sorted ``terms``.

    The elements y for which this holds are closed under the product, so it is enough to try generators for y.
    """
    products: dict[tuple[int, int], Combination] = defaultdict(tuple)
    for i, j, k, c in terms:
        products[i, j] += ((k, c),)
    settled: set[int] = set()
    for middle in range(dim):
        if middle not in settled:
            if not _associates(middle, dim, products):
                return False
            _settle(middle, settled, products)
    return True


def _associates(middle: int, dim: int, products: Products) -> bool:
    """Whether (x m) z = x (m z) for all x and z of the basis, m being the basis element ``middle``."""
    lefts = [products.get((x, middle), ()) for x in range(dim)]
    rights = [products.get((middle, z), ()) for z in range(dim)]
    filled = [z for z, right in enumerate(rights) if right]
    for x, left in enumerate(lefts):
        for z in range(dim) if left else filled:  # else both sides are zero
            if _sum((f, products.get((a, z), ())) for a, f in left) != _sum(
                (f, products.get((x, b), ())) for b, f in rights[z]
            ):
                return False
    return True


def _sum(parts: Iterable[tuple[int, Combination]]) -> Combination:
    """The sum of combinations, each times its factor."""
    total: dict[int, int] = {}
    for factor, combination in parts:
        for k, c in combination:
            total[k] = total.get(k, 0) + factor * c
    return tuple(sorted((k, c) for k, c in total.items() if c))


def _settle(element: int, settled: set[int], products: Products) -> None:
    """Add a basis element to ``settled``, and all basis elements that are, up to a factor, products of settled ones."""
    settled.add(element)
    waiting = [element]
    while waiting:
        new = waiting.pop()
        for other in tuple(settled):
            for pair in ((new, other), (other, new)):
                product = products.get(pair, ())
                if len(product) == 1 and product[0][0] not in settled:
                    settled.add(product[0][0])
                    waiting.append(product[0][0])


def solve(equations: list[tuple[dict[int, int], int]], num_unknowns: int) -> tuple[Fraction, ...] | None:
    """The solution of a system of sparse linear equations, or None if it has none or more than one."""
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
