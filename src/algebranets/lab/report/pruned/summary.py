"""The main pruned network of a study, and the values that the report prints about it."""

from __future__ import annotations

from typing import Any

from algebranets.algebra import R
from algebranets.lab.report.claim import judgement
from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import percent, share
from algebranets.lab.report.parts import spread
from algebranets.lab.report.study import Study


def facts(study: Study) -> dict[str, Any] | None:
    """Values for the headline and the key figures of a study, about its main pruned network; None if there is none.

    The main network has the fewest changes besides its sparsity. Ties are broken in this order: the recipe's own size,
    an algebra other than R, pruning as in the recipe, the highest sparsity, the best mean.
    """
    finished = [group for group in study.pruned if group.is_finished]
    if not finished:
        return None
    group = max(finished, key=lambda group: _merit(study, group))
    dense = study.dense(group)
    components = _find(study, group, group.algebra, "component")
    real = _find(study, group, R.name, group.unit)
    return {
        "name": _name(study, group),
        "mean": group.mean,
        "spread": spread(group),
        "dense": judgement(study, group, dense) if dense and dense.is_finished else None,
        "components": components and components.mean,
        "real": real and real.mean,
        "nonzero": group.nonzero is not None and share(group.nonzero, group.first.parameters),
        "multiplies_left": group.multiplies_left is not None and share(group.multiplies_left, group.first.multiplies),
    }


def _merit(study: Study, group: Group) -> tuple[object, ...]:
    return (
        -len(set(study.changed(group)) - {"pruning.sparsity"}),
        study.is_own_size(group),
        not group.is_real,
        group in study.own_pruned,
        group.sparsity,
        group.mean if study.more_is_better else -group.mean,
    )


def _find(study: Study, group: Group, algebra: str, unit: str) -> Group | None:
    """The other network with the same settings as ``group``, but over ``algebra`` and pruned by ``unit``."""
    for other in study.pruned:
        alike = (other.algebra, other.unit, other.first.width) == (algebra, unit, group.first.width)
        if alike and other is not group and other.is_finished and _rest(study, other) == _rest(study, group):
            return other
    return None


def _rest(study: Study, group: Group) -> dict[str, Any]:
    return {key: value for key, value in study.changed(group).items() if key != "pruning.unit"}


def _name(study: Study, group: Group) -> str:
    """The name of a pruned network, for example ``M2R with 90 % of its tuples pruned``."""
    what = "weights" if group.is_real else f"{group.unit}s"
    name = study.name(group, without={"pruning.sparsity", "pruning.unit"})
    return f"{name} with {percent(group.sparsity)} of its {what} pruned"
