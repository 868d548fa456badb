"""Constants of the kernels of ``depthwise`` and ``depthwise_sums``: products and taps, as described in `kernel`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain, combinations
from typing import NamedTuple

Flat = tuple[tuple[float, ...], ...]
Rows = Sequence[Sequence[float]]


class Product(NamedTuple):
    """A product of two tuples. The right factor is changed before it, and the result, or the left factor, after it.

    Args:
        table: The terms of each component of the result.
        inputs: The change of the image.
        outputs: The change of the result. For the gradient of a weight, it is the change of the output's gradient.
    """

    table: Flat
    inputs: Flat = ()
    outputs: Flat = ()


class Algorithm(NamedTuple):
    """The coefficients of an `algebra.Bilinear`, with activations in memory order."""

    weights: Flat
    inputs: Flat
    outputs: Flat

    @classmethod
    def of(cls, numbers: Sequence[float], dim: int) -> Algorithm:
        """The algorithm for tuples of ``dim`` components with these numbers: all coefficients, one after the other."""
        size = len(numbers) // 3
        weights, inputs, outputs = (numbers[at : at + size] for at in range(0, 3 * size, size))
        return cls(_matrix(weights, dim), _matrix(inputs, dim), _matrix(outputs, size // dim))


@cache
def product_of(
    terms: tuple[int, ...], dim: int, places: tuple[int, int, int], algorithm: Algorithm | None = None
) -> Product:
    """The product of an operator.

    Args:
        terms: The terms of the algebra's table.
        dim: The number of components of a tuple.
        places: Where the left factor, the right factor and the result are in a term: 0 is the weight, 1 the
            convolution's input, and 2 its output.
        algorithm: The algorithm that computes the product, or None for the table. With it, weights are its combinations
            of their components.
    """
    if algorithm is None:
        table: list[list[float]] = [[] for _ in range(dim)]
        for term in zip(*[iter(terms)] * 4, strict=True):
            table[term[places[2]]] += [term[places[0]], term[places[1]], term[3]]
        return Product(tuple(map(tuple, table)))
    _, combine, results = algorithm
    diagonal = tuple((r, r, 1) for r in range(len(combine)))
    if places == (0, 1, 2):
        return Product(diagonal, additions(combine), additions(results))
    if places == (0, 2, 1):
        return Product(diagonal, additions(_transpose(results)), additions(_transpose(combine)))
    return Product(diagonal, additions(combine), additions(_transpose(results)))


def _matrix(numbers: Sequence[float], columns: int) -> Flat:
    return tuple(tuple(numbers[at : at + columns]) for at in range(0, len(numbers), columns))


def _transpose(rows: Rows) -> Rows:
    return list(zip(*rows, strict=True))


def additions(rows: Rows) -> Flat:
    """The combinations with these coefficients, as few additions. Sums that occur in several rows are taken once.

    >>> additions([(1, 1, 1), (1, 1, -1)])
    ((0, 1, 1.0), (2, 3, 1.0), (3, 2, -1.0), (4, 1, 5, 1))
    """
    left = [{place: c for place, c in enumerate(row) if abs(c) > 1e-9} for row in rows]
    number, found = len(rows[0]), []
    while pairs := Counter((i, j, r[j] / r[i]) for r in left for i, j in combinations(sorted(r), 2)):
        (i, j, factor), _ = pairs.most_common(1)[0]
        having = [row for row in left if i in row and j in row and row[j] / row[i] == factor]
        if having[0][i] < 0 < having[0][j]:  # then the sum has the sign that is needed
            i, j, factor = j, i, 1 / factor
        for row in having:
            row[number] = row.pop(i)
            del row[j]
        found.append((i, j, factor))
        number += 1
    return (*found, tuple(chain(*(next(iter(row.items()), (0, 0.0)) for row in left))))


@cache
def taps(run: int, num_taps: int, step: int, shift: int, pace: int, every: int) -> tuple[tuple[int, ...], Flat]:
    """The sources that a run of outputs reads along an axis and, for each, the tap that each output meets, or -1.

    Output o meets tap t if ``o * step + shift + t * pace`` is a multiple of ``every``. The quotient is the source.
    """
    met = {(o * step + shift + t * pace, o): t for t in range(num_taps) for o in range(run)}
    sources = sorted({at // every for at, _ in met if at % every == 0})
    return tuple(sources), tuple(tuple(met.get((s * every, o), -1) for o in range(run)) for s in sources)


class Sweep(NamedTuple):
    """How a thread goes down an image. Each step takes the next source rows, and completes the next output rows.

    Args:
        shift: The first output row that step 0 of a block may meet, relative to the block.
        taps: For each source row of a step, the tap that each output row meets there from ``shift`` on, or -1. Each
            step meets the rows that are ``every`` further down.
    """

    shift: int
    taps: Flat

    def ends(self, rows: int, height: int | None, step: int, every: int) -> tuple[int, int]:
        """The steps of blocks of ``rows`` outputs, from the first to before the last.

        If the block is the whole image, with ``height`` source rows, steps without sources are left out.
        """
        reach = self.shift + len(self.taps[0]) - 1
        first, last = -(reach // every), (rows - 1 - self.shift) // every + 1
        if height is not None:
            first = min(max(first, 0), -self.shift // every)
            last = max(min(last, -(-height // step)), -((reach + 1 - rows) // every), first)
        return first, last


@cache
def sweep_of(num_taps: int, step: int, shift: int, pace: int, every: int) -> Sweep:
    """The sweep over rows that meet as in `taps`."""
    met = {(s, (s * every - shift - t * pace) // step): t for s in range(step) for t in range(num_taps)
           if (s * every - shift - t * pace) % step == 0}  # fmt: skip
    start = min(o for _, o in met)
    window = max(max(o for _, o in met) - start + 1, every)
    return Sweep(start, tuple(tuple(met.get((s, start + o), -1) for o in range(window)) for s in range(step)))
