"""All trained networks of one recipe, and the pairs of them that are compared."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from algebranets import checks
from algebranets.algebra import CATALOGUE
from algebranets.lab.report.group import PRUNING, Group, changes_of
from algebranets.lab.report.paper.rows import ROW_SETTINGS, SIZES
from algebranets.lab.train.results import METRICS, Result, label

#: The settings that a variant shares with the network it is compared with: its size, how long it was trained, and how
#: often it was evaluated.
SHARED_WITH_BASELINE = SIZES | {"epochs", "steps", "budget", "evaluations"}


@dataclass(frozen=True)
class Study:
    """All networks of one recipe.

    Args:
        groups: The networks, each with its runs.
    """

    groups: tuple[Group, ...]

    @property
    def recipe(self) -> str:
        return self.groups[0].first.recipe

    @property
    def metric(self) -> str:
        return self.groups[0].first.metric

    @property
    def more_is_better(self) -> bool:
        return METRICS[self.metric]

    @property
    def runs(self) -> list[Result]:
        """Every run of every network."""
        return [run for group in self.groups for run in group.results]

    @property
    def algebras(self) -> list[str]:
        """The algebras of the networks."""
        return list(dict.fromkeys(group.algebra for group in self.groups))

    @cached_property
    def shared_changes(self) -> dict[str, Any]:
        """The changes from the recipe that all networks share. Names of rows leave them out."""
        first, *others = (group.changes for group in self.groups)
        return {
            key: value
            for key, value in first.items()
            if key not in ROW_SETTINGS | set(PRUNING) and all(key in other and other[key] == value for other in others)
        }

    @property
    def rows(self) -> tuple[Group, ...]:
        """The dense networks that were trained as in the recipe, with any algebra, width, size and norm."""
        return tuple(group for group in self.groups if not set(self.changed(group)) - ROW_SETTINGS)

    @property
    def finished(self) -> list[Group]:
        """The `rows` whose runs all finished without diverging."""
        return [group for group in self.rows if group.is_finished]

    @property
    def pruned(self) -> tuple[Group, ...]:
        """The pruned networks. They are neither `rows` nor `ablations`."""
        return tuple(group for group in self.groups if group.sparsity)

    @property
    def own_pruned(self) -> tuple[Group, ...]:
        """The networks that are pruned exactly as in the recipe."""
        return tuple(
            group for group in self.pruned if not set(group.first.changes) - ROW_SETTINGS - set(self.shared_changes)
        )

    @property
    def is_about_pruning(self) -> bool:
        """Whether the recipe itself prunes, or every network of the study is pruned."""
        recipe_prunes = any(
            bool(group.sparsity) != ("pruning.sparsity" in group.first.changes) for group in self.groups
        )
        return bool(self.pruned) and (recipe_prunes or not self.rows)

    @property
    def ablations(self) -> tuple[Group, ...]:
        """The variants that the report compares with their `baseline`.

        They are the dense networks with a change other than size and length of training. Networks whose only change
        is the norm, which are also `rows`, and the `lengths` are included only if their baseline was trained.
        """
        variants = [group for group in self._variants if group not in self.rows or self.baseline(group)]
        return (*variants, *(group for group in self.lengths if self.baseline(group)))

    @cached_property
    def _variants(self) -> list[Group]:
        """Dense networks with a change other than size and length of training."""
        return [
            group for group in self.groups if set(self.changed(group)) - SHARED_WITH_BASELINE and not group.sparsity
        ]

    @cached_property
    def lengths(self) -> tuple[Group, ...]:
        """Networks that were trained for longer or shorter, unless they are only the baseline of a variant."""
        baselines = [self.baseline(group) for group in self._variants]
        return tuple(
            group
            for group in self.groups
            if group not in (*self.rows, *self._variants, *self.pruned)
            and not any(group is baseline for baseline in baselines)
        )

    def changed(self, group: Group) -> dict[str, Any]:
        """The changes of a network, without `shared_changes`."""
        return {key: value for key, value in group.changes.items() if key not in self.shared_changes}

    def is_own_size(self, group: Group) -> bool:
        """Whether a network has the recipe's own width and size."""
        return group.first.width == 1 and not set(group.changes) & SIZES

    def name(self, group: Group, without: Collection[str] = ()) -> str:
        """The name of a network within the study, such as ``M2R x0.5, norm whitening``.

        Args:
            group: The network.
            without: Settings that the name leaves out.
        """
        named = {key: value for key, value in self.changed(group).items() if key not in without}
        return label(group.algebra, group.first.width, named)

    def baseline(self, group: Group) -> Group | None:
        """The network that a variant is compared with, if it was trained.

        It has the same algebra, width, size and length of training, and no other change. A network that differs only in
        the length of training is compared with the one that was trained for the length of the recipe.
        """
        common = SHARED_WITH_BASELINE if set(self.changed(group)) - SHARED_WITH_BASELINE else SIZES
        return self._find(group, {key: value for key, value in self.changed(group).items() if key in common})

    def dense(self, group: Group) -> Group | None:
        """The network with the same settings but no pruning, or None if it was not trained."""
        others = {key: value for key, value in self.changed(group).items() if not key.startswith("pruning.")}
        return self._find(group, others)

    def _find(self, group: Group, changed: dict[str, Any]) -> Group | None:
        """Another network with the algebra and width of ``group``, and with the changes ``changed``."""
        for other in self.groups:
            alike = other.algebra == group.algebra and other.first.width == group.first.width
            if alike and other is not group and self.changed(other) == changed:
                return other
        return None

    def is_better(self, difference: float) -> bool:
        """Whether a difference of the metric is an improvement."""
        return difference > 0 if self.more_is_better else difference < 0

    def best(self, groups: Iterable[Group]) -> Group:
        """The network with the best mean."""
        return max(groups, key=lambda group: group.mean if self.more_is_better else -group.mean)


def studies(results: Iterable[Result]) -> list[Study]:
    """Group runs by recipe, and the runs of a recipe by network.

    >>> from pathlib import Path
    >>> from algebranets.lab.train import results
    >>> (study,) = studies(results.read([Path("results/digits.jsonl")]))
    >>> study.recipe, [study.name(group) for group in study.rows]
    ('digits', ['R', 'C', 'M2R', 'H'])

    Args:
        results: Finished runs. A run that is given twice counts once.

    Returns:
        One study per recipe, in the order in which recipes first occur.
    """
    recipes: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        checks.one_of(f"the metric of a run of {result.recipe}", result.metric, METRICS)
        key = json.dumps([result.algebra, float(result.width), result.metric, changes_of(result)], sort_keys=True)
        runs = recipes.setdefault(result.recipe, {}).setdefault(key, [])
        if repr(result) not in map(repr, runs):  # as text, because NaN is not equal to itself
            runs.append(result)
    found = []
    for recipe, networks in recipes.items():
        for runs in networks.values():
            _check_seeds(runs)
        groups = sorted((Group(tuple(sorted(runs, key=lambda r: r.seed))) for runs in networks.values()), key=_order)
        if len({group.first.metric for group in groups}) > 1:
            raise ValueError(f"the results of {recipe} must share one metric; report other metrics separately.")
        found.append(Study(tuple(groups)))
    return found


def _check_seeds(runs: list[Result]) -> None:
    seeds = [run.seed for run in runs]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise ValueError(
            f"{runs[0].recipe}, {runs[0].label}, must have one run per seed; got several of seed "
            f"{', '.join(map(str, twice))}. Leave out all but one."
        )


def _order(group: Group) -> tuple[int, str, str, float, int]:
    """The sort key of rows: place in the catalogue, then changes, sparsity and size."""
    names = list(CATALOGUE)
    place = names.index(group.algebra) if group.algebra in names else len(names)
    settings = {key: value for key, value in group.changes.items() if key not in SIZES | {"pruning.sparsity"}}
    written = json.dumps(settings, sort_keys=True) if settings else ""
    return place, group.algebra, written, group.sparsity, group.first.parameters
