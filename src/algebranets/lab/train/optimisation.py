"""Optimisers and learning rates, from their settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from algebranets.lab.train.experiment import Optimizer, Schedule
from algebranets.nn import TupleLayerNorm, Whitening1d, Whitening2d, Whitening3d

#: Layers whose parameters are scales and offsets, not weights: L2 leaves them alone.
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, TupleLayerNorm, Whitening1d, Whitening2d, Whitening3d)


def undecayed(model: nn.Module) -> Iterator[str]:
    """The names of biases and of what belongs to norms.

    >>> list(undecayed(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    ['0.bias', '1.weight', '1.bias']
    """
    for prefix, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            if isinstance(module, NORMS) or "bias" in name:
                yield f"{prefix}.{name}" if prefix else name


def make(model: nn.Module, settings: Optimizer, kept: set[str]) -> torch.optim.Optimizer:
    """The optimiser of a model's parameters; those named in ``kept`` are not decayed.

    Names are given because a wrapped model (FSDP) shows parameters as flat pieces, of which nothing else is known.
    """
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    wrapper = "_fsdp_wrapped_module."
    for name, parameter in model.named_parameters():
        groups[name.replace(wrapper, "") not in kept].append(parameter)
    decayed = {"params": groups[True], "weight_decay": settings.weight_decay}
    plain = {"params": groups[False], "weight_decay": 0.0}
    options: dict[str, Any] = {"lr": settings.lr}
    if settings.name == "sgd":
        options |= {"momentum": settings.momentum, "nesterov": settings.nesterov}
    else:
        options |= {"betas": settings.betas}
    if next(model.parameters()).is_cuda and not any(wrapper in name for name, _ in model.named_parameters()):
        options["fused"] = True  # which wants gradients laid out as parameters are; FSDP's pieces need not be
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[settings.name]([group for group in (decayed, plain) if group["params"]], **options)
    # A fused optimiser would undo float16's loss scaling within its step; clipping needs it done before.
    optimizer._step_supports_amp_scaling = False
    return optimizer


def follow(optimizer: torch.optim.Optimizer, schedule: Schedule, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning rate over ``steps`` steps: at each a function of the step alone."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(schedule.share, steps=steps))
