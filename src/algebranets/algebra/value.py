"""The `Algebra` value: a multiplication table and its properties, computed in exact arithmetic.

Indices: i, j, k = component of the weight (left factor), of the input (right factor), of the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from reprlib import repr as short_repr
from types import MappingProxyType
from typing import Any

from algebranets.algebra import table as tables
from algebranets.algebra.bilinear import Bilinear, find_bilinear
from algebranets.algebra.blocks import Block, find_blocks
from algebranets.algebra.change import Change, change_to
from algebranets.algebra.exact import is_associative, solve
from algebranets.algebra.parts import find_parts
from algebranets.algebra.structure import Structure, find_structure

#: A read-only combination of components: ``{component: coefficient}`` without zeros.
Combination = Mapping[int, int]

#: The largest absolute value of a table's coefficients: float32 holds every whole number up to it exactly.
MAX_COEFFICIENT = 2**24

#: The number of components above which no matrix algebras are searched for in a new algebra: it would take too long.
MAX_SEARCHED_DIM = 64


@dataclass(frozen=True)
class Algebra:
    """An algebra: tuples of ``dim`` real numbers and a bilinear product, given by a table of whole numbers.

    An algebra holds no tensors, compares and hashes by value, and can be pickled, copied and used as a key. `parse`,
    `from_table` and `load` read its multiplication table.

    Args:
        name: The algebra's name.
        components: The names of the components of a tuple.
        terms: The entries of the table that are not zero, sorted: ``(i, j, k, coefficient)`` says that the product of
            components i (weight) and j (input) has ``coefficient`` times component k. Indices count from 0.

    >>> dual = Algebra.parse('''
    ...     dual | a  b
    ...     -----+------
    ...        a | a  b
    ...        b | b  0
    ... ''')
    >>> dual.dim, dual.multiplies, dual.commutative, dual.unit
    (2, 3, True, (1, 0))
    >>> [(block.num_copies, block.size) for block in dual.blocks]
    [(1, 2)]
    """

    name: str
    components: tuple[str, ...]
    terms: tuple[tuple[int, int, int, int], ...]

    # Layers read these fields in every forward. They are computed at construction, because torch.compile cannot trace a
    # `cached_property`, which takes a lock in Python 3.11.

    #: The blocks of left multiplication: L(w) is block-diagonal, with each `Block` in one or more equal copies.
    blocks: tuple[Block, ...] = field(init=False, repr=False, compare=False)
    #: The order in which activations store components: block by block and copy by copy, so that folding is a view.
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)
    #: Whether there is one block, whose entries are the components, each once, as for M_n(R). Then weights are stored
    #: as rho(w), and nothing has to be built from them.
    folded: bool = field(init=False, repr=False, compare=False)
    #: An algorithm for the product with few multiplies.
    bilinear: Bilinear = field(init=False, repr=False, compare=False)
    #: The algebra over which weights are stored and multiplied: an isomorphic direct sum of matrix algebras, if
    #: products take fewer multiplies there and the change of basis is orthogonal, else the algebra itself.
    stored: Algebra = field(init=False, repr=False, compare=False)
    #: The changes of basis between the algebra and ``stored``, or None if they are the same.
    change: Change | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        dim = len(self.components)
        blocks = find_blocks(dim, self.terms)
        is_square = len(blocks) == 1 and blocks[0].size ** 2 == dim
        entries = sorted(entry for row in blocks[0].entries for entry in row) if is_square else []
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "order", tuple(k for block in blocks for copy in block.copies for k in copy))
        object.__setattr__(self, "folded", entries == [((i, 1),) for i in range(dim)])
        stored, change = self._find_stored()
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "change", change)
        object.__setattr__(self, "bilinear", change.bilinear if change else find_bilinear(dim, self.terms))

    def _find_stored(self) -> tuple[Algebra, Change | None]:
        """The values of ``stored`` and ``change``."""
        cost = self.multiplies_by_blocks
        has_nothing_to_gain = cost == self.dim or self.folded
        if has_nothing_to_gain or self.dim > MAX_SEARCHED_DIM or not self.associative:
            return self, None
        found = find_parts(self.dim, self.terms, self.unit, must_be_orthogonal=True)
        if found is None or found.multiplies >= cost:
            return self, None
        stored = Algebra(found.name, tables.labels(self.dim), found.terms)
        return stored, change_to(found, self.order, stored.order, stored.bilinear)

    def _check(self) -> None:
        tables.check_name(self.name)
        if not isinstance(self.components, tuple) or not isinstance(self.terms, tuple):
            raise ValueError(f"algebra {self.name!r}: components and terms must be tuples; `from_table` takes lists.")
        if not self.components:
            raise ValueError(f"algebra {self.name!r} has no components: its table must have at least one row.")
        tables.check_components(self.components)
        for term in self.terms:
            if not _is_term(term, len(self.components)):
                raise ValueError(
                    f"algebra {self.name!r}: term {short_repr(term)} must be (i, j, k, coefficient) in whole numbers, "
                    f"with indices from 0 to {len(self.components) - 1} and a coefficient from -{MAX_COEFFICIENT} to "
                    f"{MAX_COEFFICIENT} that is not 0."
                )
        if list(self.terms) != sorted({t[:3]: t for t in self.terms}.values()):
            raise ValueError(f"algebra {self.name!r}: terms must be sorted, each (i, j, k) at most once.")
        if not self.terms:
            raise ValueError(
                f"algebra {self.name!r}: every product in its table is zero; at least one must not be, or layers over "
                "it would compute nothing."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the table only. Everything else is derived from it again."""
        return type(self), (self.name, self.components, self.terms)

    # Construction -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_products(
        cls,
        name: str,
        products: Mapping[tuple[int, int], Mapping[int, int]],
        components: Iterable[str] | int,
    ) -> Algebra:
        """An algebra from the products of its components.

        Args:
            name: The algebra's name.
            products: ``products[i, j]`` is the product of components i (weight) and j (input), a combination
                ``{component: coefficient}``. Absent pairs give zero.
            components: The names of the components, or their number.

        >>> Algebra.from_products("dual", {(0, 0): {0: 1}, (0, 1): {1: 1}, (1, 0): {1: 1}}, 2).multiplies
        3
        """
        labels = tables.labels(components) if isinstance(components, int) else tuple(components)
        terms = sorted((i, j, k, c) for (i, j), out in products.items() for k, c in out.items() if c)
        return cls(name, labels, tuple(terms))

    @classmethod
    def from_table(cls, table: Any, name: str | None = None) -> Algebra:
        """An algebra from its multiplication table.

        Args:
            table: Text as `parse` takes it, a list of rows, or a dict; rows are the left factor. An entry of a row is
                text such as "-a", "0" or "a + 2b", or a number: ``k`` or ``-k`` is plus or minus the k-th component,
                counted from 1.
            name: The algebra's name. It is required if the table has none.

        >>> Algebra.from_table([["a", "b"], ["b", "-a"]], name="my C").commutative
        True
        """
        parsed = tables.read(table)
        chosen = name or parsed.name
        if not chosen:
            raise ValueError("the table has no name: write one into its upper left corner or pass name=...")
        return cls.from_products(chosen, parsed.products, parsed.components)

    @classmethod
    def parse(cls, text: str, name: str | None = None) -> Algebra:
        """An algebra from its multiplication table as text.

        Args:
            text: The table as the paper prints it, with the algebra's name in the upper left corner. Rows are the left
                factor, the weight. LaTeX source works too.
            name: The algebra's name. By default it is the one in the table.

        >>> Algebra.parse('''
        ...     split | a b
        ...     ------+----
        ...         a | a b
        ...         b | b a
        ... ''').unit
        (1, 0)
        """
        return cls.from_table(text, name)

    @classmethod
    def load(cls, path: str | Path, name: str | None = None) -> Algebra:
        """An algebra from a file with its multiplication table.

        Args:
            path: A ``.toml``, ``.json`` or ``.txt`` file.
            name: The algebra's name. By default it is the one in the file, or else the file's name.
        """
        path = Path(path)
        table = tables.load(path)
        try:
            parsed = tables.read(table)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return cls.from_products(name or parsed.name or path.stem, parsed.products, parsed.components)

    def to_dict(self) -> dict[str, Any]:
        """The algebra as plain data for JSON; `from_table` reads it back."""
        return {"name": self.name, "components": list(self.components), "terms": [list(term) for term in self.terms]}

    def table(self) -> str:
        """The multiplication table as text, in the form that `parse` reads."""
        cells = [[self.name, *self.components]]
        cells += [[label, *(self._cell(i, j) for j in range(self.dim))] for i, label in enumerate(self.components)]
        first = max(len(row[0]) for row in cells)
        rest = max(len(cell) for row in cells for cell in row[1:])
        lines = [f"{row[0]:>{first}} | " + " ".join(f"{cell:>{rest}}" for cell in row[1:]) for row in cells]
        return "\n".join([lines[0], "-" * (first + 1) + "+" + "-" * (len(lines[0]) - first - 2), *lines[1:]])

    def _cell(self, i: int, j: int) -> str:
        return tables.write_combination(self.products.get((i, j), {}), self.components)

    def __str__(self) -> str:
        return self.name

    # The product ------------------------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """The number of components of a tuple: the paper's "weight size"."""
        return len(self.components)

    @cached_property
    def products(self) -> Mapping[tuple[int, int], Combination]:
        """``products[i, j]`` is the product of components i and j; pairs whose product is zero are absent."""
        products: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for i, j, k, c in self.terms:
            products[i, j][k] = c
        return MappingProxyType({pair: MappingProxyType(out) for pair, out in products.items()})

    def multiply(self, w: Mapping[int, Any], x: Mapping[int, Any]) -> dict[int, Any]:
        """The product w . x of two elements, in exact arithmetic.

        Args:
            w: The left factor, ``{component: coefficient}``.
            x: The right factor, in the same form.

        >>> import algebranets as an
        >>> an.C.multiply({0: 1, 1: 2}, {1: 3})  # (1 + 2i) 3i
        {1: 3, 0: -6}
        """
        out: dict[int, Any] = defaultdict(int)
        for i, wi in w.items():
            for j, xj in x.items():
                for k, c in self.products.get((i, j), {}).items():
                    out[k] += c * wi * xj
        return {k: v for k, v in out.items() if v}

    # Properties -------------------------------------------------------------------------------------------------------

    @cached_property
    def unit(self) -> tuple[int | Fraction, ...] | None:
        """The element 1 with 1 . x = x . 1 = x, or None if there is none, as for the cross product."""
        equations: dict[tuple[bool, int, int], dict[int, int]] = {
            (left, j, k): {} for left in (True, False) for j in range(self.dim) for k in range(self.dim)
        }
        for i, j, k, c in self.terms:
            equations[True, j, k][i] = c  # sum_i u_i e_i . e_j = e_j
            equations[False, i, k][j] = c  # sum_j u_j e_i . e_j = e_i
        rows = {(tuple(sorted(row.items())), int(j == k)) for (_, j, k), row in equations.items()}
        solution = solve([(dict(row), rhs) for row, rhs in sorted(rows)], self.dim)
        return solution and tuple(int(u) if u.denominator == 1 else u for u in solution)

    @cached_property
    def commutative(self) -> bool:
        """Whether x . y = y . x for all x and y."""
        return all(self.products.get((j, i)) == out for (i, j), out in self.products.items())

    @cached_property
    def associative(self) -> bool:
        """Whether (x . y) . z = x . (y . z) for all x, y and z."""
        return is_associative(self.dim, self.terms)

    @cached_property
    def structure(self) -> Structure:
        """The matrix algebras that the algebra consists of, if it is semisimple."""
        return find_structure(self.dim, self.terms, self.unit, self.associative)

    @property
    def multiplies(self) -> int:
        """The number of real multiplies in one product of two tuples, one for each term of the table."""
        return len(self.terms)

    @property
    def multiplies_by_blocks(self) -> int:
        """The number of real multiplies in one product of two tuples by ``blocks``, zeros of rho(w) included."""
        return sum(block.num_copies * block.size**2 for block in self.blocks)

    @property
    def values_loaded(self) -> int:
        """The number of real numbers that are read for one product of two tuples."""
        return 2 * self.dim

    @property
    def weight_reuse(self) -> int | None:
        """The number of output components that one weight component contributes to, or None if it is not constant."""
        reached: list[set[int]] = [set() for _ in self.components]
        for i, _, k, _ in self.terms:
            reached[i].add(k)
        reach = {len(outputs) for outputs in reached}
        return reach.pop() if len(reach) == 1 else None

    @cached_property
    def conjugation(self) -> tuple[Combination, ...] | None:
        """The images of the components under the map x -> x̄ = t(x) 1 - x with x x̄ = n(x) 1, or None.

        Here t(x) and n(x) are real numbers. Such a map exists for C, H, the octonions, M2(R) (the adjugate) and the
        dual numbers, but not for M3(R) or M2(C).
        """
        if self.unit is None:
            return None
        unit = {k: u for k, u in enumerate(self.unit) if u}
        trace: dict[int, int] = defaultdict(int)
        for i, j, k, c in self.terms:
            trace[i] += c if j == k else 0
        images = []
        for i in range(self.dim):
            image = {k: Fraction(2 * trace[i], self.dim) * u for k, u in unit.items()}
            image[i] = image.get(i, Fraction(0)) - 1
            if any(v.denominator != 1 for v in image.values()):
                return None
            images.append(MappingProxyType({k: int(v) for k, v in image.items() if v}))
        for i in range(self.dim):
            for j in range(i + 1):
                x, y = self.multiply({i: 1}, images[j]), self.multiply({j: 1}, images[i])
                total = {k: x.get(k, 0) + y.get(k, 0) for k in {*x, *y}}
                ratios = {Fraction(total.get(k, 0)) / u for k, u in unit.items()}
                if len(ratios) > 1 or any(v for k, v in total.items() if k not in unit):
                    return None
        return tuple(images)


def _is_term(term: Any, dim: int) -> bool:
    if not isinstance(term, tuple) or len(term) != 4 or not all(type(number) is int for number in term):
        return False
    *indices, coefficient = term
    return all(0 <= index < dim for index in indices) and 0 < abs(coefficient) <= MAX_COEFFICIENT
