"""A row of a report: the runs of one network, which differ only in their seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from algebranets.algebra import R
from algebranets.lab.data import DATASETS
from algebranets.lab.report.paper.rows import ROW_SETTINGS, PrintedRow, printed_row
from algebranets.lab.report.significance import wilson_interval
from algebranets.lab.train.results import Result

#: The settings by which pruned networks are compared, with their usual values: no pruning, and in pruned networks
#: whole tuples with the smallest norms.
PRUNING: dict[str, Any] = {"pruning.sparsity": 0, "pruning.unit": "tuple", "pruning.criterion": "norm"}

#: The costs of a network, and their names.
COSTS = {"parameters": "parameters", "multiplies": "multiply-adds"}


@dataclass(frozen=True)
class Group:
    """Runs with the same recipe, algebra, width and changes, one run per seed.

    Args:
        results: The runs, at least one.
    """

    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """The first run, used to read values that all runs share."""
        return self.results[0]

    @property
    def algebra(self) -> str:
        return self.first.algebra

    @property
    def is_real(self) -> bool:
        return self.algebra == R.name

    @cached_property
    def changes(self) -> dict[str, Any]:
        """The settings that differ from the recipe; see `changes_of`."""
        return changes_of(self.first)

    @property
    def sparsity(self) -> float:
        """The share of the weights that the run was asked to prune; 0 for a dense network."""
        return float(self._pruning("sparsity"))

    @property
    def unit(self) -> str:
        """The unit that is pruned: ``"tuple"`` or ``"component"``."""
        return str(self._pruning("unit"))

    @property
    def criterion(self) -> str:
        """The criterion that ranks tuples, such as ``"norm"``."""
        return str(self._pruning("criterion"))

    def _pruning(self, name: str) -> Any:
        key = f"pruning.{name}"
        return self.changes.get(key, PRUNING[key])

    @property
    def nonzero(self) -> float | None:
        """Mean number of parameters that are not zero; all of them if dense. None if they were not counted."""
        return self._left([run.nonzero for run in self.results], self.first.parameters)

    @property
    def multiplies_left(self) -> float | None:
        """Mean multiply-adds that are not skipped; all of them if dense. None if they were not counted."""
        return self._left([run.multiplies_left for run in self.results], self.first.multiplies)

    def _left(self, counts: list[int | None], everything: int) -> float | None:
        known = [count for count in counts if count is not None]
        if known:
            return fmean(known)
        return None if self.sparsity else everything

    @property
    def values(self) -> list[float]:
        """The metric of each run."""
        return [result.value for result in self.results]

    @property
    def mean(self) -> float:
        """The metric's mean over seeds; not finite if a run diverged."""
        return fmean(self.values)

    @property
    def is_finished(self) -> bool:
        """Whether no run diverged."""
        return math.isfinite(self.mean)

    @property
    def deviation(self) -> float | None:
        """The metric's sample standard deviation over seeds; None for one seed, or if a run diverged."""
        return stdev(self.values) if len(self.values) > 1 and all(map(math.isfinite, self.values)) else None

    @property
    def num_test(self) -> int | None:
        """The number of test images that an accuracy was measured on; None for other metrics, or if it is not known."""
        data = DATASETS.get(str(self.first.experiment.get("data", {}).get("name")))
        return data.num_test if data and self.first.metric == "accuracy" else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The Wilson interval of the mean accuracy; None if the number of test images is not known.

        All seeds share the test images, so that more seeds do not make it smaller.
        """
        return wilson_interval(self.mean, self.num_test) if self.num_test and self.is_finished else None

    @property
    def seconds(self) -> float:
        """Mean training time."""
        return fmean(result.seconds for result in self.results)

    @property
    def seconds_per_step(self) -> float | None:
        """Mean time of a training step after the first evaluation, so that startup and compilation do not count."""
        ends = [(result.curve[0], result.curve[-1]) for result in self.results if len(result.curve) > 1]
        times = [(b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in ends if b["step"] > a["step"]]
        return fmean(times) if times else None

    @property
    def settings_differ(self) -> bool:
        """Whether the runs differ in more than their seeds, because the recipe changed between them."""
        ignored = ["seed", "replanned_at", "replanned_from"]
        ignored += ["steps", "evaluations"] if self.first.experiment.get("budget") else []
        prunings = [result.experiment.get("pruning", {}) if self.sparsity else {} for result in self.results]
        known = set.intersection(*map(set, prunings))  # older rows lack settings that were added later
        experiments = [
            {**result.experiment, **dict.fromkeys(ignored), "pruning": {key: pruning[key] for key in known}}
            for result, pruning in zip(self.results, prunings, strict=True)
        ]
        return any(experiment != experiments[0] for experiment in experiments)

    @cached_property
    def printed(self) -> PrintedRow | None:
        """The paper's row for this network; None if the paper has none, or for changes besides `ROW_SETTINGS`."""
        if set(self.changes) - ROW_SETTINGS:
            return None
        return printed_row(self.first.recipe, self.algebra, self.first.width, self.first.experiment.get("model", {}))

    @property
    def difference_to_paper(self) -> float | None:
        """Our mean minus the printed figure; None if there is no printed row."""
        return None if self.printed is None else self.mean - float(self.printed.quality)


def changes_of(result: Result) -> dict[str, Any]:
    """The settings of a run that differ from the recipe.

    Pruning settings are included if they differ from the usual ones (`PRUNING`), even if they are the recipe's own. If
    nothing is pruned, they are left out.
    """
    pruning = result.experiment.get("pruning", {})
    if not pruning.get("sparsity"):
        return {key: value for key, value in result.changes.items() if not key.startswith("pruning.")}
    settings = {key: pruning.get(key.removeprefix("pruning."), usual) for key, usual in PRUNING.items()}
    others = {key: value for key, value in result.changes.items() if key not in PRUNING}
    return others | {key: value for key, value in settings.items() if value != PRUNING[key]}
