"""Functions that construct algebras from numbers, groups and other algebras."""

from __future__ import annotations

from collections.abc import Sequence

from algebranets import checks
from algebranets.algebra.exact import solve
from algebranets.algebra.table import Products, check_dim
from algebranets.algebra.value import Algebra

REALS = Algebra("R", ("a",), ((0, 0, 0, 1),))


def matrix(n: int, over: Algebra = REALS) -> Algebra:
    """The n x n matrices over an algebra: M_n(R), M_n(C), M_n(H), ... Components are the entries, row by row.

    Args:
        n: The number of rows and columns, at least 1.
        over: The algebra of the entries; the real numbers by default.

    >>> matrix(2).name, matrix(2, over=matrix(3)).dim
    ('M2R', 36)
    """
    checks.whole("n", n, least=1)
    _check_algebras(over)
    check_dim(n * n * over.dim)
    units = Algebra.from_products(
        f"M{n}R",
        {(p * n + q, q * n + r): {p * n + r: 1} for p in range(n) for q in range(n) for r in range(n)},
        n * n,
    )
    return tensor(units, over, name=f"M{n}{over.name}")


def diagonal(n: int) -> Algebra:
    """The diagonal algebra: n real numbers that are multiplied component by component.

    Args:
        n: The number of components, at least 1.

    >>> print(diagonal(2).table())
    diagonal(2) | a b
    ------------+----
              a | a 0
              b | 0 b
    """
    checks.whole("n", n, least=1)
    check_dim(n)
    return Algebra.from_products(f"diagonal({n})", {(k, k): {k: 1} for k in range(n)}, n)


def clifford(p: int, q: int = 0, r: int = 0) -> Algebra:
    """The Clifford algebra with p + q + r generators. It has 2^(p+q+r) components.

    Components are the products of generators, in binary order: 1, e1, e2, e1e2, e3, ...

    Args:
        p: The number of generators that square to +1.
        q: The number of generators that square to -1.
        r: The number of generators that square to 0.

    >>> clifford(0, 2).terms == cayley_dickson(2).terms  # the quaternions
    True
    """
    for letter, count in (("p", p), ("q", q), ("r", r)):
        checks.whole(letter, count, least=0)
    _check_doublings(p + q + r)
    dim = 2 ** (p + q + r)
    negative = sum(1 << g for g in range(p, p + q))
    null = sum(1 << g for g in range(p + q, p + q + r))
    products: Products = {}
    for i in range(dim):
        above = [i >> (g + 1) for g in range(p + q + r)]  # generators of i to the right of each generator of j
        for j in range(dim):
            if not i & j & null:
                swaps = sum(above[g].bit_count() for g in _bits(j)) + (i & j & negative).bit_count()
                products[i, j] = {i ^ j: -1 if swaps % 2 else 1}
    return Algebra.from_products(f"clifford({p},{q},{r})", products, dim)


def cayley_dickson(levels: int) -> Algebra:
    """The Cayley-Dickson algebra: R, C, H, the octonions, the sedenions, ...

    Each level doubles the components: (a, b)(c, d) = (a c - d̄ b, d a + b c̄). A pair (a, b) is stored as the components
    of a, then those of b.

    Args:
        levels: The number of doublings, starting from the real numbers: 0 for R, 1 for C, 2 for H, 3 for the octonions.

    >>> octonions = cayley_dickson(3)
    >>> octonions.dim, octonions.associative, octonions.conjugation is not None
    (8, False, True)
    """
    checks.whole("levels", levels, least=0)
    _check_doublings(levels)
    products: Products = {(0, 0): {0: 1}}
    for level in range(levels):
        n = 2**level

        def times(i: int, j: int, sign: int, shift: int, half: Products = products) -> dict[int, int]:
            return {k + shift: sign * c for k, c in half[i, j].items()}

        def bar(k: int) -> int:
            return -1 if k else 1

        products = {
            pair: out
            for i in range(n)
            for j in range(n)
            for pair, out in (
                ((i, j), times(i, j, 1, 0)),
                ((i + n, j + n), times(j, i, -bar(j), 0)),
                ((i, j + n), times(j, i, 1, n)),
                ((i + n, j), times(i, j, bar(j), n)),
            )
        }
    return Algebra.from_products(f"cayley_dickson({levels})", products, 2**levels)


def group_algebra(cayley: Sequence[Sequence[int]], name: str | None = None) -> Algebra:
    """The algebra of a finite group: one component for each element of the group.

    Args:
        cayley: The group's table: ``cayley[g][h]`` is the number of the element g h. Elements are numbered from 0.
        name: The algebra's name; "group(n)" by default, with n the order of the group.

    >>> print(group_algebra([[0, 1], [1, 0]], name="Z2").table())
    Z2 | a b
    ---+----
     a | a b
     b | b a
    """
    order = len(cayley)
    check_dim(order)
    everyone = list(range(order))
    for g, row in enumerate(cayley):
        if sorted(row) != everyone:
            raise ValueError(f"row {g} of the Cayley table must hold each of 0 to {order - 1} once; got {list(row)}.")
    algebra = Algebra.from_products(
        name or f"group({order})", {(g, h): {cayley[g][h]: 1} for g in everyone for h in everyone}, order
    )
    if not algebra.associative or algebra.unit is None:
        raise ValueError("the Cayley table is not that of a group: it must be associative and have a neutral element.")
    return algebra


def cyclic(n: int) -> Algebra:
    """The algebra of the cyclic group of n elements: a product is a circular convolution.

    Args:
        n: The number of elements, at least 1.

    >>> cyclic(3).multiplies, cyclic(3).commutative
    (9, True)
    """
    checks.whole("n", n, least=1)
    check_dim(n)
    return group_algebra([[(g + h) % n for h in range(n)] for g in range(n)], name=f"cyclic({n})")


def direct_sum(*parts: Algebra) -> Algebra:
    """The direct sum of algebras: an element has one part from each of them, and products are taken part by part.

    Args:
        parts: The algebras, at least one.

    >>> direct_sum(cayley_dickson(1), diagonal(2)).dim
    4
    """
    if not parts:
        raise ValueError("direct_sum needs at least one algebra.")
    _check_algebras(*parts)
    check_dim(sum(part.dim for part in parts))
    products: Products = {}
    offset = 0
    for part in parts:
        for i, j, k, c in part.terms:
            products.setdefault((i + offset, j + offset), {})[k + offset] = c
        offset += part.dim
    return Algebra.from_products("+".join(part.name for part in parts), products, offset)


def tensor(outer: Algebra, inner: Algebra, name: str | None = None) -> Algebra:
    """The tensor product of two algebras: tuples of ``outer`` whose entries are elements of ``inner``.

    Args:
        outer: The algebra of the tuples.
        inner: The algebra of their entries. Its components are innermost.
        name: The name of the result; the two names joined by "*" by default.

    >>> tensor(cayley_dickson(2), cayley_dickson(1), name="biquaternions").multiplies
    64
    """
    _check_algebras(outer, inner)
    check_dim(outer.dim * inner.dim)
    products: Products = {}
    for i, j, k, c in outer.terms:
        for u, v, w, d in inner.terms:
            out = products.setdefault((i * inner.dim + u, j * inner.dim + v), {})
            out[k * inner.dim + w] = c * d
    return Algebra.from_products(name or f"{outer.name}*{inner.name}", products, outer.dim * inner.dim)


def opposite(algebra: Algebra) -> Algebra:
    """The opposite algebra, in which x . y is the product y . x of the given algebra.

    Args:
        algebra: The algebra.

    >>> opposite(cayley_dickson(2)).products[1, 2] == cayley_dickson(2).products[2, 1]
    True
    """
    _check_algebras(algebra)
    products = {(j, i): out for (i, j), out in algebra.products.items()}
    return Algebra.from_products(f"opposite({algebra.name})", products, algebra.components)


def change_basis(algebra: Algebra, basis: Sequence[Sequence[int]], name: str) -> Algebra:
    """Write an algebra in another basis.

    Args:
        algebra: The algebra.
        basis: The new components. Row n is the n-th one, as whole coefficients of the old components.
        name: The name of the result.

    >>> split_complex = change_basis(diagonal(2), [[1, 1], [1, -1]], name="split-complex")
    >>> split_complex.terms == cyclic(2).terms
    True
    """
    _check_algebras(algebra)
    if len(basis) != algebra.dim or any(len(row) != algebra.dim for row in basis):
        raise ValueError(f"a basis of {algebra.name} must be {algebra.dim} rows of {algebra.dim} whole numbers.")
    new = [{k: c for k, c in enumerate(row) if c} for row in basis]
    products: Products = {}
    for i, x in enumerate(new):
        for j, y in enumerate(new):
            product = algebra.multiply(x, y)
            rows = [{n: row[k] for n, row in enumerate(new) if k in row} for k in range(algebra.dim)]
            coefficients = solve([(row, product.get(k, 0)) for k, row in enumerate(rows)], algebra.dim)
            if coefficients is None:
                raise ValueError("the rows of the basis must be linearly independent; they are not.")
            if any(c.denominator != 1 for c in coefficients):
                raise ValueError(
                    f"in the new basis, the product of components {i} and {j} must be a whole combination; "
                    f"it is ({', '.join(map(str, coefficients))}). Scale the basis."
                )
            products[i, j] = {k: int(c) for k, c in enumerate(coefficients) if c}
    return Algebra.from_products(name, products, algebra.dim)


def _bits(number: int) -> list[int]:
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def _check_doublings(count: int) -> None:
    """Raise an error if 2^count components are too many, without computing a huge power."""
    check_dim(2 ** min(count, 64))


def _check_algebras(*given: Algebra) -> None:
    for one in given:
        if not isinstance(one, Algebra):
            raise ValueError(f"an algebra must be an Algebra, such as algebranets.C; got {one!r}.")
