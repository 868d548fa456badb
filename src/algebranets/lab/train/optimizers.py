"""torch's optimizers, created from their settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from algebranets.lab.train.settings import Optimizer
from algebranets.nn import TupleLayerNorm, Whitening1d, Whitening2d, Whitening3d

#: Layers whose parameters, scales and offsets, get no weight decay.
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, TupleLayerNorm, Whitening1d, Whitening2d, Whitening3d)
#: The prefix that FSDP adds to the names of parameters.
_FSDP_WRAPPER = "_fsdp_wrapped_module."


def undecayed(model: nn.Module) -> Iterator[str]:
    """Yield the names of parameters without weight decay: biases, and the parameters of norms.

    >>> list(undecayed(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    ['0.bias', '1.weight', '1.bias']
    """
    for prefix, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            if isinstance(module, NORMS) or "bias" in name:
                yield f"{prefix}.{name}" if prefix else name


def make_optimizer(model: nn.Module, settings: Optimizer, kept: set[str]) -> torch.optim.Optimizer:
    """Create the optimizer of a model's parameters.

    Args:
        model: The model, which FSDP may have wrapped.
        settings: The optimizer's settings.
        kept: The names of parameters without weight decay, from `undecayed` before FSDP wrapped the model. After that,
            parameters are flat pieces that can only be recognized by name.
    """
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[name.replace(_FSDP_WRAPPER, "") not in kept].append(parameter)
    decayed = {"params": groups[True], "weight_decay": settings.weight_decay}
    plain = {"params": groups[False], "weight_decay": 0.0}
    options: dict[str, Any] = {"lr": settings.lr}
    if settings.name == "sgd":
        options |= {"momentum": settings.momentum, "nesterov": settings.nesterov}
    else:
        options |= {"betas": settings.betas}
    if next(model.parameters()).is_cuda and not any(_FSDP_WRAPPER in name for name, _ in model.named_parameters()):
        options["fused"] = True  # needs gradients in the layout of their parameters, which FSDP may change
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[settings.name]([group for group in (decayed, plain) if group["params"]], **options)
    # A fused optimizer would undo float16's loss scaling inside its step, but clipping needs unscaled gradients before.
    optimizer._step_supports_amp_scaling = False
    return optimizer
