"""Many runs of one recipe: which they are, and several side by side, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from algebranets.lab import recipes
from algebranets.lab.train import Experiment, Result, RunFolder


@dataclass
class Job:
    """One run: its folder, the command that makes it, and its process while it runs."""

    experiment: Experiment
    folder: RunFolder
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    failed: bool = False
    result: Result | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.result = self._done()

    def _done(self) -> Result | None:
        """What came out, if that is this experiment's."""
        return self.folder.finished() if self.folder.holds(self.experiment) else None

    @property
    def output(self) -> Path:
        """What its process prints."""
        return self.folder.path / "output.txt"

    @property
    def last_words(self) -> str:
        """The last line its process printed."""
        lines = self.output.read_text(encoding="utf-8", errors="replace").split("\n") if self.output.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")

    @property
    def waiting(self) -> bool:
        return self.result is None and self.process is None and not self.failed

    def start(self) -> None:
        """Start its process, in a session of its own: signals reach it from `stop` alone."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, start_new_session=True)

    def poll(self) -> None:
        """Take note of its end."""
        if self.process is not None and self.process.poll() is not None:
            self.result = self._done()
            self.failed = self.result is None
            self.process = None

    def stop(self) -> None:
        """Ask it to stop, behind a checkpoint, and wait for it."""
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
    """A job for each algebra, width, choice of values from ``each`` and seed.

    ``each`` has several values of a setting; ``options`` are further ones of ``algebranets train``.
    """
    made: list[Job] = []
    choices = [dict(zip(each or {}, values, strict=True)) for values in product(*(each or {}).values())]
    for algebra, width, choice, seed in product(algebras, widths, choices, seeds):
        chosen = {**settings, **choice}
        experiment = recipes.create(recipe, algebra, width, seed, chosen)
        if not any(replace(job.experiment, seed=seed) == experiment for job in made):
            with torch.device("meta"):
                experiment.build()  # says what is wrong with it before a process is started
        folder = RunFolder(out / recipe / experiment.name)
        if any(job.folder == folder for job in made):
            raise ValueError(
                f"two runs would share {folder.path}: they must differ by name; rename one, or sweep apart."
            )
        command = [sys.executable, "-m", "algebranets", "train", recipe, "--algebra", algebra, "--width", repr(width)]
        command += ["--seed", str(seed), "--out", str(folder.path), *options]
        for name, value in chosen.items():
            command += ["--set", f"{name}={value}"]
        made.append(Job(experiment, folder, command))
    return made


def run_all(todo: list[Job], at_once: int) -> Iterator[None]:
    """Run the jobs that are not done, so many at once; yields now and then, for whoever watches."""
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
