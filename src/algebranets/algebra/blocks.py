"""The blocks of left multiplication, found exactly from the table.

L(w), the matrix of left multiplication by w, is block-diagonal: m_1 copies of rho_1(w), then m_2 copies of rho_2(w),
and so on. For M2(R) these are two copies of one 2 x 2 block, because left multiplication never mixes the columns of a
matrix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

#: One entry of a block: the weight components that it sums, ``((component, coefficient), ...)``; empty for zero.
Entry = tuple[tuple[int, int], ...]
Terms = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Block:
    """A square matrix of weight components, rho(w), by which left multiplication acts on some of the components.

    Args:
        copies: The lists of components on which rho(w) acts, each in the order of its rows.
        entries: rho(w), row by row. An entry is ``((component, coefficient), ...)``, a sum of weight components.
        num_weights: The number of components of a weight.

    >>> import algebranets as an
    >>> (block,) = an.M2R.blocks  # [[a, b], [c, d]] acts on the columns (a, c) and (b, d)
    >>> block.copies, block.size
    (((0, 2), (1, 3)), 2)
    """

    copies: tuple[tuple[int, ...], ...]
    entries: tuple[tuple[Entry, ...], ...]
    num_weights: int
    #: Pairs ``(rows, columns)``; outside of them rho(w) is always zero. A block without such zeros has one pair. The
    #: dual numbers' [[a, 0], [b, a]] has two: its first row reads the first column only.
    spans: tuple[tuple[slice, slice], ...] = field(init=False, repr=False, compare=False)
    #: rho as a matrix: for each cell, row by row, the coefficient of each component of the weight.
    cells: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    #: rho as a matrix in the same form as ``cells``, but with the cells column by column.
    transposed_cells: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", _spans(self.entries))
        object.__setattr__(self, "cells", self._cells(self.entries))
        object.__setattr__(self, "transposed_cells", self._cells(zip(*self.entries, strict=True)))

    def _cells(self, rows: Iterable[tuple[Entry, ...]]) -> tuple[tuple[int, ...], ...]:
        @cache  # equal cells share one tuple: large algebras have many of them
        def coefficients(cell: Entry) -> tuple[int, ...]:
            return tuple(dict(cell).get(i, 0) for i in range(self.num_weights))

        return tuple(coefficients(cell) for row in rows for cell in row)

    @property
    def num_copies(self) -> int:
        """The number of lists of components that rho(w) acts on."""
        return len(self.copies)

    @property
    def size(self) -> int:
        """The number of rows of rho(w)."""
        return len(self.entries)

    @property
    def dim(self) -> int:
        """The number of components in all copies together."""
        return self.num_copies * self.size

    @property
    def waste(self) -> float:
        """The share of rho(w) that is outside its `spans`, and so always zero."""
        inside = sum((rows.stop - rows.start) * (cols.stop - cols.start) for rows, cols in self.spans)
        return 1 - inside / self.size**2


def find_blocks(dim: int, terms: Terms) -> tuple[Block, ...]:
    """The blocks of left multiplication in an algebra.

    Args:
        dim: The number of components.
        terms: The table, as in `Algebra.terms`.
    """
    entry: dict[tuple[int, int], Entry] = defaultdict(tuple)
    for i, j, k, c in terms:
        entry[k, j] += ((i, c),)
    found: list[tuple[list[tuple[int, ...]], tuple[tuple[Entry, ...], ...]]] = []
    for members in _connected(dim, terms):
        for copies, _ in found:
            match = _match(copies[0], members, entry)
            if match:
                copies.append(match)
                break
        else:
            found.append(([members], tuple(tuple(entry[k, j] for j in members) for k in members)))
    return tuple(Block(tuple(copies), entries, dim) for copies, entries in found)


def _spans(entries: tuple[tuple[Entry, ...], ...]) -> tuple[tuple[slice, slice], ...]:
    spans: list[tuple[slice, slice]] = []
    for p, row in enumerate(entries):
        filled = [q for q, entry in enumerate(row) if entry]
        columns = slice(filled[0], filled[-1] + 1) if filled else slice(0, 0)
        if spans and spans[-1][1] == columns:
            spans[-1] = slice(spans[-1][0].start, p + 1), columns
        else:
            spans.append((slice(p, p + 1), columns))
    return tuple(spans)


def _connected(dim: int, terms: Terms) -> list[tuple[int, ...]]:
    """The components split into sets that left multiplication never mixes, in order of their first members."""
    root = list(range(dim))

    def find(k: int) -> int:
        while root[k] != k:
            k = root[k]
        return k

    for _, j, k, _ in terms:
        a, b = sorted((find(j), find(k)))
        root[b] = a
    sets: dict[int, list[int]] = defaultdict(list)
    for k in range(dim):
        sets[find(k)].append(k)
    return [tuple(members) for members in sets.values()]


def _match(
    pattern: tuple[int, ...], members: tuple[int, ...], entry: dict[tuple[int, int], Entry]
) -> tuple[int, ...] | None:
    """Order ``members`` so that left multiplication acts on them as on ``pattern``. None if there is no such order."""
    if len(pattern) != len(members):
        return None

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(pattern):
            yield chosen
            return
        for candidate in members:
            trial = (*chosen, candidate)
            p = len(chosen)
            if candidate not in chosen and all(
                entry[pattern[p], pattern[q]] == entry[candidate, trial[q]]
                and entry[pattern[q], pattern[p]] == entry[trial[q], candidate]
                for q in range(p + 1)
            ):
                yield from extend(trial)

    return next(extend(()), None)
