"""Fewer multiplies: an algebra's product as R products of combinations, as Gauss did for C and Strassen for M2(R).

With combinations u_r of the weight's components and v_r of the input's, ``w . x = sum_r o_r u_r(w) v_r(x)``. Combining
costs additions, and in finite precision some accuracy; a large layer saves multiplies.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

Terms = tuple[tuple[int, int, int, int], ...]
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Bilinear:
    """An algorithm of ``rank`` products. Its coefficients are integers and halves: exact in every precision."""

    #: u: for each product, what it takes of each component of the weight.
    weights: Matrix
    #: v: the same of the input.
    inputs: Matrix
    #: o: for each component of the output, what it takes of each product.
    outputs: Matrix
    #: By what factor its rounding errors exceed those of the plain product, for components that are alike and
    #: independent: the root of the mean squares of all products that an output sums, over those of its terms.
    growth: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = [_square(u) * _square(v) for u, v in zip(self.weights, self.inputs, strict=True)]
        plain: dict[int, float] = defaultdict(float)
        for _, _, k, c in self.terms:
            plain[k] += c**2
        summed = {k: sum(o**2 * size for o, size in zip(self.outputs[k], sizes, strict=True)) for k in plain}
        object.__setattr__(self, "growth", max((math.sqrt(summed[k] / plain[k]) for k in plain), default=1.0))

    @property
    def rank(self) -> int:
        return len(self.weights)

    @property
    def terms(self) -> Terms:
        """The table it multiplies by."""
        table: dict[tuple[int, int, int], float] = defaultdict(float)
        for u, v, o in zip(self.weights, self.inputs, zip(*self.outputs, strict=True), strict=True):
            for (i, a), (j, b), (k, c) in product(_filled(u), _filled(v), _filled(o)):
                table[i, j, k] += a * b * c
        assert all(float(c).is_integer() for c in table.values())
        return tuple(sorted((*place, int(c)) for place, c in table.items() if c))


def find_bilinear(dim: int, terms: Terms) -> Bilinear:
    """The algorithm of the fewest products known here for a table; for most tables one product an entry."""
    if terms in _KNOWN:
        return _KNOWN[terms]
    for first, second in product(_KNOWN.values(), repeat=2):
        if len(first.outputs) * len(second.outputs) == dim:
            composed = _tensor(first, second)
            if composed.terms == terms:
                return composed
    return _by_entries(dim, terms)


def _by_entries(dim: int, terms: Terms) -> Bilinear:
    """The table itself: one product for each pair of components that meet in it."""
    pairs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for i, j, k, c in terms or ((0, 0, 0, 0),):
        pairs[i, j][k] = c
    units = [tuple(float(i == j) for j in range(dim)) for i in range(dim)]
    return Bilinear(
        tuple(units[i] for i, _ in pairs),
        tuple(units[j] for _, j in pairs),
        tuple(tuple(float(out.get(k, 0)) for out in pairs.values()) for k in range(dim)),
    )


def _tensor(a: Bilinear, b: Bilinear) -> Bilinear:
    """The algorithm of a tensor product, whose components are pairs: R of the one for each of the other."""
    return Bilinear(_kronecker(a.weights, b.weights), _kronecker(a.inputs, b.inputs), _kronecker(a.outputs, b.outputs))


def _kronecker(a: Matrix, b: Matrix) -> Matrix:
    return tuple(tuple(x * y for x in row for y in other) for row in a for other in b)


def _matrices_of_matrices(a: Bilinear, m: int, b: Bilinear, n: int) -> Bilinear:
    """m x m matrices of n x n matrices, read as matrices of mn rows."""
    composed = _tensor(a, b)
    # Each entry's place among the pairs, (outer row, outer column, inner row, inner column), row by row.
    places = [((p * m + q) * n + r) * n + s for p, r, q, s in product(range(m), range(n), range(m), range(n))]

    def entries(rows: Matrix) -> Matrix:
        return tuple(tuple(row[place] for place in places) for row in rows)

    outputs = tuple(composed.outputs[place] for place in places)
    return Bilinear(entries(composed.weights), entries(composed.inputs), outputs)


def _square(row: Iterable[float]) -> float:
    return sum(c**2 for c in row)


def _filled(row: Iterable[float]) -> list[tuple[int, float]]:
    return [(i, c) for i, c in enumerate(row) if c]


def _parse(text: str) -> Bilinear:
    """One product a line: what it takes of the weight, what of the input, and where it goes; a half of it for "/ 2"."""
    weights, inputs, outputs = [], [], []
    for line in text.strip().splitlines():
        entries, _, divisor = line.partition("/")
        w, x, y = ([int(c) for c in part.split()] for part in entries.split("|"))
        weights.append(tuple(c / int(divisor or 1) for c in w))
        inputs.append(tuple(map(float, x)))
        outputs.append(map(float, y))
    return Bilinear(tuple(weights), tuple(inputs), tuple(zip(*outputs, strict=True)))


#: C, after Golub.
_C = _parse("""
     1  1 | 1  0 | 1  1
     1  0 |-1  1 | 0  1
     0  1 | 1  1 |-1  0
""")

#: The quaternions: eight products, as Howell and Lafon found that there need be no more.
_H = _parse("""
     1  1  0  0 | 1  1  0  0 | 0  1  0  0
     0  0 -1  1 | 0  0  1 -1 | 1  0  0  0
     1 -1  0  0 | 0  0  1  1 | 0  0  1  0
     0  0  1  1 | 1 -1  0  0 | 0  0  0  1
     0  1  0  1 | 0  1  1  0 |-1 -1  1  1 / 2
     0  1  0 -1 | 0  1 -1  0 |-1 -1 -1 -1 / 2
     1  0  1  0 | 1  0  0 -1 | 1 -1  1 -1 / 2
     1  0 -1  0 | 1  0  0  1 | 1 -1 -1  1 / 2
""")

#: 2 x 2 matrices: Strassen's.
_M2 = _parse("""
     1  0  0  1 | 1  0  0  1 | 1  0  0  1
     0  0  1  1 | 1  0  0  0 | 0  0  1 -1
     1  0  0  0 | 0  1  0 -1 | 0  1  0  1
     0  0  0  1 |-1  0  1  0 | 1  0  1  0
     1  1  0  0 | 0  0  0  1 |-1  1  0  0
    -1  0  1  0 | 1  1  0  0 | 0  0  0  1
     0  1  0 -1 | 0  0  1  1 | 1  0  0  0
""")

#: 3 x 3 matrices: Laderman's.
_M3 = _parse("""
     1  1  1 -1 -1  0  0 -1 -1 | 0  0  0  0  1  0  0  0  0 | 0  1  0  0  0  0  0  0  0
     1  0  0 -1  0  0  0  0  0 | 0 -1  0  0  1  0  0  0  0 | 0  0  0  1  1  0  0  0  0
     0  0  0  0  1  0  0  0  0 |-1  1  0  1 -1 -1 -1  0  1 | 0  0  0  1  0  0  0  0  0
    -1  0  0  1  1  0  0  0  0 | 1 -1  0  0  1  0  0  0  0 | 0  1  0  1  1  0  0  0  0
     0  0  0  1  1  0  0  0  0 |-1  1  0  0  0  0  0  0  0 | 0  1  0  0  1  0  0  0  0
     1  0  0  0  0  0  0  0  0 | 1  0  0  0  0  0  0  0  0 | 1  1  1  1  1  0  1  0  1
    -1  0  0  0  0  0  1  1  0 | 1  0 -1  0  0  1  0  0  0 | 0  0  1  0  0  0  1  0  1
    -1  0  0  0  0  0  1  0  0 | 0  0  1  0  0 -1  0  0  0 | 0  0  0  0  0  0  1  0  1
     0  0  0  0  0  0  1  1  0 |-1  0  1  0  0  0  0  0  0 | 0  0  1  0  0  0  0  0  1
     1  1  1  0 -1 -1 -1 -1  0 | 0  0  0  0  0  1  0  0  0 | 0  0  1  0  0  0  0  0  0
     0  0  0  0  0  0  0  1  0 |-1  0  1  1 -1 -1 -1  1  0 | 0  0  0  0  0  0  1  0  0
     0  0 -1  0  0  0  0  1  1 | 0  0  0  0  1  0  1 -1  0 | 0  1  0  0  0  0  1  1  0
     0  0  1  0  0  0  0  0 -1 | 0  0  0  0  1  0  0 -1  0 | 0  0  0  0  0  0  1  1  0
     0  0  1  0  0  0  0  0  0 | 0  0  0  0  0  0  1  0  0 | 1  1  1  1  0  1  1  1  0
     0  0  0  0  0  0  0  1  1 | 0  0  0  0  0  0 -1  1  0 | 0  1  0  0  0  0  0  1  0
     0  0 -1  0  1  1  0  0  0 | 0  0  0  0  0  1  1  0 -1 | 0  0  1  1  0  1  0  0  0
     0  0  1  0  0 -1  0  0  0 | 0  0  0  0  0  1  0  0 -1 | 0  0  0  1  0  1  0  0  0
     0  0  0  0  1  1  0  0  0 | 0  0  0  0  0  0 -1  0  1 | 0  0  1  0  0  1  0  0  0
     0  1  0  0  0  0  0  0  0 | 0  0  0  1  0  0  0  0  0 | 1  0  0  0  0  0  0  0  0
     0  0  0  0  0  1  0  0  0 | 0  0  0  0  0  0  0  1  0 | 0  0  0  0  1  0  0  0  0
     0  0  0  1  0  0  0  0  0 | 0  0  1  0  0  0  0  0  0 | 0  0  0  0  0  1  0  0  0
     0  0  0  0  0  0  1  0  0 | 0  1  0  0  0  0  0  0  0 | 0  0  0  0  0  0  0  1  0
     0  0  0  0  0  0  0  0  1 | 0  0  0  0  0  0  0  0  1 | 0  0  0  0  0  0  0  0  1
""")

_DUAL = _parse("""
     1  0 | 1  0 | 1  0
     1  0 | 0  1 | 0  1
     0  1 | 1  0 | 0  1
""")

_CROSS = _parse("""
     0  1  1 | 1 -1  0 | 1  1  0 / 2
     1  1  0 | 0  1 -1 | 0  1  1 / 2
     0  1  0 |-1  0  1 | 1  0  1
     0 -1  1 | 1  1  0 |-1  1  0 / 2
     1 -1  0 | 0  1  1 | 0 -1  1 / 2
""")

#: An algorithm is found by the table it computes.
_KNOWN = {known.terms: known for known in (_C, _H, _M2, _M3, _matrices_of_matrices(_M2, 2, _M2, 2), _DUAL, _CROSS)}
