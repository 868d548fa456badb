"""How many steps fit into a budget of time: some are tried on a model that is thrown away."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from algebranets.lab.data import Share
from algebranets.lab.train import plan as plans
from algebranets.lab.train.callbacks import StepSeed, any_process, capturing
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder
from algebranets.lab.train.hardware import Hardware, make_trainer, prepare
from algebranets.lab.train.loaders import Resumable, Whole
from algebranets.lab.train.plan import ImagePlan

#: Steps that are tried: the first compile and allocate, and fill a language model's memory; the others are timed.
WARM, TIMED = 8, 40
#: Batches of an evaluation that are tried; the second half of them is timed.
EVALUATED = 16
#: The share of a budget that timing steps, and all evaluations of a run, may take.
TRYING, EVALUATING = 0.05, 0.2
#: The share of what is left that is planned with: starting anew takes the rest.
USED = 0.96


def fit(experiment: Experiment, hardware: Hardware, begun: float) -> Experiment:
    """With the steps that fit into its budget, which counts from ``begun``, and no more evaluations than suit it."""
    step, evaluation, save, spent = _tried(experiment, hardware, begun)
    gc.collect()  # what was tried is gone: recorded graphs must not be freed while others are being recorded
    saves = experiment.budget / max(60 * hardware.checkpoint_minutes, step)
    left = USED * (experiment.budget - spent) - saves * save
    evaluation += save  # each is made behind a checkpoint
    evaluations = max(1, min(experiment.evaluations, int(EVALUATING * left / evaluation)))
    steps = int((left - evaluations * evaluation) / step)
    if steps < 1:
        raise ValueError(
            f"a budget of {experiment.budget:g} s must hold a step at least: one takes {step:.3g} s, an evaluation "
            f"{evaluation:.3g} s, and starting and timing them {spent:.3g} s. Give more."
        )
    return replace(experiment, steps=steps, evaluations=evaluations)


class Stopwatch(Callback):
    """The seconds of a training step and of an evaluation, once both are known."""

    def __init__(self, patience: float, eval_batches: int) -> None:
        self.patience, self.eval_batches = patience, eval_batches
        self.tried, self.evaluated = min(EVALUATED, eval_batches), 0
        self.step = self.evaluation = self.begun = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        timed = trainer.global_step - WARM
        if timed == 0:
            self.begun = _now(trainer)
        elif timed > 0 and any_process(trainer, timed == TIMED or time.monotonic() - self.begun > self.patience):
            self.step = (_now(trainer) - self.begun) / timed
            trainer.should_stop = True  # which makes Lightning evaluate

    def on_validation_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.begun = _now(trainer)

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.evaluated += 1
        if self.evaluated == self.tried // 2:
            self.begun = _now(trainer)

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        timed = self.tried - self.tried // 2
        self.evaluation = (_now(trainer) - self.begun) * self.eval_batches / timed


def _tried(experiment: Experiment, hardware: Hardware, begun: float) -> tuple[float, float, float, float]:
    """The seconds of a step, of an evaluation, of a checkpoint and since ``begun``: by the first process's clock."""
    plan = plans.make(replace(experiment, budget=0.0, steps=WARM + TIMED, evaluations=1), hardware.data)
    model = plan.build()
    with TemporaryDirectory() as folder:
        watch = Stopwatch(TRYING * experiment.budget, len(plan.evaluation("cpu", Share())))
        own = [*capturing(hardware), StepSeed(experiment.seed), watch]
        clip = experiment.optimizer.clip
        quiet = replace(hardware, loggers=())
        trainer = make_trainer(quiet, RunFolder(Path(folder)), model, plan.evaluate_every, clip, [], own)
        prepare(model, hardware, isinstance(plan, ImagePlan), trainer.world_size)
        device, share = trainer.strategy.root_device, Share(trainer.global_rank, trainer.world_size)
        batches = Resumable(plan.training(device, share), plan.steps)
        trainer.fit(plan.task(model), batches, Whole(plan.evaluation(device, share), EVALUATED))
        trained = time.monotonic()
        trainer.save_checkpoint(Path(folder) / "tried.ckpt")
    now = time.monotonic()
    return trainer.strategy.broadcast((watch.step, watch.evaluation, now - trained, now - begun))


def _now(trainer: pl.Trainer) -> float:
    """When all that was asked of the device is done."""
    if trainer.strategy.root_device.type == "cuda":
        torch.cuda.synchronize(trainer.strategy.root_device)
    return time.monotonic()
