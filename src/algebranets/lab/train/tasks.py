"""Tasks as Lightning modules: classify images, or predict the next character of a text.

They take any model, and also work in your own Trainer:

>>> import algebranets as an
>>> from algebranets.lab.train import Optimizer
>>> model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
>>> task = Classification(model, num_classes=10, optimizer=Optimizer(lr=0.1), steps=1000)

Shapes: B batch, C classes, T time, V characters.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.utils import _pytree
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from algebranets.lab.data import IGNORED
from algebranets.lab.train.cuda_graphs import shapes
from algebranets.lab.train.length import Length
from algebranets.lab.train.optimizers import make_optimizer, undecayed
from algebranets.lab.train.settings import Optimizer, Schedule


class Task(pl.LightningModule):
    """A model with its loss and its optimizer.

    Args:
        model: The model.
        optimizer: The settings of the optimizer.
        schedule: The learning rate over training; constant if None.
        steps: The number of training steps.
        label_smoothing: The share of a label's weight that is spread over all classes.
    """

    #: The plural noun for the examples of a batch, such as "images".
    examples: ClassVar[str]

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, schedule: Schedule | None, steps: int, label_smoothing: float
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        #: The number of training steps. A run with a time budget may replace it while it trains.
        self.length = Length(steps)
        self.optimizer_settings, self.schedule = optimizer, schedule or Schedule()
        #: The metrics of the last evaluation, by name.
        self.measured: dict[str, float] = {}
        self.nats = MeanMetric()
        self._undecayed = set(undecayed(model))

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return self.length.steps

    @abstractmethod
    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> Tensor:
        """The loss of a batch."""

    @abstractmethod
    def num_examples(self, batch: tuple[Tensor, ...]) -> int:
        """The number of `examples` in a batch."""

    @abstractmethod
    def steady_inputs(self, batch: tuple[Tensor, ...]) -> tuple[Any, ...] | None:
        """The model's inputs for this batch if its forward and backward can be recorded as CUDA graphs, else None.

        Recording is impossible if later batches may have other shapes, or if processes communicate inside the model.
        """

    def training_metrics(self, loss: float) -> dict[str, float]:
        """The metrics of a training step. The progress bar shows the last of them."""
        return {"train_loss": loss}

    def configure_optimizers(self) -> Any:
        optimizer = make_optimizer(self.model, self.optimizer_settings, self._undecayed)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate_factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def rate_factor(self, step: int) -> float:
        """The factor of the learning rate at step number ``step``; it depends on the schedule and the length only."""
        return self.schedule.share(self.length.scheduled(step), self.length.scheduled_steps)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, but with FSDP use its own method, which takes the norm over all processes."""
        if gradient_clip_val and isinstance(self.trainer.strategy, FSDPStrategy):
            wrapped: Any = self.trainer.strategy.model
            wrapped.clip_grad_norm_(gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_validation_epoch_start(self) -> None:
        self.nats.reset()

    def on_validation_epoch_end(self) -> None:
        self.measured = {"loss": float(self.nats.compute())}


class Classification(Task):
    """Classification of images with a cross-entropy loss; accuracies are in percent.

    Args:
        model: A model that maps images to logits.
        num_classes: The number of classes; with more than 5, the top-5 accuracy is measured too.
        optimizer: The settings of the optimizer.
        steps: The number of training steps.
        schedule: The learning rate over training; constant if None.
        label_smoothing: The share of a label's weight that is spread over all classes.

    >>> import algebranets as an
    >>> model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
    >>> task = Classification(model, num_classes=10, optimizer=Optimizer(lr=0.1), steps=1000)
    """

    examples = "images"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        optimizer: Optimizer,
        steps: int,
        schedule: Schedule | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(model, optimizer, schedule, steps, label_smoothing)
        kinds = {"accuracy": 1, **({"top5": 5} if num_classes > 5 else {})}
        self.accuracies = nn.ModuleDict(
            {
                name: MulticlassAccuracy(num_classes, k, "micro", ignore_index=IGNORED, validate_args=False)
                for name, k in kinds.items()
            }
        )

    def forward(self, images: Float[Tensor, "batch chan height width"]) -> Float[Tensor, "batch cls"]:
        return self.model(images).float()

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels, label_smoothing=self.label_smoothing)

    def num_examples(self, batch: tuple[Tensor, ...]) -> int:
        return len(batch[0])

    def steady_inputs(self, batch: tuple[Tensor, ...]) -> tuple[Any, ...] | None:
        return (batch[0],) if self.trainer.world_size == 1 else None  # batch norms of several processes communicate

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        for accuracy in self.accuracies.values():
            accuracy.reset()  # type: ignore[operator]

    def validation_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> None:
        images, labels = batch
        with torch.compiler.set_stance("force_eager"):  # compiling the model again would take longer than it saves
            logits = self(images)
        count(self.nats, logits, labels)
        for accuracy in self.accuracies.values():
            accuracy.update(logits, labels)  # type: ignore[operator]

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.measured |= {name: 100 * float(accuracy.compute()) for name, accuracy in self.accuracies.items()}  # type: ignore[operator]


class Language(Task):
    """Prediction of the next character with a cross-entropy loss; the model's state is carried from batch to batch.

    Args:
        model: A model that maps tokens and a state to logits and the next state.
        optimizer: The settings of the optimizer.
        steps: The number of training steps.
        schedule: The learning rate over training; constant if None.
        label_smoothing: The share of a target's weight that is spread over all characters.
        window: How many characters a Transformer-XL looks back in evaluation; None means the model's own window.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="M2R", hidden_size=64)
    >>> task = Language(model, Optimizer(name="adam", lr=1e-3), steps=1000)
    """

    examples = "characters"

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        steps: int,
        schedule: Schedule | None = None,
        label_smoothing: float = 0.0,
        window: int | None = None,
    ) -> None:
        super().__init__(model, optimizer, schedule, steps, label_smoothing)
        self.evaluation_options = {"window": window} if window else {}
        self.state: Any = None
        #: Whether the state has reached its full size.
        self._is_steady = False

    def forward(
        self, tokens: Int[Tensor, "batch time"], state: Any = None, **options: Any
    ) -> tuple[Float[Tensor, "batch time vocab"], Any]:
        logits, state = self.model(tokens, state, **options)
        return logits.float(), _pytree.tree_map(lambda t: t.detach(), state)

    def transfer_batch_to_device(
        self, batch: tuple[Tensor, ...], device: torch.device, dataloader_idx: int
    ) -> tuple[Tensor, ...]:
        """Move everything except ``fresh``, which stays on the CPU, so that reading it does not wait for the device."""
        tokens, targets, fresh = batch
        return tokens.to(device), targets.to(device), fresh

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> Tensor:
        tokens, targets, fresh = batch
        before = None if fresh else self.state
        logits, self.state = self(tokens, before)
        self._is_steady = shapes(before) == shapes(self.state)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=self.label_smoothing)

    def num_examples(self, batch: tuple[Tensor, ...]) -> int:
        return batch[0].numel()

    def steady_inputs(self, batch: tuple[Tensor, ...]) -> tuple[Any, ...] | None:
        tokens, _, fresh = batch
        return (tokens, self.state) if self._is_steady and not fresh else None

    def training_metrics(self, loss: float) -> dict[str, float]:
        return {**super().training_metrics(loss), "train_bpc": loss / math.log(2)}

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._evaluation_state: Any = None
        self._evaluation_shapes: list[torch.Size | None] = []

    def validation_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> None:
        """Evaluate a batch, compiled only if the previous batch had the same shapes: each shape needs a graph."""
        tokens, targets, fresh = batch
        state = None if fresh else self._evaluation_state
        before, self._evaluation_shapes = self._evaluation_shapes, shapes((tokens, state))
        with torch.compiler.set_stance("default" if before == self._evaluation_shapes else "force_eager"):
            logits, self._evaluation_state = self(tokens, state, **self.evaluation_options)
        count(self.nats, logits.flatten(0, 1), targets.flatten())

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self._evaluation_state = None
        self.measured["bpc"] = self.measured["loss"] / math.log(2)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the carried state of all processes, so that the run can continue with another number of processes."""
        axis: Any = self.model.state_batch_axis
        checkpoint["carried"] = _pytree.tree_map(lambda t: _gathered(self, t, axis), self.state)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        axis, rank, world = self.model.state_batch_axis, self.global_rank, self.trainer.world_size
        self.state = _pytree.tree_map(
            lambda t: t.chunk(world, axis)[rank].to(self.trainer.strategy.root_device), checkpoint["carried"]
        )


def count(nats: MeanMetric, logits: Float[Tensor, "rows cls"], targets: Int[Tensor, " rows"]) -> None:
    """Add the mean loss of all rows that are not `IGNORED` to ``nats``, weighted by the number of these rows."""
    rows = (targets != IGNORED).sum()
    total = F.cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORED)
    nats.update(total / rows.clamp(min=1), weight=rows)


def _gathered(task: Task, tensor: Tensor, axis: int) -> Tensor:
    if task.trainer.world_size == 1:
        return tensor
    return torch.cat(list(task.all_gather(tensor)), axis)
