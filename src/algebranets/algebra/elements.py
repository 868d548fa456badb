"""Arithmetic with elements of an algebra, in numbers of any kind: whole numbers, fractions and floats."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

#: A linear combination of basis elements, without zeros. Its numbers are whole, fractions or floats.
Element = dict[int, Any]

#: Floats below this share of the largest number are rounding errors.
TOLERANCE = 1e-9


def total(terms: Iterable[tuple[Any, Element]]) -> Element:
    """The sum of elements, each times its factor."""
    total: Element = defaultdict(int)
    for factor, element in terms:
        for k, c in element.items():
            total[k] += factor * c
    return clean(total)


def clean(x: Element) -> Element:
    """Return ``x`` without zeros. Among floats, numbers that are tiny compared to the largest count as zeros."""
    least = 1e-14 * max(map(abs, x.values()), default=0) if is_inexact(x) else 0
    return {k: c for k, c in sorted(x.items()) if abs(c) > least}


def is_inexact(x: Element) -> bool:
    """Whether an element has numbers that are floats."""
    return any(isinstance(c, float) for c in x.values())


def dot(x: Element, y: Element) -> Any:
    """The inner product of two elements."""
    return sum((c * y[k] for k, c in x.items() if k in y), Fraction(0))


def square(x: Element) -> float:
    """The square of the length, rounded so that rounding errors do not decide which element is longer."""
    return round(float(dot(x, x)), 9)


def size(x: Element) -> float:
    """The length of an element."""
    return math.sqrt(float(dot(x, x)))


def ratio(x: Element, e: Element) -> Any:
    """The number c with x = c e, or None if there is none."""
    ratio = dot(x, e) / dot(e, e)
    rest = total([(1, x), (-ratio, e)])
    is_multiple = size(rest) <= TOLERANCE * max(size(x), size(e)) if is_inexact(rest) else not rest
    return ratio if is_multiple else None


def sqrt(number: Any) -> Any:
    """The square root, as a fraction if it is one."""
    if isinstance(number, Fraction | int) and number >= 0:
        exact = Fraction(number)
        root = Fraction(math.isqrt(exact.numerator), math.isqrt(exact.denominator))
        if root**2 == exact:
            return root
    return math.sqrt(number) if number >= 0 else math.nan


def whole(number: Any) -> Any:
    """The number as an int if it is a whole fraction."""
    return int(number) if isinstance(number, Fraction) and number.denominator == 1 else number
