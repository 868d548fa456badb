"""The rule by which reports call a difference significant, and the interval of an accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from scipy.special import stdtr  # type: ignore[import-untyped]

#: The level of the test, in percent: how often a difference is called significant if the true means are equal.
LEVEL = 5
#: The quantile of the normal distribution for 95 % intervals.
_QUANTILE = 1.959964


def wilson_interval(accuracy: float, num_test: int) -> tuple[float, float]:
    """The Wilson interval of an accuracy: 95 % of such intervals contain the accuracy on all possible test images.

    >>> [round(end, 2) for end in wilson_interval(97.5, 360)]
    [95.32, 98.68]

    Args:
        accuracy: The accuracy on the test images, in percent.
        num_test: The number of test images.

    Returns:
        The ends of the interval, in percent.
    """
    share = min(max(accuracy / 100, 0), 1)  # rounding can lead to slightly more than 100 %
    spread = _QUANTILE**2 / num_test
    center = (share + spread / 2) / (1 + spread)
    half = _QUANTILE * math.sqrt(share * (1 - share) / num_test + spread / (4 * num_test)) / (1 + spread)
    return 100 * max(center - half, 0), 100 * min(center + half, 1)


def standard_error(values: Sequence[float], others: Sequence[float] | float) -> float | None:
    """The standard error of the difference of two means.

    >>> round(standard_error([94.0, 94.2, 94.1], [93.8, 94.0]), 3)
    0.115

    Args:
        values: The values of one side, one per seed.
        others: The values of the other side, or a single number that counts as exact, such as a printed figure.

    Returns:
        The error, or None if it is not known: one side has only one seed, a run diverged, or all values of each side
        are equal.
    """
    sides = _sides(values, others)
    if any(len(side) < 2 or not all(map(math.isfinite, side)) for side in sides):
        return None
    return math.sqrt(sum(map(_squared_error, sides))) or None


def is_significant(values: Sequence[float], others: Sequence[float] | float) -> bool:
    """Whether two means differ significantly by Welch's t-test at 5 % (two-sided).

    If the standard error is not known, no difference is significant.

    >>> is_significant([94.0, 94.2, 94.1], [93.0, 93.2]), is_significant([94.0], [93.0, 93.2])
    (True, False)
    >>> is_significant([94.0, 94.2], 93.4), is_significant([94.0, 94.2, 94.1], 93.4)
    (False, True)

    Args:
        values: The values of one side, one per seed.
        others: The values of the other side, or a single number that counts as exact, such as a printed figure.
    """
    error = standard_error(values, others)
    if error is None:
        return False
    other = others if isinstance(others, float | int) else fmean(others)
    sides = _sides(values, others)
    freedom = error**4 / sum(_squared_error(side) ** 2 / (len(side) - 1) for side in sides)  # Welch-Satterthwaite
    chance = 2 * float(stdtr(freedom, -abs(fmean(values) - other) / error))  # of such a difference, if means are equal
    return 100 * chance < LEVEL


def _sides(values: Sequence[float], others: Sequence[float] | float) -> list[Sequence[float]]:
    """The sides of a comparison that are samples."""
    return [values] if isinstance(others, float | int) else [values, others]


def _squared_error(values: Sequence[float]) -> float:
    """The square of the standard error of a mean."""
    return variance(values) / len(values)
