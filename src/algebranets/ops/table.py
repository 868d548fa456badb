"""An algebra encoded as a list of integers, a type that an operator's schema allows."""

from __future__ import annotations

from functools import cache

from algebranets.algebra import Algebra


def encode_algebra(algebra: Algebra) -> list[int]:
    """The dimension, followed by the four numbers of each term (weight, input and output component, coefficient).

    >>> from algebranets import C
    >>> encode_algebra(C)[:5], decode_algebra(encode_algebra(C)).terms == C.terms
    ([2, 0, 0, 0, 1], True)
    """
    return [algebra.dim, *(number for term in algebra.terms for number in term)]


def decode_algebra(code: list[int]) -> Algebra:
    """The algebra that `encode_algebra` encoded, without its name and the names of its components."""
    return _decoded(tuple(code))


@cache
def _decoded(code: tuple[int, ...]) -> Algebra:
    dim, *numbers = code
    terms = zip(*[iter(numbers)] * 4, strict=True)
    return Algebra("decoded", tuple(f"e{i}" for i in range(dim)), tuple(terms))


def num_terms(code: list[int]) -> int:
    """The number of terms of an encoded algebra: the real multiplies in a product of two tuples."""
    return len(code) // 4
