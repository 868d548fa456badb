"""torch.compile for a model: as one graph, or block by block."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

#: Limits on what inductor fuses into one kernel. Its defaults, 8 reads and 30 operations, split whitening into more
#: passes.
INDUCTOR_OPTIONS = {"realize_acc_reads_threshold": 64, "realize_opcount_threshold": 200}


def compile_model(model: nn.Module, whole: bool, backend: str = "inductor") -> None:
    """Compile a model, in place.

    Args:
        model: The model.
        whole: Whether to compile the model as one graph. Otherwise each of its `blocks` is compiled. Equal blocks share
            one graph, so a deep model starts in seconds, and it can be sharded. Image networks have blocks of many
            sizes and are faster as one graph. torch 2.11 does not compile MobileNet's blocks, whose classes are torch's
            own.
        backend: The backend of torch.compile.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> compile_model(model, whole=True, backend="eager")
    """
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)  # one graph per kind of block
    options = INDUCTOR_OPTIONS if backend == "inductor" else None
    repeated = set() if whole else set(blocks(model))
    for part in [*repeated, *_around(model, repeated)] if repeated else [model]:
        part.compile(dynamic=False, backend=backend, options=options)


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks that a deep model repeats: the outermost members of its sequences that have children.

    >>> import algebranets as an
    >>> len(list(blocks(an.models.create("cifar_resnet", algebra="H", num_blocks=3))))
    9
    """
    for child in model.children():
        if isinstance(child, nn.Sequential | nn.ModuleList) and any(True for part in child for _ in part.children()):
            yield from (part for part in child if any(True for _ in part.children()))
        else:
            yield from blocks(child)


def _around(module: nn.Module, repeated: set[nn.Module]) -> Iterator[nn.Module]:
    """Yield the largest submodules that have weights and contain none of the ``repeated`` blocks."""
    for child in module.children():
        if not repeated.isdisjoint(child.modules()):
            yield from _around(child, repeated) if child not in repeated else ()
        elif any(True for _ in child.parameters()):
            yield child
