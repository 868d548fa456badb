"""Errors when training diverges: a loss or weights that are not finite."""

from __future__ import annotations

import math

import lightning.pytorch as pl
import torch
from torch import Tensor

from algebranets.lab.train.processes import any_process

_DIVERGED = (
    "training has diverged and was stopped. No checkpoint was saved since then. Try a smaller optimizer.lr, a longer "
    "schedule.warmup or optimizer.clip=1."
)


def check_loss(loss: float, step: int) -> None:
    """Raise an error if the loss is NaN or infinite."""
    if not math.isfinite(loss):
        raise ValueError(f"the loss at step {step} is {loss}: {_DIVERGED}")


def check_weights(trainer: pl.Trainer, task: pl.LightningModule) -> None:
    """Raise an error in all processes if weights contain NaN or infinity; call it before pruning or saving."""
    finite: list[Tensor] = [p.detach().isfinite().all() for p in task.parameters()]
    if any_process(trainer, not torch.stack(finite).all()):
        raise ValueError(f"weights are no longer finite at step {trainer.global_step}: {_DIVERGED}")
