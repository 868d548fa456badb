"""Communication between the processes of a run: common decisions and batch-norm statistics."""

from __future__ import annotations

from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from algebranets.nn.whitening import sum_over_ranks


def any_process(trainer: pl.Trainer, flag: bool) -> bool:
    """Whether ``flag`` is true in any process, so that all processes save and stop at the same step."""
    return trainer.strategy.reduce_boolean_decision(flag, all=False) if trainer.world_size > 1 else flag


def synchronize(model: nn.Module) -> None:
    """Make batch norms compute their statistics over all processes, in place. torch's `SyncBatchNorm` needs GPUs."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.forward = partial(_normalize_over_processes, module)  # type: ignore[method-assign]


def _normalize_over_processes(norm: Any, x: Tensor) -> Tensor:
    if not norm.training:
        return type(norm).forward(norm, x)
    axes, shape = [0, *range(2, x.dim())], (-1, *[1] * (x.dim() - 2))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    count = sum_over_ranks(wide.new_tensor(x.numel() // x.shape[1]))
    mean = sum_over_ranks(wide.sum(axes)) / count
    centered = wide - mean.view(shape)
    variance = sum_over_ranks(centered.square().sum(axes)) / count
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * count / (count - 1), norm.momentum)
    scale = norm.weight * (variance + norm.eps).rsqrt()
    return (centered * scale.view(shape) + norm.bias.view(shape)).to(x.dtype)
