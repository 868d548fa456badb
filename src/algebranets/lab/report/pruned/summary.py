"""What a study of pruned networks says in a sentence and in a few figures."""

from __future__ import annotations

import math
from typing import Any

from algebranets.algebra import R
from algebranets.lab.report.groups import Group, Study
from algebranets.lab.report.numbers import difference, metric_name, percent, quality, share
from algebranets.lab.report.parts import Card


def chosen(study: Study) -> Group | None:
    """The pruned network to name: changed least, over an algebra, pruned as the recipe does, or most, and the best.

    None where no pruned network was trained to the end.
    """
    finished = [group for group in study.pruned if math.isfinite(group.mean)]
    return max(finished, key=lambda group: _merit(study, group), default=None)


def _merit(study: Study, group: Group) -> tuple[object, ...]:
    return (
        -len(set(study.changed(group)) - {"pruning.sparsity"}),
        study.is_own_size(group),
        not group.is_real,
        group in study.own_pruned,
        group.sparsity,
        group.mean if study.more_is_better else -group.mean,
    )


def headline(study: Study, group: Group) -> str:
    """The chosen network beside the dense one, the one with as many components pruned, and the real one."""
    text = f"{_name(study, group)} reaches {_quality(study, group)} {metric_name(study.metric)}"
    if (dense := _dense(study, group)) is not None:
        away = difference(group.mean - dense.mean, study.metric)
        side = {"−": "below", "+": "above"}.get(away[0])
        text += f", {away[1:]} {side} the dense one" if side else ", as the dense one does"
    components = _like(study, group, group.algebra, "component")
    if components is not None:
        text += f"; with as many components pruned it reaches {_quality(study, components)}"
    real = _like(study, group, R.name, group.unit)
    if real is not None:
        text += f"; the real network, pruned as much, reaches {_quality(study, real)}"
    return text


def cards(study: Study, group: Group) -> list[Card]:
    """Key figures of the chosen network."""
    name = _name(study, group)
    found = [Card(_quality(study, group), f"{metric_name(study.metric)}, {name}")]
    if (dense := _dense(study, group)) is not None:
        found.append(Card(difference(group.mean - dense.mean, study.metric), "against the dense network"))
    if group.nonzero is not None:
        found.append(Card(share(group.nonzero, group.first.parameters), "of its parameters are not zero"))
    if group.multiplies_left is not None:
        found.append(Card(share(group.multiplies_left, group.first.multiplies), "of its multiply-adds are left"))
    return found


def _dense(study: Study, group: Group) -> Group | None:
    dense = study.dense(group)
    return dense if dense and math.isfinite(dense.mean) else None


def _like(study: Study, group: Group, algebra: str, unit: str) -> Group | None:
    """Another network that is pruned as much, but over this algebra, or of this unit."""
    for other in study.pruned:
        alike = (other.algebra, other.unit, other.first.width) == (algebra, unit, group.first.width)
        if alike and other is not group and math.isfinite(other.mean) and _rest(study, other) == _rest(study, group):
            return other
    return None


def _rest(study: Study, group: Group) -> dict[str, Any]:
    return {key: value for key, value in study.changed(group).items() if key != "pruning.unit"}


def _name(study: Study, group: Group) -> str:
    """Such as ``M2R with 90 % of its tuples pruned``."""
    what = "weights" if group.is_real else f"{group.unit}s"
    name = study.name(group, without={"pruning.sparsity", "pruning.unit"})
    return f"{name} with {percent(group.sparsity)} of its {what} pruned"


def _quality(study: Study, group: Group) -> str:
    return quality(group.mean, study.metric, unit=True)
