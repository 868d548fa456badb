"""From an experiment to a run folder: the path of a training run.

`run` loads the data, builds the model and its task, and hands them to Lightning's Trainer with the callbacks of
`train.callbacks`; where the folder holds part of the run already, it goes on from there. Batches, dropout and learning
rates are functions of the seed and the step, so a run that was killed and resumed computes what an unbroken one does.
"""

from __future__ import annotations

import logging
import math
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from algebranets import algebra as algebras
from algebranets import files
from algebranets.accounting import account
from algebranets.lab.data import Share
from algebranets.lab.train import budget
from algebranets.lab.train import plan as plans
from algebranets.lab.train.callbacks import Checkpoints, Journal, Prune, StepSeed, Stopped, capturing
from algebranets.lab.train.environment import environment
from algebranets.lab.train.experiment import Experiment
from algebranets.lab.train.folder import RunFolder, foreign_checkpoint, read_checkpoint, step_of
from algebranets.lab.train.hardware import Hardware, is_out_of_memory, make_trainer, prepare, quiet, within_memory
from algebranets.lab.train.loaders import Resumable, Whole
from algebranets.lab.train.plan import ImagePlan, TextPlan
from algebranets.lab.train.results import METRICS, Result
from algebranets.models import publish

log = logging.getLogger("algebranets")


class MetricsFile(Logger):
    """Metrics as rows of the run folder's ``metrics.jsonl``."""

    name, version = "metrics", 0

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self.folder = folder

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        assert step is not None
        self.folder.append({"step": step, **metrics})

    @rank_zero_only
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """They are in ``config.json``."""


class LogFile(logging.Handler):
    """A run folder's ``log.txt``. Where the disk is full it is silent: the error that ends the run says it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            files.append(self.path, self.format(record) + "\n")


@quiet()
@within_memory()
def run(
    experiment: Experiment, path: Path, hardware: Hardware | None = None, callbacks: Iterable[Callback] = ()
) -> Result | None:
    """Train in the folder ``path``, or go on there; gives what came out (None in all processes but the first).

    Raises `callbacks.Stopped` where SIGTERM or Ctrl-C asked for it, behind a checkpoint.
    """
    begun = time.monotonic()
    hardware, folder = hardware or Hardware(), RunFolder(path)
    done = folder.finished()
    if done is not None and folder.holds(experiment):
        return done
    if not hardware.threads:
        before = Hardware.of(folder, ("threads", "devices"))
        hardware = replace(hardware, threads=before.threads if before.devices == hardware.devices else 0)
    with hardware.fixed_rounding() as hardware:
        if experiment.budget:  # which was found to hold so many steps, or will be
            experiment = folder.experiment() if folder.holds(experiment) else budget.fit(experiment, hardware, begun)
        return _run(experiment, folder, hardware, callbacks)


def _run(experiment: Experiment, folder: RunFolder, hardware: Hardware, callbacks: Iterable[Callback]) -> Result | None:
    plan = plans.make(experiment, hardware.data)
    model = plan.build()
    pruner = plan.pruner(model)
    if pruner is not None and hardware.strategy == "fsdp":
        raise ValueError("pruning needs whole weights, which fsdp cuts in pieces: take --strategy ddp.")
    journal = Journal(plan, hardware.log_steps)
    checkpoints = Checkpoints(folder, plan, hardware.checkpoint_minutes, hardware.checkpoint_steps)
    own = [*capturing(hardware), StepSeed(experiment.seed), journal]
    own += [*([Prune(pruner)] if pruner else []), checkpoints]
    trainer = make_trainer(
        hardware,
        folder,
        model,
        plan.evaluate_every,
        experiment.optimizer.clip,
        [MetricsFile(folder)],
        [*own, *callbacks],
    )
    if not trainer.is_global_zero:
        _fit(plan, folder, hardware, trainer, model, journal)
        return None
    folder.create(experiment)
    with folder.locked(), _logging(folder):
        command = folder.environment().get("command", _command())  # the one that began it makes it again
        folder.write_environment(
            {**environment(trainer.strategy.root_device), "command": command, "hardware": hardware.to_dict()}
        )
        begun = _fit(plan, folder, hardware, trainer, model, journal)
        return _finish(plan, folder, is_trained=begun < plan.steps)


def resume(path: Path, hardware: Hardware | None = None, callbacks: Iterable[Callback] = ()) -> Result | None:
    """Go on with the run in this folder, on the hardware it had unless told otherwise."""
    folder = RunFolder(path)
    experiment = folder.experiment()
    return run(experiment, path, hardware or Hardware.of(folder), callbacks)


def _fit(
    plan: ImagePlan | TextPlan,
    folder: RunFolder,
    hardware: Hardware,
    trainer: pl.Trainer,
    model: nn.Module,
    journal: Journal,
) -> int:
    """Train from the newest checkpoint to the end, in every process; gives the step of that checkpoint."""
    newest = folder.newest_checkpoint()
    if newest is None and folder.result.exists():
        raise ValueError(
            f"{folder.path} is finished, but {folder.weights.name} is missing, and so is a whole checkpoint to make it "
            f"from. Remove {folder.result.name} to train it again."
        )
    step = 0 if newest is None else step_of(newest)
    log.info("%s at step %d of %d", "goes on" if step else "begins", step, plan.steps)
    if trainer.is_global_zero:
        folder.rewind(step)
    rows = list(folder.rows())
    journal.begin(step, rows)
    for logger in trainer.loggers:
        if isinstance(logger, CSVLogger):  # which begins its file anew
            for row in rows:
                logger.log_metrics({key: value for key, value in row.items() if key != "step"}, int(row["step"]))
    prepare(model, hardware, isinstance(plan, ImagePlan), trainer.world_size)
    device, share = trainer.strategy.root_device, Share(trainer.global_rank, trainer.world_size)
    task, evaluation = plan.task(model), Whole(plan.evaluation(device, share))
    evaluated = {row["step"] for row in rows if plan.experiment.metric in row}
    with _restoring(newest, journal):
        if step and plan.is_evaluated(step) and step not in evaluated:  # killed or stopped before it was
            trainer.validate(task, evaluation, ckpt_path=newest, verbose=False, weights_only=True)
            journal.has_begun = False
        if step < plan.steps:
            batches = Resumable(plan.training(device, share), plan.steps)
            trainer.fit(task, batches, evaluation, ckpt_path=newest, weights_only=True)
    return step


@contextmanager
def _restoring(checkpoint: Path | None, journal: Journal) -> Iterator[None]:
    """What goes wrong before training or evaluation begins is the fault of the checkpoint that it begins from."""
    try:
        yield
    except (OSError, Stopped):
        raise
    except Exception as error:
        if checkpoint is None or journal.has_begun or is_out_of_memory(error) or str(checkpoint) in str(error):
            raise
        raise foreign_checkpoint(checkpoint, error) from error


def _finish(plan: ImagePlan | TextPlan, folder: RunFolder, is_trained: bool) -> Result:
    """Publish the weights of the last checkpoint, and what came out: now, or before if nothing was trained since."""
    experiment = plan.experiment
    model = plan.build()
    pruner = plan.pruner(model)
    last = folder.checkpoint(plan.steps)
    saved = read_checkpoint(last)["state_dict"]
    try:
        model.load_state_dict(
            {name.removeprefix("model."): v for name, v in saved.items() if name.startswith("model.")}
        )
    except (RuntimeError, AttributeError, TypeError) as error:
        raise foreign_checkpoint(last, error) from None
    if pruner is not None:
        pruner.finish()
    algebra = algebras.get(experiment.algebra)
    publish(model, experiment.model["name"], algebra, plan.fitted.options(), folder.weights)
    if not is_trained and folder.result.exists():
        return Result.load(folder.result)
    curve = _curve(folder.rows(), experiment.metric)
    cost = account(model, *plan.example_inputs(model))
    where = folder.environment()
    result = Result(
        recipe=experiment.recipe,
        algebra=algebra.name,
        width=experiment.width,
        seed=experiment.seed,
        changes=dict(experiment.changes),
        metric=experiment.metric,
        value=_judged(experiment, curve),
        parameters=cost.parameters,
        statistics=cost.statistics,
        multiplies=cost.multiplies,
        steps=plan.steps,
        seconds=curve[-1]["seconds"],
        curve=curve,
        experiment=experiment.to_dict(),
        environment={key: value for key, value in where.items() if key != "command"},
        command=where["command"],
        nonzero=cost.nonzero,
        multiplies_left=cost.multiplies_left,
    )
    result.save(folder.result)
    log.info("done: %s %.4g", result.metric, result.value)
    return result


def _judged(experiment: Experiment, curve: list[dict[str, float]]) -> float:
    """The best value in the share of training that counts."""
    since = (1 - experiment.judged_over) * curve[-1]["step"]
    best = max if METRICS[experiment.metric] else min
    return best(row[experiment.metric] for row in curve if row["step"] >= since)


def _curve(rows: Iterable[dict[str, float]], metric: str) -> list[dict[str, float]]:
    """The evaluations, each with the training loss that was last written before it."""
    curve, train_loss = [], math.nan
    for row in rows:
        train_loss = row.get("train_loss", train_loss)
        if metric in row:
            curve.append({"train_loss": train_loss, **row})
    return curve


def _command() -> str:
    """What was typed, or would have been."""
    program = Path(sys.argv[0]).name
    return shlex.join(["algebranets" if program == "__main__.py" else program, *sys.argv[1:]])


@contextmanager
def _logging(folder: RunFolder) -> Iterator[None]:
    """Our messages go to the folder's log as well, and so does what ends the run."""
    handler = LogFile(folder.log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except Exception as error:  # whoever called says it aloud
        log.info("ends: %s", error, exc_info=not isinstance(error, ValueError | Stopped))
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
