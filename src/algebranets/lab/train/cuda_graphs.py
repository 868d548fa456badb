"""Training steps as CUDA graphs: two launches a step instead of thousands."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.utils import _pytree

from algebranets.lab.train.hardware import Hardware


def capture(model: nn.Module, *inputs: Any) -> None:
    """Record a model's forward and backward for training as CUDA graphs, in place.

    Inputs of other shapes, and evaluation, run as before.

    Args:
        model: The model.
        inputs: Tensors, or lists of tensors, as the model takes them. Later inputs are copied to their memory.
    """
    kept = [buffer.clone() for buffer in model.buffers()]  # the trial runs change them
    before, recorded_shapes = model.forward, shapes(inputs)
    torch.cuda.make_graphed_callables(model.train(), inputs)
    recorded = model.forward
    model._compiled_call_impl = None  # the recorded graph replaces the compiled model
    for buffer, value in zip(model.buffers(), kept, strict=True):
        buffer.copy_(value)

    def forward(*given: Any, **options: Any) -> Any:
        is_recorded = not options and shapes(given) == recorded_shapes
        return recorded(*given) if is_recorded else before(*given, **options)

    model.forward = forward


def shapes(values: Any) -> list[torch.Size | None]:
    """The shapes of all tensors in nested lists and tuples.

    >>> shapes([torch.zeros(2), (torch.zeros(1, 3), None)])
    [torch.Size([2]), torch.Size([1, 3]), None]
    """
    return [getattr(value, "shape", None) for value in _pytree.tree_leaves(values)]


class Capture(Callback):
    """Captures the task's model as soon as `Task.steady_inputs` says that later steps have the same shapes.

    Gradients of several processes are summed after the graphs. FSDP gathers weights inside the model, so a model that
    it shards is not captured.
    """

    captured = False

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Any, batch_idx: int) -> None:
        if self.captured or isinstance(trainer.strategy, FSDPStrategy):
            return
        inputs = task.steady_inputs(batch)
        if inputs is not None:
            with trainer.precision_plugin.forward_context():
                capture(task.model, *inputs)
            self.captured = True


def capturing(hardware: Hardware) -> list[Callback]:
    """`Capture` if the model is compiled for a GPU, else nothing. It goes before `StepSeed`, as it draws numbers."""
    return [Capture()] if hardware.compile and hardware.on_gpu else []
