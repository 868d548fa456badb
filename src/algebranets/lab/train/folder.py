"""A run's folder: what is in it, written so that a kill at any moment leaves it readable.

::

    config.json           the experiment, complete
    environment.json      commit, versions, device, command
    metrics.jsonl         a row a logged step
    log.txt               what happened, for people
    checkpoints/          the two newest; each beside its SHA-256
    weights.safetensors   when it is done: the weights
    result.json           when it is done: what came out
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from algebranets import algebra as algebras
from algebranets import files
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.results import Result, is_row

log = logging.getLogger("algebranets")

#: How many checkpoints are kept: the newest, and one to fall back to.
KEPT = 2

_AS_WRITTEN = "It must be as `algebranets train` wrote it."
_REMOVE = "Remove it to go on without it."
#: The keys that Lightning needs in a checkpoint.
_IN_CHECKPOINTS = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "global_step", "epoch")


@dataclass(frozen=True)
class RunFolder:
    """Paths and their contents; nothing is held open."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def weights(self) -> Path:
        return self.path / "weights.safetensors"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    # The experiment --------------------------------------------------------------------------------------------------

    def create(self, experiment: Experiment) -> None:
        """Begin a run here, where none is yet; the same experiment begun before is no other run."""
        if self.holds(experiment):
            return
        if self.config.exists():
            raise ValueError(
                f"{self.path} holds another experiment. Go on with that one by `algebranets train --resume "
                f"{self.path}`, or give this one a folder of its own by --out."
            )
        files.write(self.config, json.dumps(experiment.to_dict(), indent=1) + "\n")

    def holds(self, experiment: Experiment) -> bool:
        """Whether this is the folder of that experiment."""
        if not self.config.exists():
            return False
        mine = self.experiment()
        same_algebra = algebras.get(mine.algebra) == algebras.get(experiment.algebra)
        mine = replace(mine, algebra=experiment.algebra)
        if mine.budget:  # which decided these when the run began
            mine = replace(mine, steps=experiment.steps, evaluations=experiment.evaluations)
        return same_algebra and mine == experiment

    def experiment(self) -> Experiment:
        """The experiment of the run in this folder."""
        try:
            saved = files.parse(self.config.read_bytes(), self.config, _AS_WRITTEN)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{self.path} is no run's folder: it has no config.json.") from None
        if isinstance(saved, dict) and "algebra" in saved:
            saved["algebra"] = self._table(saved["algebra"])
        try:
            return Experiment.from_dict(saved)
        except ValueError as error:
            raise ValueError(f"{self.config} is no experiment: {error} {_AS_WRITTEN}") from None

    def _table(self, algebra: Any) -> Any:
        """The algebra of a ``config.json``; of a file's path, as older runs have it, the table that lies beside."""
        path = self.path / "algebra.json"
        if not isinstance(algebra, str) or Path(algebra).suffix not in (".toml", ".json", ".txt") or not path.is_file():
            return algebra
        return files.parse(path.read_bytes(), path, _AS_WRITTEN)

    def write_environment(self, where: dict[str, Any]) -> None:
        """Where the run runs now."""
        files.write(self.path / "environment.json", json.dumps(where, indent=1) + "\n")

    def environment(self) -> dict[str, Any]:
        """Where the run ran last, with its ``command`` and its ``hardware``; nothing if it never did."""
        path = self.path / "environment.json"
        if not path.exists():
            return {}
        found = files.parse(path.read_bytes(), path, _REMOVE)
        if (
            not isinstance(found, dict)
            or not isinstance(found.get("command", ""), str)
            or not isinstance(found.get("hardware", {}), dict)
        ):
            raise ValueError(f"{path} must hold facts by name, a command and hardware among them. {_REMOVE}")
        return found

    def finished(self) -> Result | None:
        """What came out, if it is done: the result and the weights are there."""
        return Result.load(self.result) if self.result.exists() and self.weights.exists() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone in this folder; a process that is killed lets go of it."""
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"another process is training in {self.path}: wait for it, or stop it first."
                ) from None
            yield

    # Metrics ---------------------------------------------------------------------------------------------------------

    def append(self, row: dict[str, float]) -> None:
        """One more row of metrics."""
        files.append(self.metrics, json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, float]]:
        """The rows of metrics; a last one that a kill cut short is left out."""
        if not self.metrics.exists():
            return
        for number, line in enumerate(self.metrics.read_bytes().splitlines(keepends=True), 1):
            if line.endswith(b"\n"):
                where = f"{self.metrics}, line {number},"
                row = files.parse(line, where, _REMOVE)
                if not is_row(row):
                    raise ValueError(f"{where} must hold numbers by name, step and seconds among them. {_REMOVE}")
                yield row

    def rewind(self, step: int) -> None:
        """Forget rows and (broken) checkpoints behind ``step``: training will make them again.

        Left there, they would count among the newest, and whole ones would be removed in their place.
        """
        remove(path for path in self.checkpoints() if step_of(path) > step)
        for partial in self.path.rglob("*.partial"):  # cut short by a kill
            partial.unlink()
        kept = [row for row in self.rows() if row["step"] <= step]
        files.write(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def checkpoint(self, step: int) -> Path:
        """The path of the checkpoint behind ``step``."""
        return self.path / "checkpoints" / f"step-{step:09d}.ckpt"

    def checkpoints(self) -> list[Path]:
        """Those that are there, oldest first."""
        return sorted((self.path / "checkpoints").glob(f"step-{'[0-9]' * 9}.ckpt"))

    def newest_checkpoint(self) -> Path | None:
        """The newest one that is whole; None if training begins. Broken ones are named in the log."""
        there = self.checkpoints()
        for path in reversed(there):
            reason = _broken(path)
            if reason is None:
                return path
            log.warning("checkpoint %s is broken (%s); falling back to the one before it", path, reason)
        if there:
            log.warning("no checkpoint in %s is whole; training begins anew", self.path)
        return None

    def prune(self) -> None:
        """Remove all checkpoints but the newest."""
        remove(self.checkpoints()[:-KEPT])


def step_of(checkpoint: Path) -> int:
    """The step behind which a checkpoint was made."""
    return int(checkpoint.stem.removeprefix("step-"))


def remove(checkpoints: Iterable[Path]) -> None:
    """Remove checkpoints and their digests."""
    for path in checkpoints:
        path.unlink(missing_ok=True)
        digest_of(path).unlink(missing_ok=True)


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint whole or not at all, its digest first: one without a digest is a foreign file."""
    with files.replacing(path) as partial:
        with partial.open("wb") as file:  # Python's errors say what went wrong, torch's own writer's do not
            torch.save(state, file)
        files.write(digest_of(path), _sha256(partial) + "\n")


def read_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """What `save_checkpoint` wrote, read without running anything that is in it."""
    try:
        state = torch.load(path, map_location=map_location, weights_only=True)
    except OSError:
        raise
    except Exception as error:  # what is no checkpoint may raise anything
        raise foreign_checkpoint(path, error) from None
    missing = [name for name in _IN_CHECKPOINTS if not isinstance(state, dict) or name not in state]
    if missing:
        raise foreign_checkpoint(path, f"it has no {missing[0]}")
    return state


def foreign_checkpoint(path: Path, reason: object) -> ValueError:
    """The error that says why a checkpoint is none of its run's."""
    return ValueError(
        f"{path} is no checkpoint of this run ({textwrap.shorten(str(reason), 200, placeholder=' ...')}). Remove it to "
        "go on from the one before it, or from the beginning."
    )


def digest_of(path: Path) -> Path:
    """Where a checkpoint's digest stands."""
    return path.with_suffix(".sha256")


def _broken(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    digest = digest_of(path)
    if not digest.exists():
        return "its digest is missing"
    try:
        expected, found = digest.read_text(encoding="ascii", errors="replace").strip(), _sha256(path)
    except OSError as error:  # the disk's; or the first process was faster to remove it
        return str(error)
    return None if expected == found else f"its SHA-256 should be {expected[:12]}... and is {found[:12]}..."


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
