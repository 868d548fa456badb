"""A Lightning callback that saves and checks checkpoints, and stops a run on SIGTERM or Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor

from algebranets.lab.train.checkpoint_files import foreign_checkpoint, step_of
from algebranets.lab.train.divergence import check_weights
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.plan import Plan
from algebranets.lab.train.processes import any_process


class Stopped(Exception):  # noqa: N818 - not an error: the user asked for it
    """Raised after a checkpoint when SIGTERM or Ctrl-C stops training.

    >>> try:  # doctest: +SKIP
    ...     train.run(experiment, folder)
    ... except Stopped:
    ...     print("resume it later")
    """


class Checkpoints(Callback):
    """Saves checkpoints: by time, by steps, before each evaluation, and when SIGTERM or Ctrl-C stops the run.

    A stop does not wait for an evaluation to end, because it may take long. When the run is resumed, it does the
    missing evaluation.

    Args:
        folder: The run's folder.
        plan: The plan of the run.
        minutes: Minutes between two checkpoints.
        every: If not 0, a checkpoint is also saved every ``every`` steps.
    """

    def __init__(self, folder: RunFolder, plan: Plan[Any, Any], minutes: float, every: int = 0) -> None:
        self.folder, self.plan, self.seconds, self.every = folder, plan, 60 * minutes, every
        self.saved_at = time.monotonic()
        #: The name of the signal that asked to stop; None before that.
        self.asked: str | None = None
        self._handlers_before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if trainer.ckpt_path and not isinstance(trainer.strategy, FSDPStrategy):  # FSDP keeps states in pieces
            _check_restored(trainer, task, Path(trainer.ckpt_path))
        self.saved_at = time.monotonic()
        self._handle_signals()

    def on_validation_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._handle_signals()

    def _handle_signals(self) -> None:
        if not self._handlers_before and threading.current_thread() is threading.main_thread():  # as Python requires
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers_before[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler)  # the second signal ends the run at once

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if step == self.plan.steps:
            trainer.should_stop = True  # Lightning then evaluates the last step
        due = time.monotonic() - self.saved_at >= self.seconds or (self.every > 0 and step % self.every == 0)
        stop, save = (any_process(trainer, flag) for flag in (self.asked is not None, due))
        if not (stop or save or self.plan.is_evaluated(step)):
            return
        check_weights(trainer, task)
        trainer.save_checkpoint(self.folder.checkpoint(step))
        self.saved_at = time.monotonic()
        if trainer.is_global_zero:
            self.folder.remove_old_checkpoints()
        if stop:
            self._stop(step)

    def on_save_checkpoint(self, trainer: pl.Trainer, task: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["experiment"] = json.dumps(self.plan.experiment.to_dict())

    def on_load_checkpoint(self, trainer: pl.Trainer, task: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that was saved with other settings. Older checkpoints do not contain their settings."""
        saved = checkpoint.get("experiment")
        if saved is None:
            return
        before, now = Experiment.from_dict(json.loads(saved)), self.plan.experiment
        if not before.replanned_at:  # saved before the budget changed the number of steps
            now = now.first_plan()
        theirs, mine = (dict(experiment.settings()) for experiment in (before, now))
        changed = [name for name in mine | theirs if theirs.get(name) != mine.get(name)]
        if changed:
            name = changed[0]
            raise ValueError(
                f"{trainer.ckpt_path} was made with {name}={theirs.get(name)!r}, and {self.folder.config} now says "
                f"{mine.get(name)!r}: a run must keep its settings. Restore the setting, or start a new run."
            )

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if any_process(trainer, self.asked is not None):
            # Lightning's step is still 0 if a resumed run evaluates before it trains.
            self._stop(trainer.global_step or step_of(self.folder.checkpoints()[-1]))

    def _stop(self, step: int) -> None:
        raise Stopped(f"stopped by {self.asked or 'another process'} at step {step}, after a checkpoint.")

    def teardown(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        self._restore_handlers()

    def on_exception(self, trainer: pl.Trainer, task: pl.LightningModule, exception: BaseException) -> None:
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before.clear()


def _check_restored(trainer: pl.Trainer, task: pl.LightningModule, checkpoint: Path) -> None:
    """Refuse a checkpoint with missing state. Lightning would silently start with new state instead."""
    optimizer, scheduler = trainer.optimizers[0], trainer.lr_scheduler_configs[0].scheduler
    step = step_of(checkpoint)
    if (trainer.global_step, scheduler.last_epoch) != (step, step):
        raise foreign_checkpoint(checkpoint, f"its loops or lr_schedulers are not those of step {step}")
    made: Any = task.configure_optimizers()
    fresh = made["optimizer"]
    if [_settings(group) for group in optimizer.param_groups] != [_settings(group) for group in fresh.param_groups]:
        raise foreign_checkpoint(checkpoint, "its optimizer_states have other settings")
    is_needed = fresh.defaults.get("momentum", 1) > 0  # SGD without momentum has no state
    if (is_needed and not optimizer.state) or not all(_fits(p, state) for p, state in optimizer.state.items()):
        raise foreign_checkpoint(checkpoint, "its optimizer_states do not fit the weights")


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a parameter group, except for the learning rate, which the schedule changes."""
    return {name: group.get(name) for name in ("initial_lr", "momentum", "nesterov", "betas", "weight_decay")}


def _fits(parameter: Any, state: Any) -> bool:
    """Whether ``state`` fits the parameter: all its values are numbers, or tensors of the parameter's shape."""
    return (
        isinstance(parameter, Tensor)
        and isinstance(state, dict)
        and all(getattr(value, "shape", parameter.shape) in ((), parameter.shape) for value in state.values())
    )
