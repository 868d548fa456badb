"""The result of a run: a ``result.json`` in its folder, or one line of a file under ``results/``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from algebranets import checks, files

#: The metrics of results, and whether higher is better.
METRICS = {"accuracy": True, "bpc": False}

_WHAT_TO_DO = "Run it again or leave it out."
#: The settings that reports read, and their types. Older rows do not have all of these settings.
_READ_BY_REPORTS = {
    "model.hidden_size": int, "data.batch_size": int, "data.length": int, "pruning.sparsity": float,
    "pruning.unit": str, "pruning.criterion": str, "budget": float,
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The result of a finished run.

    Args:
        recipe: The name of the recipe.
        algebra: The name of the algebra.
        width: The width multiplier.
        seed: The seed.
        changes: The settings that differ from the recipe's, such as ``{"model.norm": "whitening"}``.
        metric: A key of `METRICS`; accuracy is in percent, bpc is bits per character.
        value: The metric's value.
        parameters: The number of parameters.
        statistics: The number of moving statistics, which are not parameters.
        multiplies: Multiply-adds for one input: one image, or one token.
        steps: The number of training steps.
        seconds: The time of training in seconds, evaluations included.
        curve: A row for each evaluation: ``step``, ``epoch``, ``seconds``, ``train_loss`` and the metrics.
        experiment: The experiment, from `Experiment.to_dict`.
        environment: Commit, versions, device and hardware.
        command: The command that started the run.
        nonzero: The number of parameters that are not zero; None in older rows.
        multiplies_left: Multiply-adds that are left when products with zero tuples are skipped; None in older rows.

    >>> result = Result.load(Path("runs/digits/M2R-seed0/result.json"))  # doctest: +SKIP
    >>> result.metric, result.label  # doctest: +SKIP
    ('accuracy', 'M2R')
    """

    recipe: str
    algebra: str
    width: float
    seed: int
    changes: dict[str, Any]
    metric: str
    value: float
    parameters: int
    statistics: int
    multiplies: int
    steps: int
    seconds: float
    curve: list[dict[str, float]]
    experiment: dict[str, Any]
    environment: dict[str, Any]
    command: str
    nonzero: int | None = None
    multiplies_left: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that a report could not show."""
        checks.fields(self)
        checks.between("width", self.width, 1 / checks.LARGEST_WHOLE, checks.LARGEST_WHOLE)
        checks.between("seconds", self.seconds, 0, checks.LARGEST_WHOLE)
        for name in ("parameters", "multiplies", "steps"):
            checks.whole(name, getattr(self, name), least=1)
        for name in ("statistics", "nonzero", "multiplies_left"):
            checks.whole(name, getattr(self, name) or 0, least=0)
        if not all(map(is_row, self.curve)):
            raise ValueError("curve must be a list of rows: numbers by name, step and seconds among them.")
        _check_experiment(self.experiment)

    @property
    def label(self) -> str:
        """A short name from the algebra, width and changed settings; runs that differ only by seed share it."""
        return label(self.algebra, self.width, self.changes)

    def save(self, path: Path) -> None:
        """Write the result to ``path``, a ``result.json``."""
        files.write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a ``result.json``."""
        return cls.from_dict(files.parse(path.read_bytes(), path, _WHAT_TO_DO), path)

    @classmethod
    def from_dict(cls, data: Any, where: object) -> Result:
        """Make a result from the dictionary ``data``; errors name ``where`` the data was found."""
        try:
            return cls(**checks.options("it", data, cls))
        except ValueError as error:
            raise ValueError(f"{where} is no result of algebranets: {error} {_WHAT_TO_DO}") from None


def _check_experiment(experiment: Mapping[str, Any]) -> None:
    """Refuse settings that reports cannot read."""
    read = {"budget": experiment.get("budget", 0.0)}
    for part in ("model", "data", "pruning"):
        for name, value in checks.typed(f"experiment.{part}", experiment.get(part, {}), Mapping[str, Any]).items():
            if isinstance(value, dict | list):
                raise ValueError(f"experiment.{part}.{name} must be a number or a word; got {value!r:.80}.")
            read[f"{part}.{name}"] = value
    for name, kind in _READ_BY_REPORTS.items():
        if name in read:
            checks.typed(f"experiment.{name}", read[name], kind)
    checks.between("experiment.pruning.sparsity", read.get("pruning.sparsity", 0), 0, 1)


def is_row(row: Any) -> bool:
    """Whether ``row`` is a row of metrics: numbers by name, with ``step`` and ``seconds`` among them."""
    return (
        isinstance(row, dict)
        and all(type(v) is float or (type(v) is int and abs(v) < checks.LARGEST_WHOLE) for v in row.values())
        and all(math.isfinite(row.get(name, math.nan)) for name in ("step", "seconds"))
    )


def label(algebra: str, width: float, changes: Mapping[str, Any]) -> str:
    """A short name of a run within its recipe; a path is shortened to its last part.

    >>> label("M2R", 0.5, {"model.norm": "whitening", "label_smoothing": 0.0})
    'M2R x0.5, label smoothing 0, norm whitening'
    >>> label("R", 1, {"data.name": "/home/me/my.txt"})
    'R, name my.txt'
    """
    times = "" if width == 1 else f" x{width:g}"
    words = (f", {key.rpartition('.')[2].replace('_', ' ')} {_shown(value)}" for key, value in sorted(changes.items()))
    return algebra + times + "".join(words)


def _shown(value: object) -> str:
    return f"{value:.15g}" if isinstance(value, float) else Path(str(value)).name


def read(paths: Iterable[Path]) -> list[Result]:
    """Read the results in ``paths``, in order: folders, searched at any depth, and ``.jsonl`` files."""
    results = [result for path in paths for result in _read(path)]
    if not results:
        raise ValueError(
            "no finished run was found: a run's folder holds a result.json when it is done. "
            "Give folders of `algebranets train` or files under results/."
        )
    return results


def _read(path: Path) -> Iterator[Result]:
    if not path.exists():
        raise ValueError(f"{path} does not exist; give run folders or .jsonl files of results.")
    if path.is_dir():
        for file in sorted(path.rglob("result.json")):
            yield Result.load(file)
        return
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        where = f"{path}, line {number},"
        yield Result.from_dict(files.parse(line, where, _WHAT_TO_DO), where)


def unfinished(paths: Iterable[Path]) -> list[Path]:
    """The folders of runs without a result (yet), which `read` leaves out."""
    # other programs, and `algebranets publish`, write a config.json too
    begun = {file.parent for path in paths if path.is_dir() for file in path.rglob("environment.json")}
    return sorted(path for path in begun if not (path / "result.json").exists())
