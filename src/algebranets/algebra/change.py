"""The changes of basis between an algebra and the matrix algebras as which its products are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from algebranets.algebra.bilinear import Bilinear, change_basis
from algebranets.algebra.elements import Element
from algebranets.algebra.parts import Parts

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Change:
    """The changes of basis between an algebra and `Algebra.stored`, a direct sum of matrix algebras.

    Layers store weights as elements of `Algebra.stored`. They change the basis of their inputs, multiply there, and
    change the basis of their outputs back. The changes of inputs and outputs are orthogonal.

    Args:
        weights: For each component of `Algebra.stored`, the coefficients of the components of a weight: the
            isomorphism.
        tuples: For each component of a weight, the coefficients of the components of `Algebra.stored`: the inverse of
            ``weights``.
        inputs: The orthogonal change of basis of inputs. Rows and columns are in the orders in which activations over
            `Algebra.stored` and over the algebra store components (`Algebra.order`).
        outputs: The change of basis of outputs, the transpose of ``inputs``.
        bilinear: The algorithm of `Algebra.stored` for products with few multiplies, in the basis of the table.

    >>> import algebranets as an
    >>> plane = an.algebra.clifford(2, 0)
    >>> plane.stored.name
    'M2R'
    >>> plane.change.weights  # 1, e1, e2 and e1e2 as matrices, one in each column
    ((1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, -1.0), (1.0, -1.0, 0.0, 0.0))
    """

    weights: Matrix
    tuples: Matrix
    inputs: Matrix
    outputs: Matrix
    bilinear: Bilinear = field(repr=False)


def change_to(found: Parts, order: Sequence[int], stored_order: Sequence[int], bilinear: Bilinear) -> Change:
    """The changes of basis to a direct sum of matrix algebras.

    Args:
        found: The matrix algebras.
        order: The order in which activations over the algebra store components.
        stored_order: The order in which activations over the direct sum store components.
        bilinear: The algorithm of the direct sum for products with few multiplies.
    """
    dim = len(order)
    squares = [sum(c * c for c in unit.values()) for unit in found.units]
    weights = tuple(_row(unit, dim, square) for unit, square in zip(found.units, squares, strict=True))
    tuples = tuple(zip(*(_row(unit, dim, 1.0) for unit in found.units), strict=True))
    orthogonal = tuple(_row(unit, dim, math.sqrt(square)) for unit, square in zip(found.units, squares, strict=True))
    inputs = tuple(tuple(orthogonal[f][k] for k in order) for f in stored_order)
    in_table = change_basis(bilinear, weights, orthogonal, tuple(zip(*orthogonal, strict=True)))
    return Change(weights, tuples, inputs, tuple(zip(*inputs, strict=True)), in_table)


def _row(unit: Element, dim: int, divisor: Fraction | float) -> tuple[float, ...]:
    return tuple(float(unit.get(k, 0)) / float(divisor) for k in range(dim))
