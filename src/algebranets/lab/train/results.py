"""What came out of a run: one row, in its folder's ``result.json`` or as a line of a file under ``results/``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from algebranets import files
from algebranets.lab.train.checks import MOST, between, checked

#: The quantity each kind of run is judged by, and whether more of it is better.
METRICS = {"accuracy": True, "bpc": False}

_OUT = "Run it again or leave it out."


@dataclass(frozen=True)
class Result:
    """A finished run: what was trained, on what, and what came out."""

    recipe: str
    algebra: str
    width: float
    seed: int
    #: Settings that are not the recipe's own, as ``{"model.norm": "whitening"}``.
    changes: dict[str, Any]
    #: A key of `METRICS`; accuracy is in percent.
    metric: str
    value: float
    parameters: int
    #: Moving statistics, which are no parameters.
    statistics: int
    #: Multiply-adds of one input: one image, or one token.
    multiplies: int
    steps: int
    seconds: float
    #: What was measured on the way: rows with ``step``, ``epoch``, ``train_loss`` and what the evaluation gave.
    curve: list[dict[str, float]]
    experiment: dict[str, Any]
    environment: dict[str, Any]
    command: str
    #: Parameters that are not zero; None in rows of before it was counted, as is what follows.
    nonzero: int | None = None
    #: Multiply-adds that remain where products with zero tuples are skipped; a zero component skips nothing.
    multiplies_left: int | None = None

    @property
    def label(self) -> str:
        """What sets it apart from other runs of its recipe, its seed aside."""
        return label(self.algebra, self.width, self.changes)

    def save(self, path: Path) -> None:
        """Write it to ``path``, a ``result.json``."""
        files.write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        """What `save` wrote."""
        return cls.from_dict(files.parse(path.read_bytes(), path, _OUT), path)

    @classmethod
    def from_dict(cls, data: Any, where: object) -> Result:
        """What `asdict` made; ``where`` it stands is for the error."""
        names = [field.name for field in fields(cls)]
        later = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
        if not isinstance(data, dict) or set(data | later) != set(names):
            found = sorted(set(data | later) ^ set(names)) if isinstance(data, dict) else type(data).__name__
            raise ValueError(
                f"{where} is no result of algebranets: it must hold {', '.join(names)}; differs in {found}."
            )
        data = later | data
        try:
            _check(data)
        except ValueError as error:
            raise ValueError(f"{where} is no result of algebranets: {error} {_OUT}") from None
        return cls(**data)


#: What reports read of an experiment, and its kind; older rows do not have all of it.
_READ = {
    "model.hidden_size": int, "data.batch_size": int, "data.length": int, "pruning.sparsity": float,
    "pruning.unit": str, "pruning.criterion": str, "budget": float,
}  # fmt: skip
_COUNTS = ("parameters", "statistics", "multiplies", "steps", "nonzero", "multiplies_left")


def _check(data: Mapping[str, Any]) -> None:
    """Refuse what a report could not show."""
    for name in ("recipe", "algebra", "metric", "command"):
        checked(name, data[name], str)
    for name in ("width", "value", "seconds"):
        checked(name, data[name], float)
    between("width", data["width"], 1 / MOST, MOST)
    between("seconds", data["seconds"], 0, MOST)
    checked("seed", data["seed"], int)
    for name in _COUNTS:
        if data[name] is not None:
            between(name, checked(name, data[name], int), int(name in ("parameters", "multiplies", "steps")), MOST)
    for name in ("changes", "experiment", "environment"):
        checked(name, data[name], Mapping[str, Any])
    if not isinstance(data["curve"], list) or not all(map(is_row, data["curve"])):
        raise ValueError("curve must be a list of rows: numbers by name, step and seconds among them.")
    experiment = data["experiment"]
    read = {"budget": experiment.get("budget", 0.0)}
    for part in ("model", "data", "pruning"):
        for name, value in checked(f"experiment.{part}", experiment.get(part, {}), Mapping[str, Any]).items():
            if isinstance(value, dict | list):
                raise ValueError(f"experiment.{part}.{name} must be a number or a word; got {value!r:.80}.")
            read[f"{part}.{name}"] = value
    for name, kind in _READ.items():
        if name in read:
            checked(f"experiment.{name}", read[name], kind)
    between("experiment.pruning.sparsity", read.get("pruning.sparsity", 0), 0, 1)


def is_row(row: Any) -> bool:
    """Whether it is a row of metrics: numbers by name, of which a step and the seconds since the run began are two."""
    return (
        isinstance(row, dict)
        and all(type(value) is float or (type(value) is int and abs(value) < MOST) for value in row.values())
        and all(math.isfinite(row.get(name, math.nan)) for name in ("step", "seconds"))
    )


def label(algebra: str, width: float, changes: Mapping[str, Any]) -> str:
    """A run's name beside others of its recipe; of paths, only what they lead to.

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
    """The results of run folders (and of folders of them, at any depth), and those in ``.jsonl`` files, in order."""
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
        yield Result.from_dict(files.parse(line, where, _OUT), where)


def unfinished(paths: Iterable[Path]) -> list[Path]:
    """Folders of runs that have come to no result (yet), which `read` leaves out."""
    begun = {file.parent for path in paths if path.is_dir() for file in path.rglob("config.json")}
    return sorted(path for path in begun if not (path / "result.json").exists())
