"""Results taken together: the runs of a row, which differ in their seeds only, and the rows of a recipe."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, NamedTuple

from algebranets.algebra import CATALOGUE, R
from algebranets.lab.report.published import ROW_SETTINGS, SIZES, Printed, printed
from algebranets.lab.train.results import METRICS, Result, label

#: What a variant and the network it is compared with have in common: their size, how long they were trained, and how
#: often that was interrupted.
KEPT = SIZES | {"epochs", "steps", "budget", "evaluations"}
#: What pruned networks are compared in, and the usual: nothing is pruned; if something is, it is tuples of small norm.
PRUNING: dict[str, Any] = {"pruning.sparsity": 0, "pruning.unit": "tuple", "pruning.criterion": "norm"}


@dataclass(frozen=True)
class Group:
    """The runs of one row: same recipe, algebra, width and changes, one run a seed."""

    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """What all of them share can be read off it."""
        return self.results[0]

    @property
    def algebra(self) -> str:
        return self.first.algebra

    @cached_property
    def changes(self) -> dict[str, Any]:
        """What is not the recipe's own; what is said of pruning is what is not usual."""
        return _changes(self.first)

    @property
    def sparsity(self) -> float:
        """The share that was to be pruned; 0 for a dense network."""
        return float(self._pruning("sparsity"))

    @property
    def unit(self) -> str:
        """What was pruned at once."""
        return str(self._pruning("unit"))

    @property
    def criterion(self) -> str:
        """What was said to be small."""
        return str(self._pruning("criterion"))

    def _pruning(self, name: str) -> Any:
        key = f"pruning.{name}"
        return self.changes.get(key, PRUNING[key])

    @property
    def nonzero(self) -> float | None:
        """Mean number of parameters that are not zero, all of a dense network; None if it was not counted."""
        return self._left([run.nonzero for run in self.results], self.first.parameters)

    @property
    def multiplies_left(self) -> float | None:
        """Mean multiply-adds that are not skipped, all of a dense network; None if they were not counted."""
        return self._left([run.multiplies_left for run in self.results], self.first.multiplies)

    def _left(self, counts: list[int | None], everything: int) -> float | None:
        known = [count for count in counts if count is not None]
        if known:
            return fmean(known)
        return None if self.sparsity else everything

    @property
    def mean(self) -> float:
        """The metric's mean over seeds; not finite if a run diverged."""
        return fmean(result.value for result in self.results)

    @property
    def spread(self) -> float | None:
        """The sample standard deviation over seeds; None for one, or if a run diverged."""
        values = [result.value for result in self.results]
        return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None

    @property
    def seconds(self) -> float:
        """Mean training time."""
        return fmean(result.seconds for result in self.results)

    @property
    def pace(self) -> float | None:
        """Mean time of a step behind the first evaluation, so that starting and compiling do not count."""
        ends = [(result.curve[0], result.curve[-1]) for result in self.results if len(result.curve) > 1]
        paces = [(b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in ends if b["step"] > a["step"]]
        return fmean(paces) if paces else None

    @property
    def settings_differ(self) -> bool:
        """Whether runs differ in more than their seeds: the recipe itself changed between them."""
        apart = ("seed", "steps", "evaluations") if self.first.experiment.get("budget") else ("seed",)
        prunings = [result.experiment.get("pruning", {}) if self.sparsity else {} for result in self.results]
        known = set.intersection(*map(set, prunings))  # what an older row does not name was not there to be set
        experiments = [
            {**result.experiment, **dict.fromkeys(apart), "pruning": {key: pruning[key] for key in known}}
            for result, pruning in zip(self.results, prunings, strict=True)
        ]
        return any(experiment != experiments[0] for experiment in experiments)

    @property
    def is_real(self) -> bool:
        return self.algebra == R.name

    @cached_property
    def printed(self) -> Printed | None:
        """The paper's row of this network, trained as the recipe says."""
        if set(self.changes) - ROW_SETTINGS:
            return None
        return printed(self.first.recipe, self.algebra, self.first.width, self.first.experiment.get("model", {}))

    @property
    def difference(self) -> float | None:
        """Ours less the printed figure; of a metric like bits per character, less is better."""
        return None if self.printed is None else self.mean - float(self.printed.quality)

    def tells(self, difference: float, other: Group | None = None) -> bool:
        """Whether ``difference`` is more than twice the (larger) spread over seeds; never for one seed."""
        spreads = [self.spread] if other is None else [self.spread, other.spread]
        return all(spread is not None and abs(difference) > 2 * spread for spread in spreads)


class Cost(NamedTuple):
    """What a network has, and what an image or a token takes."""

    parameters: float
    multiplies: float


@dataclass(frozen=True)
class Study:
    """All rows of one recipe."""

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

    @cached_property
    def shared(self) -> dict[str, Any]:
        """Changes that every row has: how this study differs from the recipe, which no row need repeat."""
        first, *others = (group.changes for group in self.groups)
        return {
            key: value
            for key, value in first.items()
            if key not in ROW_SETTINGS | set(PRUNING) and all(key in other and other[key] == value for other in others)
        }

    @property
    def rows(self) -> tuple[Group, ...]:
        """The networks as the recipe trains them, but dense: algebras, widths, sizes, norms."""
        return tuple(group for group in self.groups if not set(self.changed(group)) - ROW_SETTINGS)

    @property
    def pruned(self) -> tuple[Group, ...]:
        """The pruned networks, which are neither `rows` nor `ablations`."""
        return tuple(group for group in self.groups if group.sparsity)

    @property
    def own_pruned(self) -> tuple[Group, ...]:
        """The networks that the recipe itself prunes, as it does."""
        return tuple(group for group in self.pruned if not set(group.first.changes) - ROW_SETTINGS - set(self.shared))

    @property
    def is_of_pruning(self) -> bool:
        """Whether the recipe prunes, so that its dense networks are those it was changed for; or all are pruned."""
        differ = any(bool(group.sparsity) != ("pruning.sparsity" in group.first.changes) for group in self.groups)
        return bool(self.pruned) and (differ or not self.rows)

    @property
    def finished(self) -> list[Group]:
        """The rows of which no run diverged."""
        return [group for group in self.rows if math.isfinite(group.mean)]

    @property
    def ablations(self) -> tuple[Group, ...]:
        """Rows with a change that is none of `KEPT`; another norm too, if the usual one is there to compare.

        And `lengths`, if the usual one is there.
        """
        variants = [group for group in self._variants if group not in self.rows or self.baseline(group)]
        return (*variants, *(group for group in self.lengths if self.baseline(group)))

    @cached_property
    def _variants(self) -> list[Group]:
        """Dense networks with a change of more than size and length."""
        return [group for group in self.groups if set(self.changed(group)) - KEPT and not group.sparsity]

    @cached_property
    def lengths(self) -> tuple[Group, ...]:
        """Rows that were trained for longer or shorter, for no other variant's sake."""
        compared = [self.baseline(group) for group in self._variants]
        return tuple(
            group
            for group in self.groups
            if group not in (*self.rows, *self._variants, *self.pruned) and not any(group is o for o in compared)
        )

    @property
    def real_sizes(self) -> list[Group]:
        """The real networks, smallest first, each better than those before it."""
        found: list[Group] = []
        for group in sorted(self.finished, key=lambda group: group.first.parameters):
            is_plain = group.is_real and not set(self.changed(group)) - SIZES
            if is_plain and (not found or self.better(group.mean - found[-1].mean)):
                found.append(group)
        return found

    def as_good(self, group: Group) -> Cost | None:
        """What a real network costs that is as good, on a line of logarithms between two that were trained.

        None if it would be smaller or larger than all of them.
        """
        for smaller, larger in pairwise(self.real_sizes):
            along = (group.mean - smaller.mean) / (larger.mean - smaller.mean)
            if 0 <= along <= 1:
                a, b = smaller.first, larger.first
                parameters, multiplies = (a.parameters, b.parameters), (a.multiplies, b.multiplies)
                return Cost(_between(*parameters, along), _between(*multiplies, along))
        return None

    @property
    def matched(self) -> list[tuple[Group, Cost]]:
        """Networks over other algebras, each with what a real one costs that is `as_good`, where that is known."""
        found = [(group, self.as_good(group)) for group in self.finished if not group.is_real]
        return [(group, real) for group, real in found if real]

    def changed(self, group: Group) -> dict[str, Any]:
        """What sets the row apart from the others, algebra and width aside."""
        return {key: value for key, value in group.changes.items() if key not in self.shared}

    def is_own_size(self, group: Group) -> bool:
        """Whether the network is as wide and as large as the recipe has it."""
        return group.first.width == 1 and not set(group.changes) & SIZES

    def name(self, group: Group, without: Collection[str] = ()) -> str:
        """Such as ``M2R x0.5, norm whitening``; settings in ``without`` are not named."""
        named = {key: value for key, value in self.changed(group).items() if key not in without}
        return label(group.algebra, group.first.width, named)

    def baseline(self, group: Group) -> Group | None:
        """The row of the same algebra, width, size and length of training without further changes.

        Where nothing but the length is changed, that of the recipe's length.
        """
        common = KEPT if set(self.changed(group)) - KEPT else SIZES
        return self._like(group, {key: value for key, value in self.changed(group).items() if key in common})

    def dense(self, group: Group) -> Group | None:
        """The same network, trained without being pruned."""
        others = {key: value for key, value in self.changed(group).items() if not key.startswith("pruning.")}
        return self._like(group, others)

    def _like(self, group: Group, changed: dict[str, Any]) -> Group | None:
        """Another row of this algebra and width that is changed so."""
        for other in self.groups:
            alike = other.algebra == group.algebra and other.first.width == group.first.width
            if alike and other is not group and self.changed(other) == changed:
                return other
        return None

    def better(self, difference: float) -> bool:
        """Whether a difference in the metric is to the good."""
        return difference > 0 if self.more_is_better else difference < 0


def studies(results: Iterable[Result]) -> list[Study]:
    """One `Study` a recipe, in the order they come; a result that stands there twice counts once."""
    recipes: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        if result.metric not in METRICS:
            raise ValueError(
                f"a result of {result.recipe} is measured in {result.metric!r}; it must be one of "
                f"{', '.join(METRICS)}. Leave that run out."
            )
        key = json.dumps([result.algebra, float(result.width), result.metric, _changes(result)], sort_keys=True)
        runs = recipes.setdefault(result.recipe, {}).setdefault(key, [])
        if repr(result) not in map(repr, runs):  # by what is written: a loss that is no number equals nothing
            runs.append(result)
    found = []
    for recipe, by_key in recipes.items():
        for runs in by_key.values():
            _check_seeds(runs)
        groups = sorted((Group(tuple(sorted(runs, key=lambda r: r.seed))) for runs in by_key.values()), key=_order)
        if len({group.first.metric for group in groups}) > 1:
            raise ValueError(f"the results of {recipe} must share one metric; report those of another apart.")
        found.append(Study(tuple(groups)))
    return found


def _changes(result: Result) -> dict[str, Any]:
    """Its changes; of pruning, all that is not usual, the recipe's own too, and nothing where nothing is pruned."""
    pruning = result.experiment.get("pruning", {})
    if not pruning.get("sparsity"):
        return {key: value for key, value in result.changes.items() if not key.startswith("pruning.")}
    settings = {key: pruning.get(key.removeprefix("pruning."), usual) for key, usual in PRUNING.items()}
    others = {key: value for key, value in result.changes.items() if key not in PRUNING}
    return others | {key: value for key, value in settings.items() if value != PRUNING[key]}


def _between(a: float, b: float, along: float) -> float:
    """From a to b by their logarithms.

    >>> _between(1, 100, 0.5)
    10.0
    """
    return a ** (1 - along) * b**along


def _check_seeds(runs: list[Result]) -> None:
    seeds = [run.seed for run in runs]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise ValueError(
            f"{runs[0].recipe}, {runs[0].label}, must have one run a seed; got several of seed "
            f"{', '.join(map(str, twice))}. Leave all but one out."
        )


def _order(group: Group) -> tuple[int, str, str, float, int]:
    """The catalogue's order, then rows without changes, then the less pruned, then the smaller network."""
    names = list(CATALOGUE)
    place = names.index(group.algebra) if group.algebra in names else len(names)
    settings = {key: value for key, value in group.changes.items() if key not in SIZES | {"pruning.sparsity"}}
    written = json.dumps(settings, sort_keys=True) if settings else ""
    return place, group.algebra, written, group.sparsity, group.first.parameters
