"""Checks of settings: each is of the kind its annotation names, and numbers lie where they must."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_origin, get_type_hints

#: Whole numbers are smaller than this: more is beyond torch, which counts in 64 bits.
MOST = 2**63

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    tuple[float, ...]: "several numbers, as in (0.5, 0.9)",
    tuple[str, ...]: "several words",
}


def check_kinds(settings: Any, part: str = "") -> None:
    """Refuse a frozen dataclass with a field of another kind than its annotation; ``part`` is its name in errors.

    A whole number becomes a float where the annotation says so, and a list a tuple.
    """
    for name, kind in kinds(settings.__class__).items():
        value = checked(f"{part}.{name}" if part else name, getattr(settings, name), kind)
        object.__setattr__(settings, name, value)


@cache
def kinds(settings: Any) -> dict[str, Any]:
    """The annotation of each field of a dataclass."""
    return get_type_hints(settings)


def checked(name: str, value: Any, kind: Any) -> Any:
    """``value``, the setting ``name``, if it is of its kind.

    >>> checked("optimizer.lr", 1, float)
    1.0
    >>> checked("optimizer.lr", "fast", float)
    Traceback (most recent call last):
    ValueError: optimizer.lr must be a number; got 'fast'.
    """
    if isinstance(value, int) and abs(value) >= MOST:
        raise ValueError(
            f"{name} must lie between -2^63 and 2^63; got a number of {len(hex(value)) - 2} digits in hex."
        )
    if kind is float and type(value) is int:
        return float(value)
    if kind in (tuple[float, ...], tuple[str, ...]) and isinstance(value, list | tuple):
        return tuple(checked(name, inner, float if kind == tuple[float, ...] else str) for inner in value)
    if kind in (int, float, str, bool) and type(value) is kind:
        return value
    if kind not in _WORDS and isinstance(value, Mapping if get_origin(kind) is Mapping else kind):
        return value
    raise ValueError(f"{name} must be {_WORDS.get(kind, 'settings by name')}; got {value!r:.80}.")


def one_of(name: str, value: str, choices: Any) -> None:
    """Refuse a value that is none of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def between(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number below ``low`` or above ``high``, and NaN."""
    if not low <= value <= high:
        raise ValueError(f"{name} must lie between {low} and {high}; got {value}.")


def at_least_one(part: str, **numbers: int) -> None:
    """Refuse numbers, settings of ``part``, below 1."""
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{part + '.' if part else ''}{name} must be at least 1; got {value}.")
