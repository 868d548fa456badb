"""Checks of arguments.

Each returns the value that it was given, or raises a `ValueError` that says what must hold and what was given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Real
from operator import index
from typing import Any

#: The largest number of float64 values that torch can address.
MOST_NUMBERS = 2**60 - 1


def one_of(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """One of ``choices``; the error names the closest of them.

    >>> one_of("lowering", "block", ["auto", "blocks"])
    Traceback (most recent call last):
    ValueError: lowering must be one of auto, blocks; got 'block'. Did you mean 'blocks'?
    """
    known = list(choices)
    if not any(value is choice or value == choice for choice in known):
        names = ", ".join(str(choice) for choice in known)
        raise ValueError(f"{name} must be one of {names}; got {value!r:.80}.{did_you_mean(value, known)}")
    return value


def did_you_mean(value: Any, choices: Iterable[Any]) -> str:
    """The sentence " Did you mean ...?" with the closest of ``choices``, or nothing if none is close.

    >>> did_you_mean("relu6", ["relu", "silu"])
    " Did you mean 'relu'?"
    """
    near = get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def whole(name: str, value: Any, least: int | None = None) -> int:
    """A whole number, not less than ``least``; a bool is no number.

    >>> whole("num_layers", 2, least=1)
    2
    >>> whole("num_layers", 0, least=1)
    Traceback (most recent call last):
    ValueError: num_layers must be at least 1; got 0.
    """
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise ValueError(f"{name} must be a whole number; got {value!r}.")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}; got {number}.")
    return number


def per_axis(name: str, value: Any, num_axes: int, least: int) -> tuple[int, ...]:
    """One whole number for each axis; a single number is taken for all of them."""
    values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * num_axes
    if len(values) != num_axes:
        raise ValueError(f"{name} must be one number or {num_axes} of them; got {value!r}.")
    return tuple(whole(name, number, least) for number in values)


def positive(name: str, value: Any, or_zero: bool = False) -> float:
    """A finite number above 0, or 0 itself with ``or_zero``."""
    if not _is_number(value) or not 0 <= value < math.inf or (value == 0 and not or_zero):
        raise ValueError(f"{name} must be a {'number from 0 on' if or_zero else 'positive number'}; got {value!r}.")
    return value


def share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1; got {value!r}.")
    return value


def size(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a tensor that torch can address, whether or not there is memory for it."""
    if math.prod(shape) > MOST_NUMBERS:
        raise ValueError(
            f"{name} of shape {tuple(shape)} holds more numbers than torch can address, {MOST_NUMBERS:.1e}; "
            "make the layer smaller."
        )
    return tuple(shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
