"""Lightning callbacks for random numbers that depend on the step alone, and for pruning."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from algebranets.lab.data.batches import seed_of
from algebranets.lab.train.divergence import check_weights
from algebranets.pruning import Pruner


class StepSeed(Callback):
    """Seeds torch before each step from the seed, the step and the process.

    So checkpoints need no random state, and a resumed run draws the same dropout as an uninterrupted run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        torch.manual_seed(seed_of(self.seed, trainer.global_step, trainer.global_rank))


class Prune(Callback):
    """Prunes a model while Lightning trains it.

    Lightning's checkpoints hold the masks, because they are part of the model.

    Args:
        pruner: The pruner; the callback calls it after each step.

    >>> import algebranets as an
    >>> model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
    >>> callback = Prune(Pruner(model, 0.9, steps=1000))
    """

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if self.pruner.schedule.due(step):
            check_weights(trainer, task)
        self.pruner.at(step)
