"""A table of the runs in a folder, for ``eval FOLDER``."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from algebranets import checks
from algebranets.lab.cli.errors import describe
from algebranets.lab.cli.terminal import say, short, show, table_of_names

if TYPE_CHECKING:
    from algebranets.lab.train import Experiment, Result, RunFolder

#: How many folders deep runs are searched. ``runs/RECIPE/NAME`` is two below ``runs``.
MAX_DEPTH = 4
#: Files that only the folder of a run has. Other programs write a config.json too.
_OWN_FILES = ("environment", "result")


@dataclass(frozen=True)
class Run:
    """A run that was found, and what is known of it.

    Args:
        folder: Its folder.
        experiment: Its experiment; None if a file of the run is damaged.
        result: Its result; None if it is not finished.
        step: The last step with a row of metrics, if the run is not finished.
        is_training: Whether a process is training it now.
        error: What is wrong with its files; "" if nothing is.
    """

    folder: RunFolder
    experiment: Experiment | None = None
    result: Result | None = None
    step: int = 0
    is_training: bool = False
    error: str = ""

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read the run in a folder."""
        from algebranets.lab.train import METRICS, RunFolder

        folder = RunFolder(path)
        try:
            experiment, result = folder.experiment(), folder.finished()
            if result is not None:
                checks.one_of(f"the metric in {folder.result}", result.metric, METRICS)
            rows = () if result else folder.rows()
            step = max((int(row["step"]) for row in rows), default=0)
            return cls(folder, experiment, result, step, folder.is_locked())
        except (OSError, ValueError) as error:
            return cls(folder, error=describe(error))

    @property
    def algebra(self) -> str:
        """The name of the algebra."""
        from algebranets.algebra import get

        return get(self.experiment.algebra).name if self.experiment else ""

    @property
    def state(self) -> str:
        """Whether the run is finished, and else how far it is."""
        if self.error:
            return "damaged"
        if self.result is not None:
            return "finished"
        assert self.experiment is not None
        steps = f" of {self.experiment.steps:,}" if self.experiment.steps else ""
        return ("training" if self.is_training else "stopped") + f", step {self.step:,}{steps}"


def list_runs(path: Path) -> None:
    """Print a table of the runs in a folder, and how to evaluate one of them."""
    runs = [Run.read(found) for found in find_runs(path)]
    if not runs:
        why = "it has no config.json, and there are no runs in it"
        why = why if path.is_dir() else "it is a file" if path.exists() else "it does not exist"
        raise ValueError(
            f"{path} is not the folder of a run: {why}. Give the folder of a run, such as runs/digits/M2R-seed0, "
            "or a folder that contains runs."
        )
    best, finished = _best(runs), [run for run in runs if run.result is not None]
    metrics = {run.result.metric for run in finished if run.result}
    result_heading = metrics.pop() if len(metrics) == 1 else "result"
    headings = ("run", "algebra", "parameters", result_heading, "state")
    rows = []
    for run in runs:
        result = run.result
        costs = [short(result.parameters).strip(), _value(result, result_heading)] if result else ["", ""]
        name = str(run.folder.path.relative_to(path))
        rows.append((name, run.algebra, *costs, run.state + (", best" if run in best else "")))
    title = f"{len(runs)} run{'s' * (len(runs) > 1)} in {path}"
    show(table_of_names(title, headings, rows, numbers=headings[2:4]))
    for run in runs:
        if run.error:
            say(run.error, "damaged", "yellow")
    stopped = [run for run in runs if not (run.result or run.is_training or run.error)]
    _say_what_to_do(next(iter([*best, *finished]), None), stopped)


def _value(result: Result, heading: str) -> str:
    """The value of the result, with the name of its metric unless that is the heading of its column."""
    value = f"{result.value:#.4g}"
    return value if heading == result.metric else f"{result.metric} {value}"


def find_runs(path: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """Yield the folders of the runs in a folder, sorted; folders deeper than ``depth`` are not searched."""
    try:
        inside = sorted(found for found in path.iterdir() if found.is_dir() and not found.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        say(f"{path}: {error.strerror}.", "left out", "yellow")
        return
    for folder in inside:
        has_config, *has_own = (os.path.exists(folder / f"{name}.json") for name in ("config", *_OWN_FILES))
        if has_config and any(has_own):  # neither, if we may not look into the folder
            yield folder
        elif depth > 1:
            yield from find_runs(folder, depth - 1)


def _best(runs: Iterable[Run]) -> list[Run]:
    """The run with the best result of each recipe that has several results; NaN does not count."""
    from algebranets.lab.train import METRICS

    by_recipe: dict[tuple[str, str], list[tuple[float, Run]]] = {}
    for run in runs:
        if run.result is not None and not math.isnan(run.result.value):
            by_recipe.setdefault((run.result.recipe, run.result.metric), []).append((run.result.value, run))
    return [
        (max if METRICS[metric] else min)(found, key=lambda pair: pair[0])[1]
        for (_, metric), found in by_recipe.items()
        if len(found) > 1
    ]


def _say_what_to_do(finished: Run | None, stopped: list[Run]) -> None:
    if finished is not None:
        say(f"Evaluate one with `algebranets eval {shlex.quote(str(finished.folder.path))}`.")
    if stopped:
        where = shlex.quote(str(stopped[0].folder.path))
        say(f"Continue one that is not finished with `algebranets train --resume {where}`.")
