"""Sweeps: many runs of one recipe, several at a time, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import torch

from algebranets.lab import recipes
from algebranets.lab.train import Experiment, Result, RunFolder

#: The columns of a process's output, so that no error in a box is wrapped, however long its paths are.
OUTPUT_COLUMNS = 1000


@dataclass
class Job:
    """One run of a sweep.

    Args:
        experiment: The experiment to train.
        folder: The run's folder.
        command: The command line of the process that trains it.
        process: The process while it runs; otherwise None.
        failed: Whether the process ended without a result.
        output_before: The bytes of output that earlier processes wrote to the same file.
    """

    experiment: Experiment
    folder: RunFolder
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    failed: bool = False
    output_before: int = 0
    result: Result | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.result = self._done()

    def _done(self) -> Result | None:
        """The result in the folder; None if the folder has none, or belongs to another experiment."""
        return self.folder.finished() if self.folder.holds(self.experiment) else None

    @property
    def output(self) -> Path:
        """The file with the output of the process."""
        return self.folder.path / "output.txt"

    @property
    def last_words(self) -> str:
        """The error that the process printed in a box at its end, or else its last line."""
        printed = self.output.read_bytes()[self.output_before :] if self.output.exists() else b""
        lines = [line.strip() for line in printed.decode(errors="replace").splitlines() if line.strip()]
        if not lines:
            return "it printed nothing"
        box = [line.strip("│| ") for line in takewhile(lambda line: line[0] in "│|", reversed(lines[:-1]))]
        return " ".join(reversed(box)) or lines[-1]

    @property
    def waiting(self) -> bool:
        """Whether the job still has to be started."""
        return self.result is None and self.process is None and not self.failed

    def start(self) -> None:
        """Start the process in its own session, so that Ctrl-C does not reach it; `stop` ends it."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self.output_before = output.tell()
            environment = {**os.environ, "COLUMNS": str(OUTPUT_COLUMNS)}
            self.process = subprocess.Popen(
                self.command, stdout=output, stderr=output, env=environment, start_new_session=True
            )

    def poll(self) -> None:
        """Check whether the process has ended, and if so read its result."""
        if self.process is not None and self.process.poll() is not None:
            self.result = self._done()
            self.failed = self.result is None
            self.process = None

    def stop(self) -> None:
        """Ask the process to save a checkpoint and stop, and wait until it has ended."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None


def jobs(
    recipe: str,
    algebras: Iterable[str],
    widths: Iterable[float],
    seeds: Iterable[int],
    settings: Mapping[str, Any],
    out: Path,
    options: Iterable[str] = (),
    each: Mapping[str, Sequence[Any]] | None = None,
) -> list[Job]:
    """Create one job for each algebra, width, combination of values and seed.

    Args:
        recipe: A key of `recipes.RECIPES`.
        algebras: Names of algebras, or paths of table files.
        widths: Width multipliers.
        seeds: Random seeds.
        settings: Settings that differ from the recipe's in all runs, by dotted name.
        out: The folder for the runs' folders.
        options: Further options of ``algebranets train``.
        each: Settings with several values each; every combination of values is trained.

    >>> todo = jobs("digits", ["R", "M2R"], [1.0], range(2), {"steps": 5}, Path("runs"))
    >>> [job.experiment.name for job in todo]
    ['R-steps-5-seed0', 'R-steps-5-seed1', 'M2R-steps-5-seed0', 'M2R-steps-5-seed1']
    """
    made: list[Job] = []
    choices = [dict(zip(each or {}, values, strict=True)) for values in product(*(each or {}).values())]
    for algebra, width, choice, seed in product(algebras, widths, choices, seeds):
        chosen = {**settings, **choice}
        experiment = recipes.create(recipe, algebra, width, seed, chosen)
        if not any(replace(job.experiment, seed=seed) == experiment for job in made):
            with torch.device("meta"):
                experiment.build()  # raises an error for a wrong setting, before a process is started
        folder = RunFolder(out / recipe / experiment.name)
        if any(job.folder == folder for job in made):
            raise ValueError(
                f"two runs would share {folder.path}: their names must differ; rename one, or sweep them separately."
            )
        command = [sys.executable, "-m", "algebranets", "train", recipe, "--algebra", algebra, "--width", repr(width)]
        command += ["--seed", str(seed), "--out", str(folder.path), *options]
        for name, value in chosen.items():
            command += ["--set", f"{name}={value}"]
        made.append(Job(experiment, folder, command))
    return made


def run_all(todo: list[Job], at_once: int) -> Generator[None, None, None]:
    """Run all unfinished jobs, up to ``at_once`` at a time; yields every half second. Closing it stops the jobs."""
    try:
        while any(job.waiting or job.process for job in todo):
            for job in todo:
                job.poll()
            free = at_once - sum(job.process is not None for job in todo)
            for job in [job for job in todo if job.waiting][: max(0, free)]:
                job.start()
            yield
            time.sleep(0.5)
    finally:
        for job in todo:
            job.stop()
