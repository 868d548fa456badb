"""Progress bars of training, as a Lightning callback."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from algebranets.lab.cli.terminal import console
from algebranets.lab.train.journal import Speedometer
from algebranets.lab.train.results import METRICS, Result
from algebranets.lab.train.tasks import Task


def new_progress() -> Progress:
    """A display of progress bars, each with its name, steps done, time left and last measurement."""
    return Progress(
        TextColumn("{task.description:<5}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
    )


class Bar(Speedometer):
    """The progress bar of one run.

    Args:
        progress: The display that the bar belongs to.
        name: The name before the bar.
    """

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.bar = progress.add_task(name, total=None, status="waiting")
        self.shown = 0.0
        self.measured = ""

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.progress.reset(self.bar, total=task.steps, completed=trainer.global_step, status="")

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        assert isinstance(task, Task)
        self.progress.update(self.bar, completed=trainer.global_step)
        self.count(trainer, task, batch)
        if time.monotonic() - self.shown > 1:  # not after each step: reading the loss waits for the device
            name, value = list(task.training_metrics(float(outputs["loss"])).items())[-1]
            speed = f"{self.speed():,.0f} {task.examples}/s"
            self.progress.update(self.bar, status=f"{name.removeprefix('train_')} {value:.3f}{self.measured}, {speed}")
            self.shown = time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        super().on_validation_end(trainer, task)
        name, value = next((name, value) for name, value in task.measured.items() if name in METRICS)
        valid = "valid " if f"train_{name}" in task.training_metrics(0.0) else ""
        self.measured = f", {valid}{name} {value:.4g}"

    def finish(self, result: Result) -> None:
        """Show the result of the finished run."""
        status = f"{result.metric} {result.value:.4g}"
        self.progress.update(self.bar, total=result.steps, completed=result.steps, status=status)
