"""Checks of arguments and settings.

Each check returns the value, converted if needed, or raises a `ValueError` that says what must hold and what was given.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from numbers import Real
from operator import index
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

#: The largest number of float64 values that torch can address.
MOST_NUMBERS = 2**60 - 1
#: The absolute values of whole numbers in settings are smaller than this, because torch counts in 64 bits.
LARGEST_WHOLE = 2**63


def one_of(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Check that ``value`` is one of ``choices``. The error suggests the closest one.

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
    """The sentence " Did you mean ...?" with the closest of ``choices``, or "" if none is close.

    >>> did_you_mean("relu6", ["relu", "silu"])
    " Did you mean 'relu'?"
    """
    near = closest(value, choices)
    return f" Did you mean {near!r}?" if near else ""


def closest(value: Any, choices: Iterable[Any]) -> str:
    """The element of ``choices`` that is spelled most like ``value``, or "" if none is close.

    >>> closest("relu6", ["relu", "silu"])
    'relu'
    """
    return next(iter(get_close_matches(str(value), [str(choice) for choice in choices], n=1)), "")


def whole(name: str, value: Any, least: int | None = None) -> int:
    """Check that ``value`` is a whole number, at least ``least``. A bool is not a number.

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
    """Check and return one whole number, at least ``least``, for each axis. A single number is used for all axes."""
    values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * num_axes
    if len(values) != num_axes:
        raise ValueError(f"{name} must be one number or {num_axes} of them; got {value!r}.")
    return tuple(whole(name, number, least) for number in values)


def positive(name: str, value: Any, or_zero: bool = False) -> float:
    """Check that ``value`` is a finite number above 0. With ``or_zero``, it may be 0."""
    if not _is_number(value) or not 0 <= value < math.inf or (value == 0 and not or_zero):
        raise ValueError(f"{name} must be a {'number from 0 on' if or_zero else 'positive number'}; got {value!r}.")
    return value


def share(name: str, value: Any) -> float:
    """Check that ``value`` is a number from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1; got {value!r}.")
    return value


def between(name: str, value: float, low: float, high: float) -> float:
    """Check that ``value`` is a number from ``low`` to ``high``, and not NaN.

    >>> between("threads", 2000, 0, 1024)
    Traceback (most recent call last):
    ValueError: threads must lie between 0 and 1024; got 2000.
    """
    if not low <= value <= high:
        raise ValueError(f"{name} must lie between {low} and {high}; got {value}.")
    return value


def size(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Check that torch can address a tensor of this shape, whether or not there is memory for it."""
    if math.prod(shape) > MOST_NUMBERS:
        raise ValueError(
            f"{name} of shape {tuple(shape)} holds more numbers than torch can address, {MOST_NUMBERS:.1e}; "
            "make the layer smaller."
        )
    return tuple(shape)


# Settings, by their annotations ---------------------------------------------------------------------------------------

#: How an error names the values of a type.
_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    NoneType: "None",
    tuple[float, ...]: "several numbers, as in (0.5, 0.9)",
    tuple[str, ...]: "several words",
}


def typed(name: str, value: Any, annotation: Any) -> Any:
    """Check that ``value`` has the type ``annotation``. Whole numbers are converted to float, and lists to tuples.

    The supported types are those of settings: int, float, str, bool, None, tuples of one type, literals, unions, and
    classes. A bool is not a number.

    >>> typed("optimizer.lr", 1, float)
    1.0
    >>> typed("optimizer.lr", "fast", float)
    Traceback (most recent call last):
    ValueError: optimizer.lr must be a number; got 'fast'.
    """
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind is Literal:
        return one_of(name, value, inner)
    if kind in (Union, UnionType):
        for choice in inner:
            with suppress(ValueError):
                return typed(name, value, choice)
    elif kind is tuple and isinstance(value, list | tuple):
        return tuple(typed(name, element, inner[0]) for element in value)
    elif kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(_addressable(name, value))
    elif kind is Any or (isinstance(value, kind) and isinstance(value, bool) <= (kind is bool)):
        return _addressable(name, value)
    raise ValueError(f"{name} must be {_in_words(annotation)}; got {value!r:.80}.")


def fields(settings: Any, part: str = "") -> None:
    """Check every field of a frozen dataclass against its annotation, and convert it as `typed` does.

    Call it in ``__post_init__``. Errors call the field ``part.field``.
    """
    kind: Any = type(settings)
    for name, parameter in parameters(kind).items():
        full = f"{part}.{name}" if part else name
        object.__setattr__(settings, name, typed(full, getattr(settings, name), parameter.annotation))


def options(name: str, given: Any, function: Callable[..., Any]) -> dict[str, Any]:
    """Check that ``given`` are keyword arguments of ``function``, which may be a class, and that none is missing.

    Errors call the function ``name``.

    >>> options("point", {"x": 1, "yy": 2}, lambda x, y: (x, y))
    Traceback (most recent call last):
    ValueError: point has no option 'yy'. Did you mean 'y'? It takes x, y.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must be settings by name; got {given!r:.80}.")
    known = parameters(function)
    for option in given:
        if option not in known:
            hint = did_you_mean(option, known)
            raise ValueError(f"{name} has no option {option!r:.80}.{hint} It takes {', '.join(known)}.")
    missing = [key for key, parameter in known.items() if parameter.default is parameter.empty and key not in given]
    if missing:
        raise ValueError(f"{name} must have the option {missing[0]!r}; it is missing.")
    return dict(given)


@cache
def parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function or class, by name, with annotations as types."""
    return inspect.signature(function, eval_str=True).parameters


def _addressable(name: str, value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= LARGEST_WHOLE:
        digits = len(hex(abs(value))) - 2
        raise ValueError(f"{name} must lie between -2^63 and 2^63; got a number of {digits} digits in hex.")
    return value


def _in_words(annotation: Any) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation]
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_in_words, get_args(annotation))))
    kind = get_origin(annotation) or annotation
    return "settings by name" if issubclass(kind, Mapping) else f"of type {kind.__name__}"


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
