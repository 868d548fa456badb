"""Metrics and log messages that a run writes while it trains."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from algebranets import files
from algebranets.lab.train.checkpoints import Stopped
from algebranets.lab.train.divergence import check_loss
from algebranets.lab.train.folder import Evaluated, RunFolder
from algebranets.lab.train.plan import Plan
from algebranets.lab.train.tasks import Task

log = logging.getLogger("algebranets")


class Speedometer(Callback):
    """A callback that measures training speed in examples per second, without evaluations."""

    _begun: float | None = None
    _num_examples = 0

    def on_train_batch_start(self, *_: Any) -> None:
        self._begun = self._begun or time.monotonic()

    def count(self, trainer: pl.Trainer, task: Task, batch: Any) -> None:
        """Add the examples of a step, over all processes."""
        self._num_examples += trainer.world_size * task.num_examples(batch)

    def speed(self) -> float:
        """Examples per second since the last call or evaluation. The device must be synchronized."""
        now = time.monotonic()
        speed = self._num_examples / max(now - (self._begun or now), 1e-9)
        self._begun, self._num_examples = now, 0
        return speed

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._begun, self._num_examples = None, 0


class Journal(Speedometer):
    """Writes metrics to every logger, and evaluations to the log too. A loss that is not finite ends the run.

    Args:
        folder: The run's folder, where it writes how far an evaluation is.
        plan: The plan of the run.
        every: Steps between two rows of metrics. Step 1 and evaluated steps get rows too.
    """

    def __init__(self, folder: RunFolder, plan: Plan[Any, Any], every: int) -> None:
        self.folder, self.plan, self.every = folder, plan, every
        self.step, self.begun = 0, time.monotonic()
        self.evaluation_begun = self.evaluation_written = 0.0
        #: Whether training or an evaluation has started.
        self.has_begun = False

    def on_train_start(self, *_: Any) -> None:
        self.has_begun = True

    def on_validation_start(self, *_: Any) -> None:
        self.has_begun = True
        self.evaluation_begun = self.evaluation_written = time.monotonic()

    def on_validation_batch_end(
        self, trainer: pl.Trainer, task: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        now = time.monotonic()
        if trainer.is_global_zero and now - self.evaluation_written >= 1:
            num_batches = int(sum(trainer.num_val_batches))
            self.folder.write_evaluated(Evaluated(batch_idx + 1, num_batches, now - self.evaluation_begun))
            self.evaluation_written = now

    def begin(self, step: int, rows: Iterable[dict[str, float]]) -> None:
        """Start the clock for a run that continues from ``step``, at the last time in its earlier ``rows``."""
        self.step = step
        self.begun = time.monotonic() - max((row["seconds"] for row in rows), default=0.0)

    def seconds(self) -> float:
        """The time of training so far, with that of earlier processes up to their last row."""
        return time.monotonic() - self.begun

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
        check_loss(value, step)
        rates = {"lr": trainer.optimizers[0].param_groups[0]["lr"], f"{task.examples}_per_second": self.speed()}
        self._write(trainer, {**task.training_metrics(value), **rates})

    def on_validation_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        super().on_validation_end(trainer, task)
        if trainer.is_global_zero:
            self.folder.write_evaluated(None)
        self._write(trainer, task.measured)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in task.measured.items())
        log.info("step %d of %d: %s", self._step(trainer), task.steps, shown)

    def _write(self, trainer: pl.Trainer, metrics: dict[str, float]) -> None:
        step = self._step(trainer)
        when = {"epoch": step / self.plan.per_epoch, "seconds": self.seconds()}
        for logger in trainer.loggers:
            logger.log_metrics({**when, **metrics}, step)

    def _step(self, trainer: pl.Trainer) -> int:
        """The step that training has reached. Lightning's own step is 0 until a resumed run trains."""
        return max(self.step, trainer.global_step)


class MetricsFile(Logger):
    """A Lightning logger that writes rows to the run folder's ``metrics.jsonl``."""

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
        """Do nothing, because all settings are in ``config.json``."""


class LogFile(logging.Handler):
    """Writes messages to a run folder's ``log.txt``. It ignores disk errors, because the run reports them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            files.append(self.path, self.format(record) + "\n")


@contextmanager
def logging_to(folder: RunFolder) -> Iterator[None]:
    """Also write our log messages, and an error that ends the run, to the folder's ``log.txt``."""
    handler = LogFile(folder.log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except Exception as error:  # the caller shows the error
        log.info("ends: %s", error, exc_info=not isinstance(error, ValueError | Stopped))
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
