"""A run's folder and its files. A kill at any moment leaves the folder readable.

::

    config.json           the complete experiment
    environment.json      commit, versions, device, command, hardware
    metrics.jsonl         one row for each logged step
    log.txt               messages for people
    checkpoints/          the two newest checkpoints, each with its SHA-256
    weights.safetensors   the weights, when the run is done
    result.json           the result, when the run is done
"""

from __future__ import annotations

import fcntl
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from algebranets import algebra as algebras
from algebranets import files
from algebranets.lab.train.checkpoint_files import remove, step_of, what_is_broken
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.results import Result, is_row

log = logging.getLogger("algebranets")

#: The number of checkpoints that are kept: the newest, and one to fall back to.
NUM_KEPT_CHECKPOINTS = 2
#: The facts in ``environment.json`` that the first start of a run writes and later starts keep.
FACTS_OF_FIRST_START = ("command", "timed")
#: Tries to lock a folder, and the seconds between them. `RunFolder.is_locked` takes the lock for a moment.
LOCK_TRIES, LOCK_PAUSE = 10, 0.1

_AS_WRITTEN = "It must be as `algebranets train` wrote it."
_REMOVE = "Remove it to go on without it."


class Evaluated(NamedTuple):
    """How far an evaluation is: batches done, of how many, and its seconds so far."""

    done: int
    batches: int
    seconds: float

    @property
    def seconds_left(self) -> float:
        """The seconds to the end, if the other batches take as long."""
        return self.seconds / self.done * (self.batches - self.done)


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes the files of a run's folder; no file stays open.

    Args:
        path: The folder, which need not exist yet.

    >>> RunFolder(Path("runs/digits/M2R-seed0")).checkpoint(42).name
    'step-000000042.ckpt'
    """

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
        """Write ``config.json`` unless the folder already has this experiment; another experiment is an error."""
        if self.holds(experiment):
            return
        if self.config.exists():
            raise ValueError(
                f"{self.path} holds another experiment. Continue it with `algebranets train --resume {self.path}`, or "
                "choose another folder with --out."
            )
        self.write_experiment(experiment)

    def write_experiment(self, experiment: Experiment) -> None:
        """Write ``config.json``."""
        files.write(self.config, json.dumps(experiment.to_dict(), indent=1) + "\n")

    def holds(self, experiment: Experiment) -> bool:
        """Whether this folder belongs to a run of ``experiment``."""
        if not self.config.exists():
            return False
        mine = self.experiment()
        same_algebra = algebras.get(mine.algebra) == algebras.get(experiment.algebra)
        mine = replace(mine, algebra=experiment.algebra)
        if mine.budget:  # the budget decided these
            experiment = experiment.first_plan()
            mine = replace(mine.first_plan(), steps=experiment.steps, evaluations=experiment.evaluations)
        return same_algebra and mine == experiment

    def experiment(self) -> Experiment:
        """The experiment of the run in this folder."""
        try:
            saved = files.parse(self.config.read_bytes(), self.config, _AS_WRITTEN)
        except (FileNotFoundError, NotADirectoryError):
            why = "it has no config.json" if self.path.exists() else "it does not exist"
            raise ValueError(
                f"{self.path} is not the folder of a run: {why}. Give the folder of a run, such as "
                "runs/digits/M2R-seed0."
            ) from None
        if isinstance(saved, dict) and "algebra" in saved:
            saved["algebra"] = self._table(saved["algebra"])
        try:
            return Experiment.from_dict(saved)
        except ValueError as error:
            raise ValueError(f"{self.config} is no experiment: {error} {_AS_WRITTEN}") from None

    def _table(self, algebra: Any) -> Any:
        """The algebra of a ``config.json``. Older runs have a path there, and the table in ``algebra.json``."""
        path = self.path / "algebra.json"
        if not isinstance(algebra, str) or Path(algebra).suffix not in (".toml", ".json", ".txt") or not path.is_file():
            return algebra
        return files.parse(path.read_bytes(), path, _AS_WRITTEN)

    def write_environment(self, where: dict[str, Any]) -> None:
        """Write ``environment.json``."""
        files.write(self.path / "environment.json", json.dumps(where, indent=1) + "\n")

    def environment(self) -> dict[str, Any]:
        """The environment of the last start, with its ``command`` and ``hardware``; empty if the run never started."""
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
        """The result of a finished run, which has written both its result and its weights; otherwise None."""
        return Result.load(self.result) if self.result.exists() and self.weights.exists() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock this folder against other processes; a killed process releases its lock."""
        with (self.path / ".lock").open("a") as file:
            for _ in range(LOCK_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(LOCK_PAUSE)
            else:
                raise ValueError(f"another process is training in {self.path}: wait for it, or stop it first.")
            yield

    def is_locked(self) -> bool:
        """Whether a process is training in this folder now."""
        try:
            with (self.path / ".lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:  # the run never started
            return False
        except BlockingIOError:
            return True
        return False

    # Metrics ---------------------------------------------------------------------------------------------------------

    def append(self, row: dict[str, float]) -> None:
        """Add a row of metrics."""
        files.append(self.metrics, json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, float]]:
        """Yield the rows of metrics, except for a last row that a kill cut short."""
        if not self.metrics.exists():
            return
        for number, line in enumerate(self.metrics.read_bytes().splitlines(keepends=True), 1):
            if line.endswith(b"\n"):
                where = f"{self.metrics}, line {number},"
                row = files.parse(line, where, _REMOVE)
                if not is_row(row):
                    raise ValueError(f"{where} must hold numbers by name, step and seconds among them. {_REMOVE}")
                yield row

    def write_evaluated(self, evaluated: Evaluated | None) -> None:
        """Write how far the evaluation is that runs now; None if none runs."""
        if evaluated is None:
            self._evaluated.unlink(missing_ok=True)
        else:
            files.write(self._evaluated, json.dumps(evaluated))

    def evaluated(self) -> Evaluated | None:
        """How far the evaluation is that runs now; None if none runs."""
        with suppress(OSError, ValueError, TypeError):  # a display of progress must not end a sweep
            return Evaluated(*json.loads(self._evaluated.read_bytes()))
        return None

    @property
    def _evaluated(self) -> Path:
        return self.path / ".evaluated"

    def rewind(self, step: int) -> None:
        """Remove rows and (broken) checkpoints after ``step``, because training will write them again.

        Broken checkpoints would count as the newest, so `remove_old_checkpoints` would remove whole ones instead.
        """
        remove(path for path in self.checkpoints() if step_of(path) > step)
        self.write_evaluated(None)
        for partial in self.path.rglob("*.partial"):  # cut short by a kill
            partial.unlink()
        kept = [row for row in self.rows() if row["step"] <= step]
        files.write(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def checkpoint(self, step: int) -> Path:
        """The path of the checkpoint after ``step``."""
        return self.path / "checkpoints" / f"step-{step:09d}.ckpt"

    def checkpoints(self) -> list[Path]:
        """The paths of all checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob(f"step-{'[0-9]' * 9}.ckpt"))

    def newest_checkpoint(self) -> Path | None:
        """The newest checkpoint that is not broken, or None. Broken checkpoints are logged."""
        there = self.checkpoints()
        for path in reversed(there):
            reason = what_is_broken(path)
            if reason is None:
                return path
            log.warning("checkpoint %s is broken (%s); falling back to the one before it", path, reason)
        if there:
            log.warning("all checkpoints in %s are damaged; training starts from the beginning", self.path)
        return None

    def remove_old_checkpoints(self) -> None:
        """Remove all checkpoints but the newest `NUM_KEPT_CHECKPOINTS`."""
        remove(self.checkpoints()[:-NUM_KEPT_CHECKPOINTS])
