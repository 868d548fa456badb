"""Changes the number of steps once while a run trains, if the run would otherwise miss its time budget."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from algebranets.lab.train.budget import PLANNED_SHARE, WARMUP_STEPS, Seconds, synchronized_time
from algebranets.lab.train.experiment import MAX_STEPS
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.journal import Journal
from algebranets.lab.train.length import Length
from algebranets.lab.train.plan import Plan
from algebranets.lab.train.tasks import Task

log = logging.getLogger("algebranets")

#: The shares of the steps after which the speed is checked, until the number of steps is changed once.
CHECKED_AT = (0.25, 0.5, 0.75)
#: A check needs this many timed steps. If a resumed run has fewer, its check comes later.
MIN_TIMED_STEPS = 8
#: The number of steps is changed if the run would end this share of its budget too early or too late. The first is
#: larger, because a run plans some time that it may not need.
TOO_EARLY, TOO_LATE = 0.1, 0.05
#: A step that seems to take a smaller share of its time at the start is a wrong measurement.
LEAST_PLAUSIBLE = 0.2
#: A finished run has missed its budget if it took this many times as long.
MISSED = 1.01
#: The least share of the remaining steps that a new plan keeps, because the learning rate needs steps to decay.
MIN_STEPS_LEFT = 0.1


class Speed(NamedTuple):
    """What training takes now, in seconds: a step with its share of the checkpoints, and an evaluation."""

    step: float
    evaluation: float

    def of_rest(self, length: Length, done: int, evaluations: int) -> float:
        """The seconds from step ``done``, before its evaluation if it has one, to the end of a run of this length."""
        every = length.evaluate_every(length.steps, evaluations)
        num_evaluations = length.steps // every - (done - 1) // every + (length.steps % every > 0)
        return (length.steps - done) * self.step + num_evaluations * self.evaluation


def steps_within(left: float, speed: Speed, steps: int, done: int, evaluations: int) -> int:
    """The number of steps of a whole run that fits its rest into a time.

    Args:
        left: The seconds for the rest.
        speed: What steps and evaluations take.
        steps: The number of steps that was planned.
        done: The number of steps that are trained.
        evaluations: The number of evaluations in the whole run.

    >>> steps_within(100.0, Speed(step=1.0, evaluation=10.0), steps=400, done=100, evaluations=4)
    180
    """
    fits = done + max(1, int(MIN_STEPS_LEFT * (steps - done)))
    most = min(MAX_STEPS, done + int(max(left, 0) / speed.step))
    while fits < most:
        middle = (fits + most + 1) // 2
        if speed.of_rest(Length(middle), done, evaluations) <= left:
            fits = middle
        else:
            most = middle - 1
    return fits


class Replan(Callback):
    """Times the steps of a run with a budget, and changes the number of steps once if the run would miss the budget.

    The change is written to ``config.json`` before anything follows it. So a killed run that is resumed, even from a
    checkpoint before the change, computes the same as an uninterrupted run. Put it before all callbacks that ask the
    plan about a step.

    Args:
        folder: The run's folder.
        plan: The plan, which is changed in place.
        journal: The journal, whose clock counts the time of training.
        hardware: The hardware, whose settings say how often there is a checkpoint.
    """

    def __init__(self, folder: RunFolder, plan: Plan[Any, Any], journal: Journal, hardware: Hardware) -> None:
        self.folder, self.plan, self.journal, self.hardware = folder, plan, journal, hardware
        self.timed: Seconds | None = None
        self.checks: list[int] = []
        self.first_timed = self.num_timed = 0
        self.seconds = 0.0
        #: When the clock was started; None while it stands still.
        self.started: float | None = None
        self.has_warned = False

    def on_train_start(self, trainer: pl.Trainer, *_: Any) -> None:
        step, experiment = trainer.global_step, self.plan.experiment
        trainer.val_check_batch = self.plan.evaluate_every(step)
        self.timed = Seconds.read(self.folder) if trainer.is_global_zero else None
        self.first_timed = step + WARMUP_STEPS
        if not experiment.replanned_at:
            self.checks = [check for share in CHECKED_AT if (check := int(share * self.plan.steps)) > step]

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.started is None and trainer.global_step >= self.first_timed:
            self.started = synchronized_time(trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, *_: Any) -> None:
        self._stop_clock(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        assert isinstance(task, Task)
        step = trainer.global_step
        self.num_timed += self.started is not None
        if self.num_timed >= MIN_TIMED_STEPS and any(check <= step < self.plan.steps for check in self.checks):
            self._stop_clock(trainer)
            self.checks = [check for check in self.checks if check > step]
            steps = trainer.strategy.broadcast(self._replanned(step) if trainer.is_global_zero else 0)
            self.seconds, self.num_timed = 0.0, 0
            if steps:
                self.checks = []
                self.plan.replan(steps, step)
                task.length = self.plan.length
        if step == self.plan.experiment.replanned_at:  # now, or before a kill
            trainer.val_check_batch = self.plan.evaluate_every(step)

    def _stop_clock(self, trainer: pl.Trainer) -> None:
        """Stop the clock until the next step. Each evaluation follows a checkpoint, so it is not timed either."""
        if self.started is not None:
            self.seconds += synchronized_time(trainer) - self.started
            self.started = None

    def _replanned(self, step: int) -> int:
        """The new number of steps, after writing it to the folder; 0 if it stays."""
        if self.timed is None:  # an older run, or its environment.json was removed
            return 0
        experiment, slower = self.plan.experiment, self.seconds / self.num_timed / self.timed.step
        found = f"steps take {slower:.2f} times as long as at the start"
        if slower < LEAST_PLAUSIBLE:
            self._warn_once(f"{found}, which is implausible. The run keeps its number of steps.")
            return 0
        now = Seconds(*(slower * seconds for seconds in self.timed))
        speed = Speed(now.step_with_checkpoints(self.hardware), now.evaluation + now.checkpoint)
        used = self.timed.spent + self.journal.seconds()
        left = PLANNED_SHARE * (experiment.budget - used)
        rest = speed.of_rest(self.plan.length, step, experiment.evaluations)
        if -TOO_EARLY * experiment.budget <= rest - left <= TOO_LATE * experiment.budget:
            return 0
        if experiment.pruning.sparsity:
            self._warn_once(
                f"{found}: the run will take about {as_budget(used + rest)} instead of {as_budget(experiment.budget)}. "
                "It keeps its number of steps, because it prunes."
            )
            return 0
        steps = steps_within(left, speed, experiment.steps, step, experiment.evaluations)
        if steps == experiment.steps:
            return 0
        self.folder.write_experiment(experiment.replanned(steps, step))
        log.warning(
            "%s: re-planned at step %s, from %s steps to %s, to keep the budget of %s.",
            found, f"{step:,}", f"{experiment.steps:,}", f"{steps:,}", as_budget(experiment.budget),
        )  # fmt: skip
        return steps

    def _warn_once(self, message: str) -> None:
        if not self.has_warned:
            log.warning(message)
        self.has_warned = True


def warn_if_missed(folder: RunFolder, plan: Plan[Any, Any], journal: Journal) -> None:
    """Log a warning if a run with a budget has taken clearly longer."""
    timed, budget = Seconds.read(folder), plan.experiment.budget
    used = journal.seconds() + (timed.spent if timed else 0.0)
    if budget and used > MISSED * budget:
        log.warning(
            "the budget was missed: the run took %s, %s (%.0f %%) more than its budget of %s.",
            as_budget(used), as_budget(used - budget), 100 * (used / budget - 1), as_budget(budget),
        )  # fmt: skip


def as_budget(seconds: float) -> str:
    """A time in the form that ``--budget`` takes; seconds are rounded.

    >>> as_budget(600), as_budget(3725.4), as_budget(4.5)
    ('10m', '1h2m5s', '4.5s')
    """
    if seconds < 10:
        return f"{seconds:.2g}s"
    minutes, rest = divmod(round(seconds), 60)
    parts = ((minutes // 60, "h"), (minutes % 60, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)
