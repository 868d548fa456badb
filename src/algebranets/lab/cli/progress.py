"""Progress bars of training and evaluation, as Lightning callbacks."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from algebranets.lab.cli.terminal import console
from algebranets.lab.train.journal import Speedometer
from algebranets.lab.train.results import METRICS, Result
from algebranets.lab.train.tasks import Task

#: Seconds after which an evaluation gets a bar of its own below that of its run. Shorter ones would only flicker.
SHORT_EVALUATION = 0.5


class _Display(Progress):
    """Progress bars that are removed from the terminal if an error or Ctrl-C ends them."""

    def __exit__(self, kind: Any, *error: Any) -> None:
        self.live.transient |= kind is not None
        super().__exit__(kind, *error)


def new_progress(is_kept: bool = True) -> Progress:
    """A display of progress bars, each with its name, steps done, time left and last measurement.

    Args:
        is_kept: Whether the bars stay on the terminal when they are done. Bars that do not stay are printed only on a
            terminal.
    """
    return _Display(
        TextColumn("{task.description:<5}", markup=False),
        BarColumn(bar_width=min(24, console.width // 6)),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[status]}", markup=False, table_column=Column()),  # the only one that is wrapped
        console=console,
        transient=not is_kept,
        disable=not is_kept and not console.is_terminal,
    )


class EvaluationBar(Callback):
    """The progress bar of one evaluation: batches done, of how many, and the time left. It is hidden in between.

    Args:
        progress: The display that the bar belongs to.
        name: The name before the bar.
        hidden_for: The seconds of an evaluation after which the bar is shown.
    """

    def __init__(self, progress: Progress, name: str = "", hidden_for: float = 0.0) -> None:
        self.progress, self.hidden_for = progress, hidden_for
        self.bar = progress.add_task(name, total=None, status="evaluating", visible=False)
        self.begun = 0.0

    def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.begun = time.monotonic()
        self.progress.reset(self.bar, total=sum(trainer.num_val_batches), visible=not self.hidden_for)

    def on_validation_batch_end(self, *_: Any) -> None:
        is_shown = time.monotonic() - self.begun >= self.hidden_for
        self.progress.update(self.bar, advance=1, visible=is_shown)

    def on_validation_end(self, *_: Any) -> None:
        self.progress.update(self.bar, visible=False)


class Bar(Speedometer):
    """The progress bar of one run, with another one below it during long evaluations.

    Args:
        progress: The display that the bars belong to.
        name: The name before the bar.
        status: What the run does before it trains.
    """

    def __init__(self, progress: Progress, name: str, status: str = "waiting") -> None:
        self.progress = progress
        self.bar = progress.add_task(name, total=None, status=status)
        self.evaluation = EvaluationBar(progress, hidden_for=SHORT_EVALUATION)
        self.shown = 0.0
        self.measured = ""

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.progress.reset(self.bar, total=task.steps, completed=trainer.global_step, status="")

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        assert isinstance(task, Task)
        self.progress.update(self.bar, completed=trainer.global_step, total=task.steps)
        self.count(trainer, task, batch)
        if time.monotonic() - self.shown > 1:  # not after each step: reading the loss waits for the device
            name, value = list(task.training_metrics(float(outputs["loss"])).items())[-1]
            speed = f"{self.speed():,.0f} {task.examples}/s"
            self.progress.update(self.bar, status=f"{name.removeprefix('train_')} {value:.3f}{self.measured}, {speed}")
            self.shown = time.monotonic()

    def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.evaluation.on_validation_start(trainer)

    def on_validation_batch_end(self, *_: Any) -> None:
        self.evaluation.on_validation_batch_end()

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        super().on_validation_end(trainer, task)
        self.evaluation.on_validation_end()
        name, value = next((name, value) for name, value in task.measured.items() if name in METRICS)
        valid = "valid " if f"train_{name}" in task.training_metrics(0.0) else ""
        self.measured = f", {valid}{name} {value:.4g}"

    def finish(self, result: Result) -> None:
        """Show the result of the finished run."""
        status = f"{result.metric} {result.value:.4g}"
        self.progress.update(self.bar, total=result.steps, completed=result.steps, status=status)
