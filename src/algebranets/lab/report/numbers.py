"""Formatting of the numbers in reports."""

from __future__ import annotations

import math

#: A metric's name, its unit, and its number of decimals.
_METRICS = {"accuracy": ("top-1 accuracy", " %", 2), "bpc": ("bits per character", "", 3)}

#: The text for a missing number.
NONE = "–"


def metric_name(metric: str) -> str:
    """The name of a metric.

    >>> metric_name("accuracy")
    'top-1 accuracy'
    """
    return _METRICS[metric][0]


def quality(value: float, metric: str, unit: bool = False) -> str:
    """A value of a metric, such as ``94.31``.

    >>> quality(94.314, "accuracy", unit=True), quality(1.3, "bpc"), quality(float("nan"), "bpc")
    ('94.31 %', '1.300', 'diverged')
    """
    _, suffix, decimals = _METRICS[metric]
    return f"{value:.{decimals}f}{suffix if unit else ''}" if math.isfinite(value) else "diverged"


def difference(value: float | None, metric: str) -> str:
    """A difference between two values of a metric, with a sign unless it rounds to zero.

    >>> difference(-0.104, "accuracy"), difference(0.02, "bpc"), difference(-0.001, "accuracy")
    ('−0.10', '+0.020', '0.00')
    """
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{value:+.{_METRICS[metric][2]}f}"
    return text[1:] if not float(text) else text.replace("-", "−")


def interval(ends: tuple[float, float] | None, metric: str) -> str:
    """An interval of values of a metric; a dash if there is none.

    >>> interval((95.317, 98.679), "accuracy"), interval(None, "bpc")
    ('95.32 to 98.68', '–')
    """
    return NONE if ends is None else f"{quality(ends[0], metric)} to {quality(ends[1], metric)}"


def amount(number: float) -> str:
    """A number with three digits, and a suffix if it is large.

    >>> amount(3_602_000), amount(937), amount(24_500), amount(1e6)
    ('3.60 M', '937', '24.5 k', '1.00 M')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{number:.0f}"


def tick(number: float) -> str:
    """A number for an axis, with a suffix if it is large and without trailing zeros.

    >>> tick(1.5e6), tick(2000), tick(0), tick(12)
    ('1.5 M', '2 k', '0', '12')
    """
    digits, _, unit = amount(number).partition(" ")
    return f"{float(digits):g} {unit}".strip()


def share(part: float, whole: float) -> str:
    """``part`` in percent of ``whole``.

    >>> share(1, 4), share(3, 2)
    ('25 %', '150 %')
    """
    return f"{100 * part / whole:.0f} %"


def percent(fraction: float) -> str:
    """A fraction in percent, with as many decimals as it needs.

    >>> percent(0.9), percent(0.975)
    ('90 %', '97.5 %')
    """
    return f"{100 * fraction:g} %"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours.

    >>> duration(4.2), duration(75), duration(3725), duration(59.97)
    ('4.2 s', '1.2 min', '1.0 h', '1.0 min')
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 0.999 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
