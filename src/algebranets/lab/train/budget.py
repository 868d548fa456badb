"""Time budgets: finds how many steps fit, by timing a few steps on a model that is then thrown away."""

from __future__ import annotations

import gc
import math
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from algebranets import checks
from algebranets.lab.data import Share
from algebranets.lab.train import plan as plans
from algebranets.lab.train.callbacks import StepSeed
from algebranets.lab.train.cuda_graphs import capturing
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.loaders import EvaluationLoader, TrainingLoader
from algebranets.lab.train.plan import ImagePlan
from algebranets.lab.train.processes import any_process
from algebranets.lab.train.trainer import make_trainer, prepare

#: Steps of the trial. Warm-up steps compile, allocate and fill a language model's memory; only the others are timed.
WARMUP_STEPS, TIMED_STEPS = 8, 40
#: Evaluation batches of the trial. Only the second half is timed.
TRIAL_BATCHES = 16
#: The share of the budget that timed steps may take, and the share of the planned time for evaluations.
TRIAL_SHARE, EVALUATION_SHARE = 0.05, 0.2
#: The share of the remaining time that is planned. The rest is a reserve, such as for starting again after the trial.
PLANNED_SHARE = 0.96


class Seconds(NamedTuple):
    """The seconds of one step, one evaluation and one checkpoint, and the seconds spent since the run started."""

    step: float
    evaluation: float
    checkpoint: float
    spent: float

    def step_with_checkpoints(self, hardware: Hardware) -> float:
        """The seconds of one step, with its share of the checkpoints by time and by steps.

        >>> Seconds(1.0, 0.0, checkpoint=3.0, spent=0.0).step_with_checkpoints(Hardware(checkpoint_minutes=1))
        1.05
        """
        steps_between = min(60 * hardware.checkpoint_minutes / self.step, hardware.checkpoint_steps or math.inf)
        return self.step + self.checkpoint / max(1, steps_between)

    @classmethod
    def read(cls, folder: RunFolder) -> Seconds | None:
        """The seconds that a run with a budget has written to ``environment.json``; None if it has not."""
        found = folder.environment().get("timed")
        if found is None:
            return None
        try:
            seconds = cls(**checks.options("timed", found, cls))
            for name, value in seconds._asdict().items():
                checks.positive(f"timed.{name}", value, or_zero=name != "step")
        except ValueError as error:
            raise ValueError(f"{folder.path / 'environment.json'}: {error} Remove it to go on without it.") from None
        return seconds


def fit(experiment: Experiment, hardware: Hardware, begun: float) -> tuple[Experiment, Seconds]:
    """The experiment with as many steps as fit into its budget, and the times that were measured for that.

    There are fewer evaluations if they would take too long.

    Args:
        experiment: An experiment with a budget.
        hardware: The hardware to train on.
        begun: The start of the budget's time, from `time.monotonic`.
    """
    experiment = experiment.first_plan()
    seconds = _time_trial(experiment, hardware, begun)
    gc.collect()  # frees the trial's CUDA graphs, which must not happen while other graphs are being recorded
    left = PLANNED_SHARE * (experiment.budget - seconds.spent)
    evaluation = seconds.evaluation + seconds.checkpoint  # there is a checkpoint before each evaluation
    evaluations = max(1, min(experiment.evaluations, int(EVALUATION_SHARE * left / evaluation)))
    step = seconds.step_with_checkpoints(hardware)
    steps = int((left - evaluations * evaluation) / step)
    if steps < 1:
        raise ValueError(
            f"a budget of {experiment.budget:g} s must be long enough for one step: a step takes {step:.3g} s, an "
            f"evaluation {evaluation:.3g} s, and starting and timing them took {seconds.spent:.3g} s. Use a larger "
            "budget."
        )
    return replace(experiment, steps=steps, evaluations=evaluations), seconds


class Stopwatch(Callback):
    """Measures the seconds of a training step, stops training, and measures the seconds of an evaluation.

    Args:
        patience: Seconds after which no more steps are timed.
        num_eval_batches: The number of batches in a whole evaluation.
    """

    def __init__(self, patience: float, num_eval_batches: int) -> None:
        self.patience, self.num_eval_batches = patience, num_eval_batches
        self.num_trial_batches, self.num_evaluated = min(TRIAL_BATCHES, num_eval_batches), 0
        self.step = self.evaluation = self.begun = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        timed = trainer.global_step - WARMUP_STEPS
        if timed == 0:
            self.begun = synchronized_time(trainer)
        elif timed > 0 and any_process(trainer, timed == TIMED_STEPS or time.monotonic() - self.begun > self.patience):
            self.step = (synchronized_time(trainer) - self.begun) / timed
            trainer.should_stop = True  # Lightning then evaluates

    def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.begun = synchronized_time(trainer)

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.num_evaluated += 1
        if self.num_evaluated == self.num_trial_batches // 2:
            self.begun = synchronized_time(trainer)

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        timed = self.num_trial_batches - self.num_trial_batches // 2
        self.evaluation = (synchronized_time(trainer) - self.begun) * self.num_eval_batches / timed


def _time_trial(experiment: Experiment, hardware: Hardware, begun: float) -> Seconds:
    """Train and evaluate a few batches; the first process measures the seconds for all processes."""
    short = replace(experiment, budget=0.0, steps=WARMUP_STEPS + TIMED_STEPS, evaluations=1)
    plan = plans.make(short, hardware.data)
    model = plan.build()
    with TemporaryDirectory() as folder:
        watch = Stopwatch(TRIAL_SHARE * experiment.budget, len(plan.evaluation("cpu", Share())))
        trainer = make_trainer(
            replace(hardware, loggers=()),
            RunFolder(Path(folder)),
            model,
            evaluate_every=plan.evaluate_every(),
            clip=experiment.optimizer.clip,
            callbacks=[*capturing(hardware), StepSeed(experiment.seed), watch],
        )
        prepare(model, hardware, isinstance(plan, ImagePlan), trainer.world_size)
        device, share = trainer.strategy.root_device, Share(trainer.global_rank, trainer.world_size)
        batches = TrainingLoader(plan.training(device, share), plan.steps)
        trainer.fit(plan.task(model), batches, EvaluationLoader(plan.evaluation(device, share), TRIAL_BATCHES))
        trained = time.monotonic()
        trainer.save_checkpoint(Path(folder) / "trial.ckpt")
    now = time.monotonic()
    return trainer.strategy.broadcast(Seconds(watch.step, watch.evaluation, now - trained, now - begun))


def synchronized_time(trainer: pl.Trainer) -> float:
    """The time after the device has finished all its work."""
    if trainer.strategy.root_device.type == "cuda":
        torch.cuda.synchronize(trainer.strategy.root_device)
    return time.monotonic()
