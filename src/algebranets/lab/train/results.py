"""The result of a run: one row, in its folder's ``result.json`` or as a line of a file under ``results/``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from algebranets import checks, files

#: The metric that each kind of run is judged by, and whether more of it is better.
METRICS = {"accuracy": True, "bpc": False}

_WHAT_TO_DO = "Run it again or leave it out."
#: Settings of an experiment that reports read, and their types; older rows do not have all of them.
_READ_BY_REPORTS = {
    "model.hidden_size": int, "data.batch_size": int, "data.length": int, "pruning.sparsity": float,
    "pruning.unit": str, "pruning.criterion": str, "budget": float,
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The result of a finished run.

    Args:
        recipe: The name of its recipe.
        algebra: The name of its algebra.
        width: Its width multiplier.
        seed: Its seed.
        changes: The settings that differ from the recipe's, as in ``{"model.norm": "whitening"}``.
        metric: A key of `METRICS`; accuracy is in percent, bpc is bits per character.
        value: The metric's value.
        parameters: The number of parameters.
        statistics: The number of moving statistics, which are not parameters.
        multiplies: Multiply-adds for one input: one image, or one token.
        steps: Batches it was trained on.
        seconds: How long it was trained.
        curve: A row for each evaluation: ``step``, ``epoch``, ``seconds``, ``train_loss`` and what was measured.
        experiment: The experiment, as `Experiment.to_dict` gives it.
        environment: Commit, versions, device and hardware.
        command: The command that started the run.
        nonzero: The number of parameters that are not zero; None in rows that were written before it was counted.
        multiplies_left: Multiply-adds that are left when products with zero tuples are skipped; None likewise.

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
        """Refuse what a report could not show."""
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
        """What sets the run apart from others of its recipe, except for its seed."""
        return label(self.algebra, self.width, self.changes)

    def save(self, path: Path) -> None:
        """Write the result to ``path``, a ``result.json``."""
        files.write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read what `save` wrote."""
        return cls.from_dict(files.parse(path.read_bytes(), path, _WHAT_TO_DO), path)

    @classmethod
    def from_dict(cls, data: Any, where: object) -> Result:
        """The result that `asdict` made a dictionary of; errors name ``where`` it was found."""
        try:
            return cls(**checks.options("it", data, cls))
        except ValueError as error:
            raise ValueError(f"{where} is no result of algebranets: {error} {_WHAT_TO_DO}") from None


def _check_experiment(experiment: Mapping[str, Any]) -> None:
    """Refuse settings that reports could not read."""
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
    """Whether this is a row of metrics: numbers by name, with a step and the seconds since the run started."""
    return (
        isinstance(row, dict)
        and all(type(v) is float or (type(v) is int and abs(v) < checks.LARGEST_WHOLE) for v in row.values())
        and all(math.isfinite(row.get(name, math.nan)) for name in ("step", "seconds"))
    )


def label(algebra: str, width: float, changes: Mapping[str, Any]) -> str:
    """A run's name among others of its recipe; a path is shortened to its last part.

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
    """The results in run folders, in folders of run folders at any depth, and in ``.jsonl`` files, in order."""
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
    """The folders of runs that have no result (yet), which `read` leaves out."""
    begun = {file.parent for path in paths if path.is_dir() for file in path.rglob("config.json")}
    return sorted(path for path in begun if not (path / "result.json").exists())
