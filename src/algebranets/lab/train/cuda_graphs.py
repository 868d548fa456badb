"""CUDA graphs for training: the forward and the backward of a model take one launch each."""

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
    """Record a model's training forward and backward as CUDA graphs, in place.

    Evaluation, and inputs of other shapes, run as before.

    Args:
        model: The model.
        inputs: The model's inputs: tensors or lists of tensors. Later inputs are copied to the memory of these.
    """
    kept = [buffer.clone() for buffer in model.buffers()]  # the runs before recording change the buffers
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
    """Records the task's model as CUDA graphs as soon as `Task.steady_inputs` returns inputs.

    Processes exchange gradients after the graphs have run. A model that FSDP shards is not recorded, because FSDP
    gathers weights inside the model.
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
    """A list with `Capture` if the model is compiled for a GPU, else an empty list.

    Put it before `StepSeed`, because recording draws random numbers.
    """
    return [Capture()] if hardware.compile and hardware.on_gpu else []
