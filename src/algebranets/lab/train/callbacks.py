"""What happens between steps, as Lightning callbacks: randomness, the journal, checkpoints and stopping."""

from __future__ import annotations

import json
import logging
import math
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor

from algebranets.lab.data.batches import seed_of
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder, foreign_checkpoint, step_of
from algebranets.lab.train.hardware import Hardware, capture
from algebranets.lab.train.plan import Plan
from algebranets.lab.train.tasks import Task
from algebranets.pruning import Pruner

log = logging.getLogger("algebranets")

DIVERGED = (
    "training has diverged and was stopped. Its last checkpoint is from before; try a smaller optimizer.lr, a longer "
    "schedule.warmup or optimizer.clip=1."
)


class Stopped(Exception):  # noqa: N818 - no error: somebody asked for it
    """Training was asked to stop, and did, behind a checkpoint."""


class StepSeed(Callback):
    """Randomness (dropout) is a function of the seed, the step and the process alone: nothing to save, or to lose."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        torch.manual_seed(seed_of(self.seed, trainer.global_step, trainer.global_rank))


class Speedometer(Callback):
    """For callbacks that say how many examples a second are trained on: evaluations do not count."""

    _begun: float | None = None
    _examples = 0

    def on_train_batch_start(self, *_: Any) -> None:
        self._begun = self._begun or time.monotonic()

    def count(self, trainer: pl.Trainer, task: Task, batch: Any) -> None:
        """Take note of a step."""
        self._examples += trainer.world_size * task.num_examples(batch)

    def speed(self) -> float:
        """Since it was last asked, or training went on; what was asked of the device must be done."""
        now = time.monotonic()
        speed = self._examples / max(now - (self._begun or now), 1e-9)
        self._begun, self._examples = now, 0
        return speed

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._begun, self._examples = None, 0


class Journal(Speedometer):
    """Writes metrics to every logger, every so many steps and where the model is evaluated; evaluations to the log.

    A loss that is no number ends the run.
    """

    def __init__(self, plan: Plan[Any, Any], every: int) -> None:
        self.plan, self.every = plan, every
        self.step, self.begun = 0, time.monotonic()
        #: Whether a step or an evaluation has been reached.
        self.has_begun = False

    def on_train_start(self, *_: Any) -> None:
        self.has_begun = True

    def on_validation_start(self, *_: Any) -> None:
        self.has_begun = True

    def begin(self, step: int, rows: Iterable[dict[str, float]]) -> None:
        """From ``step`` on; time counts from here, beside what is in the rows of earlier."""
        self.step = step
        self.begun = time.monotonic() - max((row["seconds"] for row in rows), default=0.0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        assert isinstance(task, Task)
        self.count(trainer, task, batch)
        step = trainer.global_step
        if step % self.every and step != 1 and not self.plan.is_evaluated(step):
            return
        loss = outputs["loss"].detach()
        if trainer.world_size > 1:
            loss = trainer.strategy.reduce(loss, reduce_op="mean")
        value = float(loss)
        if not math.isfinite(value):
            raise ValueError(f"the loss at step {step} is {value}: {DIVERGED}")
        rates = {"lr": trainer.optimizers[0].param_groups[0]["lr"], f"{task.examples}_per_second": self.speed()}
        self._write(trainer, {**task.training_metrics(value), **rates})

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        super().on_validation_end(trainer, task)
        self._write(trainer, task.measured)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in task.measured.items())
        log.info("step %d of %d: %s", self._step(trainer), task.steps, shown)

    def _write(self, trainer: pl.Trainer, metrics: dict[str, float]) -> None:
        step = self._step(trainer)
        when = {"epoch": step / self.plan.per_epoch, "seconds": time.monotonic() - self.begun}
        for logger in trainer.loggers:
            logger.log_metrics({**when, **metrics}, step)

    def _step(self, trainer: pl.Trainer) -> int:
        """Where training stands, also before it goes on."""
        return max(self.step, trainer.global_step)


class Capture(Callback):
    """Training's forward and backward as CUDA graphs, as soon as every step is like the one before.

    Gradients of several processes are summed behind them; FSDP gathers weights within, and is left alone.
    """

    captured = False

    def on_train_batch_start(self, trainer: pl.Trainer, task: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(task, Task)
        if self.captured or isinstance(trainer.strategy, FSDPStrategy):
            return
        inputs = task.steady_inputs(batch)
        if inputs is not None:
            with trainer.precision_plugin.forward_context():
                capture(task.model, *inputs)
            self.captured = True


def capturing(hardware: Hardware) -> list[Callback]:
    """What comes before a step's randomness begins: `Capture`, where there is a GPU and time for compiling."""
    return [Capture()] if hardware.compile and hardware.on_gpu else []


class Prune(Callback):
    """Prunes after each step for which it is time; masks and steps are in Lightning's checkpoints anyway."""

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if self.pruner.schedule.due(step):
            check_finite(trainer, task)
        self.pruner.at(step)


class Checkpoints(Callback):
    """Checkpoints every so many minutes (or steps), before each evaluation, and when SIGTERM or Ctrl-C asks to stop.

    So a stop need not wait for an evaluation, which may take long: a run that goes on makes up for it.
    """

    def __init__(self, folder: RunFolder, plan: Plan[Any, Any], minutes: float, every: int = 0) -> None:
        self.folder, self.plan, self.seconds, self.every = folder, plan, 60 * minutes, every
        self.saved_at = time.monotonic()
        self.asked: str | None = None
        self.before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if trainer.ckpt_path and not isinstance(trainer.strategy, FSDPStrategy):  # which keeps states in pieces
            _check_restored(trainer, task, Path(trainer.ckpt_path))
        self.saved_at = time.monotonic()
        self._listen()

    def on_validation_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._listen()

    def _listen(self) -> None:
        if not self.before and threading.current_thread() is threading.main_thread():  # others hear no signals
            for number in (signal.SIGTERM, signal.SIGINT):
                self.before[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler)  # asked twice, it ends at once

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if step == self.plan.steps:
            trainer.should_stop = True  # which makes Lightning evaluate the last step
        due = time.monotonic() - self.saved_at >= self.seconds or (self.every > 0 and step % self.every == 0)
        stop, save = (any_process(trainer, flag) for flag in (self.asked is not None, due))
        if not (stop or save or self.plan.is_evaluated(step)):
            return
        check_finite(trainer, task)
        trainer.save_checkpoint(self.folder.checkpoint(step))
        self.saved_at = time.monotonic()
        if trainer.is_global_zero:
            self.folder.prune()
        if stop:
            self._stop(step)

    def on_save_checkpoint(self, trainer: pl.Trainer, task: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["experiment"] = json.dumps(self.plan.experiment.to_dict())

    def on_load_checkpoint(self, trainer: pl.Trainer, task: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on with other settings than those the checkpoint was made with; older ones do not say."""
        saved = checkpoint.get("experiment")
        if saved is None:
            return
        theirs, mine = (dict(e.settings()) for e in (Experiment.from_dict(json.loads(saved)), self.plan.experiment))
        changed = [name for name in mine | theirs if theirs.get(name) != mine.get(name)]
        if changed:
            name = changed[0]
            raise ValueError(
                f"{trainer.ckpt_path} was made with {name}={theirs.get(name)!r}, and {self.folder.config} now says "
                f"{mine.get(name)!r}: a run must go on with the settings it began with. Put it back, or begin another."
            )

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if any_process(trainer, self.asked is not None):
            self._stop(trainer.global_step or step_of(self.folder.checkpoints()[-1]))  # before training goes on

    def _stop(self, step: int) -> None:
        raise Stopped(f"stopped by {self.asked or 'another process'} at step {step}, behind a checkpoint.")

    def teardown(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        self._restore()

    def on_exception(self, trainer: pl.Trainer, task: pl.LightningModule, exception: BaseException) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before.clear()


def _check_restored(trainer: pl.Trainer, task: pl.LightningModule, checkpoint: Path) -> None:
    """Refuse a checkpoint without all that training needs: Lightning begins anew with what is missing, silently."""
    optimizer, schedule = trainer.optimizers[0], trainer.lr_scheduler_configs[0].scheduler
    step = step_of(checkpoint)
    if (trainer.global_step, schedule.last_epoch) != (step, step):
        raise foreign_checkpoint(checkpoint, f"its loops or lr_schedulers are not those of step {step}")
    made: Any = task.configure_optimizers()
    fresh = made["optimizer"]
    if [_chosen(group) for group in optimizer.param_groups] != [_chosen(group) for group in fresh.param_groups]:
        raise foreign_checkpoint(checkpoint, "its optimizer_states have other settings")
    is_needed = fresh.defaults.get("momentum", 1) > 0  # SGD without momentum keeps nothing
    if (is_needed and not optimizer.state) or not all(_fits(p, kept) for p, kept in optimizer.state.items()):
        raise foreign_checkpoint(checkpoint, "its optimizer_states do not fit the weights")


def _chosen(group: dict[str, Any]) -> dict[str, Any]:
    """What an experiment says of an optimizer's parameters, but for the learning rate, which its schedule changes."""
    return {name: group.get(name) for name in ("initial_lr", "momentum", "nesterov", "betas", "weight_decay")}


def _fits(parameter: Any, kept: Any) -> bool:
    """Whether an optimizer can have kept this of a parameter: numbers, or tensors of its shape."""
    return (
        isinstance(parameter, Tensor)
        and isinstance(kept, dict)
        and all(getattr(value, "shape", parameter.shape) in ((), parameter.shape) for value in kept.values())
    )


def any_process(trainer: pl.Trainer, flag: bool) -> bool:
    """Processes save and stop together, so they must agree, though their clocks and signals do not."""
    return trainer.strategy.reduce_boolean_decision(flag, all=False) if trainer.world_size > 1 else flag


def check_finite(trainer: pl.Trainer, task: pl.LightningModule) -> None:
    """Weights that are not finite are neither pruned nor saved: in all processes, training ends here."""
    finite: list[Tensor] = [p.detach().isfinite().all() for p in task.parameters()]
    if any_process(trainer, not torch.stack(finite).all()):
        raise ValueError(f"weights are no longer finite at step {trainer.global_step}: {DIVERGED}")
