"""The cost of a real network of the same quality, interpolated between real networks that were trained."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from algebranets.lab.report.group import Group
from algebranets.lab.report.paper.rows import SIZES
from algebranets.lab.report.study import Study


class Cost(NamedTuple):
    """The parameters of a network, and its multiply-adds for one image or token."""

    parameters: float
    multiplies: float


def real_sizes(study: Study) -> list[Group]:
    """The real networks from small to large, without those that are not better than a smaller one."""
    found: list[Group] = []
    for group in sorted(study.finished, key=lambda group: group.first.parameters):
        is_plain = group.is_real and not set(study.changed(group)) - SIZES
        if is_plain and (not found or study.is_better(group.mean - found[-1].mean)):
            found.append(group)
    return found


def real_cost(study: Study, group: Group) -> Cost | None:
    """The cost of a real network that is as good as ``group``.

    It is interpolated between two real networks of the study, linearly in the logarithm of the cost.

    Returns:
        The cost, or None if ``group`` is better or worse than all real networks.
    """
    for smaller, larger in pairwise(real_sizes(study)):
        along = (group.mean - smaller.mean) / (larger.mean - smaller.mean)
        if 0 <= along <= 1:
            a, b = smaller.first, larger.first
            return Cost(
                _interpolate(a.parameters, b.parameters, along), _interpolate(a.multiplies, b.multiplies, along)
            )
    return None


def matched(study: Study) -> list[tuple[Group, Cost]]:
    """The networks over algebras other than R whose `real_cost` is known, each with that cost."""
    found = [(group, real_cost(study, group)) for group in study.finished if not group.is_real]
    return [(group, real) for group, real in found if real]


def _interpolate(a: float, b: float, along: float) -> float:
    """Interpolate between ``a`` (along = 0) and ``b`` (along = 1), linearly in the logarithm.

    >>> _interpolate(1, 100, 0.5)
    10.0
    """
    return a ** (1 - along) * b**along
