"""Algorithms that compute an algebra's product with fewer multiplies, such as Strassen's for M2(R).

With combinations u_r of the weight's components and v_r of the input's, ``w . x = sum_r o_r u_r(w) v_r(x)``. Combining
costs additions and, in finite precision, some accuracy. It saves time in large layers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product

Terms = tuple[tuple[int, int, int, int], ...]
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Bilinear:
    """An algorithm of ``rank`` products.

    The coefficients of known algorithms are multiples of 1/2, which every precision holds exactly.
    """

    #: u: for each product, the coefficient of each component of the weight.
    weights: Matrix
    #: v: for each product, the coefficient of each component of the input.
    inputs: Matrix
    #: o: for each component of the output, the coefficient of each product.
    outputs: Matrix
    #: The rounding error over all outputs, divided by that of the plain product, for independent components of equal
    #: variance. In float32 the sums within products are rounded, so it is the norm of all products that make up the
    #: outputs, divided by the norm of the outputs.
    growth: float = field(repr=False, compare=False)
    #: The value of ``growth`` in half precision. There the plain product rounds only its outputs. The algorithm also
    #: rounds each product and each combination of weights or inputs.
    half_growth: float = field(repr=False, compare=False)

    @property
    def rank(self) -> int:
        return len(self.weights)

    @property
    def terms(self) -> Terms:
        """The table of the product that the algorithm computes, as in `Algebra.terms`."""
        table: dict[tuple[int, int, int], float] = defaultdict(float)
        for u, v, o in zip(self.weights, self.inputs, zip(*self.outputs, strict=True), strict=True):
            for (i, a), (j, b), (k, c) in product(_filled(u), _filled(v), _filled(o)):
                table[i, j, k] += a * b * c
        rounded = {place: round(c) for place, c in table.items()}
        assert all(abs(c - rounded[place]) < 1e-9 for place, c in table.items())
        return tuple(sorted((*place, c) for place, c in rounded.items() if c))


def _algorithm(weights: Matrix, inputs: Matrix, outputs: Matrix) -> Bilinear:
    """The algorithm with these coefficients and the growth of rounding errors that they cause."""
    algorithm = Bilinear(weights, inputs, outputs, 1.0, 1.0)
    plain = [0.0] * len(outputs)
    for _, _, k, c in algorithm.terms:
        plain[k] += c**2
    summed = rounded = 0.0
    for row, own in zip(outputs, plain, strict=True):
        for r, o in _filled(row):
            u, v = _filled(weights[r]), _filled(inputs[r])
            size = o**2 * _square(u) * _square(v)
            summed += size
            rounded += size * (1 + (len(u) > 1) + (len(v) > 1))
        rounded += own if len(_filled(row)) > 1 else 0
    growth, half_growth = math.sqrt(summed / sum(plain)), math.sqrt(rounded / sum(plain))
    return Bilinear(weights, inputs, outputs, growth, half_growth)


def find_bilinear(dim: int, terms: Terms) -> Bilinear:
    """The algorithm with the fewest products that is known here for a table.

    Algorithms are known for C, H, the 2 x 2, 3 x 3 and 4 x 4 real matrices, the dual numbers, the cross product, tensor
    products of two of them, and direct sums of all these. For all other tables it is the table itself, with one product
    for each entry.
    """
    if terms in _KNOWN:
        return _KNOWN[terms]
    if len(summands := _summands(dim, terms)) > 1:
        return _direct_sum(dim, summands, terms)
    for (outer, first), (inner, second) in product(_KNOWN.items(), repeat=2):
        n = len(second.outputs)
        if len(first.outputs) * n == dim and len(outer) * len(inner) == len(terms):
            pairs = [(i * n + u, j * n + v, k * n + w, c * d) for i, j, k, c in outer for u, v, w, d in inner]
            if tuple(sorted(pairs)) == terms:
                return _tensor(first, second)
    return _by_entries(dim, terms)


def _summands(dim: int, terms: Terms) -> list[tuple[int, ...]]:
    """The components split into sets whose elements are multiplied among themselves, or not at all."""
    sets = [{k} for k in range(dim)]
    for i, j, k, _ in terms:
        if not sets[i] is sets[j] is sets[k]:
            joined = sets[i] | sets[j] | sets[k]
            for member in joined:
                sets[member] = joined
    return sorted({tuple(sorted(members)) for members in sets})


def _direct_sum(dim: int, summands: list[tuple[int, ...]], terms: Terms) -> Bilinear:
    """The algorithm for a direct sum: the products of each summand."""
    weights: list[tuple[float, ...]] = []
    inputs: list[tuple[float, ...]] = []
    columns: list[tuple[float, ...]] = []

    def wide(row: Iterable[float], members: tuple[int, ...]) -> tuple[float, ...]:
        by_component = dict(zip(members, row, strict=True))
        return tuple(by_component.get(k, 0.0) for k in range(dim))

    for members in summands:
        place = {k: n for n, k in enumerate(members)}
        own = tuple((place[i], place[j], place[k], c) for i, j, k, c in terms if i in place)
        if not own:  # a component that is always zero
            continue
        part = find_bilinear(len(members), own)
        weights += (wide(row, members) for row in part.weights)
        inputs += (wide(row, members) for row in part.inputs)
        columns += (wide(column, members) for column in zip(*part.outputs, strict=True))
    return _algorithm(tuple(weights), tuple(inputs), tuple(zip(*columns, strict=True)))


def change_basis(algorithm: Bilinear, weights: Matrix, inputs: Matrix, outputs: Matrix) -> Bilinear:
    """The algorithm for the same product in another basis, with the same number of products.

    Args:
        algorithm: The algorithm.
        weights: The change of basis of weights: for each old component, the coefficients of the new ones.
        inputs: The change of basis of inputs, in the same form.
        outputs: The change of basis of outputs: for each new component, the coefficients of the old ones.
    """
    return replace(
        algorithm,
        weights=_times(algorithm.weights, weights),
        inputs=_times(algorithm.inputs, inputs),
        outputs=_times(outputs, algorithm.outputs),
    )


def _times(a: Matrix, b: Matrix) -> Matrix:
    """The product of two matrices. Those of large algebras have many zeros."""
    rows = []
    for row in a:
        total = [0.0] * len(b[0])
        for factor, other in ((c, b[n]) for n, c in _filled(row)):
            total = [x + factor * y for x, y in zip(total, other, strict=True)]
        rows.append(tuple(total))
    return tuple(rows)


def _by_entries(dim: int, terms: Terms) -> Bilinear:
    """The table itself: one product for each pair of components whose product is not zero."""
    pairs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for i, j, k, c in terms:
        pairs[i, j][k] = c
    units = [tuple(float(i == j) for j in range(dim)) for i in range(dim)]
    outputs = [[0.0] * len(pairs) for _ in range(dim)]
    for r, out in enumerate(pairs.values()):
        for k, c in out.items():
            outputs[k][r] = float(c)
    weights, inputs = tuple(units[i] for i, _ in pairs), tuple(units[j] for _, j in pairs)
    sizes: dict[int, list[int]] = defaultdict(list)
    for _, _, k, c in terms:
        sizes[k].append(c**2)
    rounded = sum(sum(squares) * (2 if len(squares) > 1 else 1) for squares in sizes.values())
    half_growth = math.sqrt(rounded / sum(map(sum, sizes.values())))
    return Bilinear(weights, inputs, tuple(map(tuple, outputs)), 1.0, half_growth)


def _tensor(a: Bilinear, b: Bilinear) -> Bilinear:
    """The algorithm for a tensor product: the products of ``b`` for each product of ``a``."""
    return _algorithm(
        _kronecker(a.weights, b.weights), _kronecker(a.inputs, b.inputs), _kronecker(a.outputs, b.outputs)
    )


def _kronecker(a: Matrix, b: Matrix) -> Matrix:
    return tuple(tuple(x * y for x in row for y in other) for row in a for other in b)


def _matrices_of_matrices(a: Bilinear, m: int, b: Bilinear, n: int) -> Bilinear:
    """The algorithm for mn x mn matrices, taken as m x m matrices of n x n matrices."""
    composed = _tensor(a, b)
    # For each matrix entry, row by row, its place in the order (outer row, outer column, inner row, inner column).
    places = [((p * m + q) * n + r) * n + s for p, r, q, s in product(range(m), range(n), range(m), range(n))]

    def entries(rows: Matrix) -> Matrix:
        return tuple(tuple(row[place] for place in places) for row in rows)

    outputs = tuple(composed.outputs[place] for place in places)
    return _algorithm(entries(composed.weights), entries(composed.inputs), outputs)


def _square(filled: Iterable[tuple[int, float]]) -> float:
    return sum(c**2 for _, c in filled)


def _filled(row: Iterable[float]) -> list[tuple[int, float]]:
    return [(i, c) for i, c in enumerate(row) if c]


def _parse(text: str) -> Bilinear:
    """Read an algorithm with one product in each line: coefficients of the weight, of the input, and in each output.

    "/ 2" at the end of a line halves the coefficients of the weight.
    """
    weights, inputs, outputs = [], [], []
    for line in text.strip().splitlines():
        entries, _, divisor = line.partition("/")
        w, x, y = ([int(c) for c in part.split()] for part in entries.split("|"))
        weights.append(tuple(c / int(divisor or 1) for c in w))
        inputs.append(tuple(map(float, x)))
        outputs.append(map(float, y))
    return _algorithm(tuple(weights), tuple(inputs), tuple(zip(*outputs, strict=True)))


#: C: three products, by Golub.
_C = _parse("""
     1  1 | 1  0 | 1  1
     1  0 |-1  1 | 0  1
     0  1 | 1  1 |-1  0
""")

#: H: eight products, by Howell and Lafon.
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

#: 2 x 2 matrices: seven products, by Strassen.
_M2 = _parse("""
     1  0  0  1 | 1  0  0  1 | 1  0  0  1
     0  0  1  1 | 1  0  0  0 | 0  0  1 -1
     1  0  0  0 | 0  1  0 -1 | 0  1  0  1
     0  0  0  1 |-1  0  1  0 | 1  0  1  0
     1  1  0  0 | 0  0  0  1 |-1  1  0  0
    -1  0  1  0 | 1  1  0  0 | 0  0  0  1
     0  1  0 -1 | 0  0  1  1 | 1  0  0  0
""")

#: 3 x 3 matrices: 23 products, by Laderman.
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

#: The known algorithms, by the tables of the products that they compute.
_KNOWN = {known.terms: known for known in (_C, _H, _M2, _M3, _matrices_of_matrices(_M2, 2, _M2, 2), _DUAL, _CROSS)}
