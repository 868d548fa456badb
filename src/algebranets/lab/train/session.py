"""A run in one process: creates the model, callbacks and Trainer, and trains from the newest checkpoint."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger

from algebranets.lab.data import Share
from algebranets.lab.train import plan as plans
from algebranets.lab.train.budget import Seconds
from algebranets.lab.train.callbacks import Prune, StepSeed
from algebranets.lab.train.checkpoint_files import foreign_checkpoint, step_of
from algebranets.lab.train.checkpoints import Checkpoints, Stopped
from algebranets.lab.train.cuda_graphs import capturing
from algebranets.lab.train.environment import environment
from algebranets.lab.train.experiment import MAX_STEPS, Experiment
from algebranets.lab.train.folder import FACTS_OF_FIRST_START, RunFolder
from algebranets.lab.train.hardware import Hardware
from algebranets.lab.train.journal import Journal, MetricsFile, logging_to
from algebranets.lab.train.loaders import EvaluationLoader, TrainingLoader
from algebranets.lab.train.memory import is_out_of_memory
from algebranets.lab.train.plan import ImagePlan
from algebranets.lab.train.replan import Replan
from algebranets.lab.train.trainer import make_trainer, prepare

log = logging.getLogger("algebranets")


class Session:
    """A run in one process, ready to train. Nothing is written before `recorded`, so wrong settings leave no folder.

    Args:
        experiment: The experiment to train.
        folder: The run's folder.
        hardware: The hardware to train on.
        callbacks: Further Lightning callbacks.
    """

    def __init__(
        self, experiment: Experiment, folder: RunFolder, hardware: Hardware, callbacks: Iterable[Callback] = ()
    ) -> None:
        self.folder, self.hardware = folder, hardware
        self.plan = plans.make(experiment, hardware.data)
        self.model = self.plan.build()
        pruner = self.plan.pruner(self.model)
        if pruner is not None and hardware.strategy == "fsdp":
            raise ValueError("pruning needs whole weights, but fsdp shards them: use --strategy ddp.")
        self.journal = Journal(folder, self.plan, hardware.log_steps)
        own = [*capturing(hardware), StepSeed(experiment.seed)]
        own += [Replan(folder, self.plan, self.journal, hardware)] if experiment.budget else []
        own += [self.journal]  # after `Replan`, so that all others see the same plan
        own += [Prune(pruner)] if pruner else []
        own += [Checkpoints(folder, self.plan, hardware.checkpoint_minutes, hardware.checkpoint_steps)]
        self.trainer = make_trainer(
            hardware,
            folder,
            self.model,
            evaluate_every=self.plan.evaluate_every(),
            clip=experiment.optimizer.clip,
            loggers=[MetricsFile(folder)],
            callbacks=[*own, *callbacks],
        )

    @property
    def is_first(self) -> bool:
        """Whether this is the first process, the only one that writes."""
        return self.trainer.is_global_zero

    @contextmanager
    def recorded(self, timed: Seconds | None = None) -> Iterator[None]:
        """Create and lock the run's folder, write ``environment.json``, and write log messages to the folder.

        Args:
            timed: The times that a new run with a budget has measured.
        """
        if not self.is_first:
            yield
            return
        is_new = not self.folder.config.exists()
        self.folder.create(self.plan.experiment)
        with self.folder.locked(), logging_to(self.folder):
            where = environment(self.trainer.strategy.root_device)
            first = {"command": _command(), **({"timed": timed._asdict()} if timed else {})}
            before = {} if is_new else self.folder.environment()
            kept = {name: before[name] for name in FACTS_OF_FIRST_START if name in before}
            self.folder.write_environment({**where, **first, **kept, "hardware": self.hardware.to_dict()})
            yield

    def train(self) -> int:
        """Train from the newest checkpoint to the end, and return the step of that checkpoint."""
        newest = self._newest_checkpoint()
        step = 0 if newest is None else step_of(newest)
        log.info("%s at step %d of %d", "goes on" if step else "begins", step, self.plan.steps)
        rows = self._rewind(step)
        prepare(self.model, self.hardware, isinstance(self.plan, ImagePlan), self.trainer.world_size)
        device = self.trainer.strategy.root_device
        share = Share(self.trainer.global_rank, self.trainer.world_size)
        task, evaluation = self.plan.task(self.model), EvaluationLoader(self.plan.evaluation(device, share))
        task.length = self.plan.length
        evaluated = {row["step"] for row in rows if self.plan.experiment.metric in row}
        with self._restoring(newest):
            if step and self.plan.is_evaluated(step) and step not in evaluated:  # killed or stopped before that
                self.trainer.validate(task, evaluation, ckpt_path=newest, verbose=False, weights_only=True)
                self.journal.has_begun = False
            if step < self.plan.steps:
                # `Checkpoints` ends the run. A budget may add steps, so its batches do not end.
                stop = MAX_STEPS if self.plan.experiment.budget else self.plan.steps
                batches = TrainingLoader(self.plan.training(device, share), stop)
                self.trainer.fit(task, batches, evaluation, ckpt_path=newest, weights_only=True)
        return step

    def _newest_checkpoint(self) -> Path | None:
        newest = self.folder.newest_checkpoint()
        if newest is None and self.folder.result.exists():
            raise ValueError(
                f"{self.folder.path} is finished, but {self.folder.weights.name} is missing, and there is no undamaged "
                f"checkpoint to restore it from. Remove {self.folder.result.name} to train it again."
            )
        return newest

    def _rewind(self, step: int) -> list[dict[str, float]]:
        """Reset the folder and the loggers to ``step``, and return the rows of metrics up to that step."""
        if self.is_first:
            self.folder.rewind(step)
        rows = list(self.folder.rows())
        self.journal.begin(step, rows)
        for logger in self.trainer.loggers:
            if isinstance(logger, CSVLogger):  # it starts with an empty file
                for row in rows:
                    logger.log_metrics({key: value for key, value in row.items() if key != "step"}, int(row["step"]))
        return rows

    @contextmanager
    def _restoring(self, checkpoint: Path | None) -> Iterator[None]:
        """Report an error that is raised before training or evaluation starts as an error of the checkpoint."""
        try:
            yield
        except (OSError, Stopped):
            raise
        except Exception as error:
            if checkpoint is None or self.journal.has_begun or is_out_of_memory(error) or str(checkpoint) in str(error):
                raise
            raise foreign_checkpoint(checkpoint, error) from error


def _command() -> str:
    """The command line of this process, as a user would type it."""
    program = Path(sys.argv[0]).name
    return shlex.join(["algebranets" if program == "__main__.py" else program, *sys.argv[1:]])
