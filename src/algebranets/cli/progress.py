"""Progress bars of training, as a Lightning callback."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from algebranets.cli.terminal import console
from algebranets.train.results import METRICS, Result
from algebranets.train.tasks import Task


def new_progress() -> Progress:
    """Bars in the house style: what, how far, how much longer, and what was measured last."""
    return Progress(
        TextColumn("{task.description:<5}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[status]}"),
        console=console,
    )


class Bar(Callback):
    """One run's bar."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.bar = progress.add_task(name, total=None, status="waiting")
        self.loss_shown = 0.0
        self.measured = ""

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.progress.reset(self.bar, total=task.steps, completed=trainer.global_step, status="")

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.progress.update(self.bar, completed=trainer.global_step)
        if time.monotonic() - self.loss_shown > 1:  # reading it waits for the device
            self.loss_shown = time.monotonic()
            self.progress.update(self.bar, status=f"loss {float(outputs['loss']):.3f}{self.measured}")

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.measured = "".join(f", {name} {value:.4g}" for name, value in task.measured.items() if name in METRICS)

    def finish(self, result: Result) -> None:
        """The run is done: show what came out."""
        status = f"{result.metric} {result.value:.4g}"
        self.progress.update(self.bar, total=result.steps, completed=result.steps, status=status)
