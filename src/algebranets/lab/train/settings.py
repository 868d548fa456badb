"""The settings of an experiment's optimizer, learning-rate schedule, data and pruning, as frozen dataclasses.

Every field is a setting: ``--set optimizer.lr=0.1`` on the command line changes `Optimizer.lr`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from algebranets import checks
from algebranets.pruning import CRITERIA, SCOPES, UNITS
from algebranets.pruning import SCHEDULES as PRUNING_SCHEDULES

#: Functions that map the finished share of training to a factor of the learning rate, by `Schedule.name`.
SCHEDULES: dict[str, Callable[[Schedule, float], float]] = {
    "constant": lambda _, __: 1.0,
    "steps": lambda s, done: s.factor ** sum(done >= milestone for milestone in s.milestones),
    "linear": lambda s, done: 1 - (1 - s.final) * s.since_warmup(done),
    "cosine": lambda s, done: s.final + (1 - s.final) * (1 + math.cos(math.pi * s.since_warmup(done))) / 2,
}
OPTIMIZERS = ("sgd", "adam", "adamw")
#: The largest learning rate, weight decay and beta. With them, optimizers stay within the range of float32.
MAX_LR, MAX_WEIGHT_DECAY, MAX_BETA = 1e30, 1e6, 1 - 1e-6
MAX_WORKERS = 1024


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes during training.

    Args:
        name: A key of `SCHEDULES`: "constant", "steps", "linear" or "cosine".
        warmup: The share of training during which the rate grows linearly from 0.
        milestones: For "steps": the shares of training after which the rate is multiplied by ``factor``.
        factor: For "steps": the factor at each milestone.
        final: For "linear" and "cosine": the share of the rate that remains at the end.

    >>> schedule = Schedule("linear", warmup=0.2)
    >>> [round(schedule.share(step, 10), 3) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """

    name: str = "constant"
    warmup: float = 0.0
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        checks.fields(self, "schedule")
        checks.one_of("schedule.name", self.name, SCHEDULES)
        for name in ("warmup", "factor", "final"):
            checks.between(f"schedule.{name}", getattr(self, name), 0, 1)
        for milestone in self.milestones:
            checks.between("schedule.milestones", milestone, 0, 1)

    def share(self, step: float, steps: int) -> float:
        """The factor of the learning rate at ``step``, which may lie between two steps, of ``steps``."""
        warm = (step + 1) / (self.warmup * steps) if self.warmup else 1.0
        return min(1.0, warm) * SCHEDULES[self.name](self, step / steps)

    def since_warmup(self, done: float) -> float:
        """The finished share of the training that follows the warm-up; ``done`` is that of all training."""
        return max(0.0, done - self.warmup) / max(1 - self.warmup, 1e-9)


@dataclass(frozen=True)
class Optimizer:
    """The settings of a torch optimizer.

    Args:
        lr: The learning rate before the `Schedule`'s factor.
        name: "sgd", "adam" or "adamw".
        momentum: The momentum of SGD.
        nesterov: For SGD: whether to use Nesterov momentum.
        betas: The betas of Adam and AdamW.
        weight_decay: L2 regularization for SGD and Adam, decoupled for AdamW; norms and biases are not decayed.
        clip: The largest norm of the gradients. Larger gradients are scaled down to it; 0 means no clipping.

    >>> Optimizer(lr=0.1, nesterov=True, weight_decay=5e-4).name
    'sgd'
    """

    lr: float
    name: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, ...] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip: float = 0.0

    def __post_init__(self) -> None:
        checks.fields(self, "optimizer")
        checks.one_of("optimizer.name", self.name, OPTIMIZERS)
        for name, most in (("lr", MAX_LR), ("momentum", 1), ("weight_decay", MAX_WEIGHT_DECAY), ("clip", MAX_LR)):
            checks.between(f"optimizer.{name}", getattr(self, name), 0, most)
        if len(self.betas) != 2 or not all(0 <= beta <= MAX_BETA for beta in self.betas):
            raise ValueError(f"optimizer.betas must be two numbers between 0 and {MAX_BETA}; got {self.betas}.")


@dataclass(frozen=True)
class Images:
    """A data set of images, and how batches are made from it.

    Args:
        name: A key of `algebranets.lab.data.DATASETS`, or the path of a folder of images.
        batch_size: Images in a training batch, over all processes.
        crop: The side of training images, which are random crops of images in memory or random resized crops of image
            files. Image files are also evaluated at this size. 0 means the size of the data set's images.
        padding: The number of black pixels on each side of an image before it is cropped; only for images in memory.
        flip: Whether half of the training images are mirrored.
        workers: The number of processes that read image files.
        eval_batch_size: Images in an evaluation batch.

    >>> Images("cifar10", batch_size=500, crop=24).eval_batch_size
    1000
    """

    name: str
    batch_size: int
    crop: int = 0
    padding: int = 0
    flip: bool = True
    workers: int = 8
    eval_batch_size: int = 1000

    def __post_init__(self) -> None:
        checks.fields(self, "data")
        for name in ("batch_size", "eval_batch_size"):
            checks.whole(f"data.{name}", getattr(self, name), least=1)
        checks.between("data.workers", self.workers, 0, MAX_WORKERS)


@dataclass(frozen=True)
class Texts:
    """A text, and how batches are made from it; a model's state is carried from batch to batch.

    Args:
        name: A key of `algebranets.lab.data.DATASETS`, or the path of a text file.
        batch_size: Rows in a training batch, over all processes.
        length: Characters in a row of a training batch.
        eval_batch_size: Rows in an evaluation batch; each row starts without context.
        eval_length: Characters in a row of an evaluation batch.
        eval_window: How many characters a Transformer-XL looks back in evaluation; 0 means the model's own window.
        fresh_every: The number of training batches after which the model's state is dropped; 0 means only when a pass
            starts.

    >>> Texts("enwik8", batch_size=16, length=512).eval_length
    512
    """

    name: str
    batch_size: int
    length: int
    eval_batch_size: int = 1
    eval_length: int = 512
    eval_window: int = 0
    fresh_every: int = 0

    def __post_init__(self) -> None:
        checks.fields(self, "data")
        for name in ("batch_size", "length", "eval_batch_size", "eval_length"):
            checks.whole(f"data.{name}", getattr(self, name), least=1)
        if self.eval_window < 0:
            raise ValueError(
                f"data.eval_window must be a number of characters, or 0 for the model's own; got {self.eval_window}."
            )
        if self.fresh_every < 0:
            raise ValueError(f"data.fresh_every must be a number of batches, or 0 for never; got {self.fresh_every}.")


@dataclass(frozen=True)
class Pruning:
    """Pruning during training: the arguments of `algebranets.pruning.Pruner`.

    Args:
        sparsity: The share of the weights that is zero at the end; 0 means no pruning.
        begin: The share of training after which pruning starts.
        end: The share of training after which the sparsity no longer changes.
        every: Steps between two updates of the masks.
        schedule: How the sparsity grows: a key of `algebranets.pruning.SCHEDULES`.
        criterion: How the importance of a tuple is measured: a key of `algebranets.pruning.CRITERIA`.
        unit: "tuple" to prune whole tuples, or "component" to prune single numbers.
        scope: "layer" to prune the smallest of each layer, or "global" to prune the smallest of the whole model.
        regrow: Whether pruned weights can come back.
        layers: A pattern of the weights' paths, such as ``stage2.*``; "" means the layers that the paper prunes.

    >>> Pruning(sparsity=0.9).unit
    'tuple'
    """

    sparsity: float = 0.0
    begin: float = 0.2
    end: float = 0.8
    every: int = 100
    schedule: str = "cubic"
    criterion: str = "norm"
    unit: str = "tuple"
    scope: str = "layer"
    regrow: bool = False
    layers: str = ""

    def __post_init__(self) -> None:
        checks.fields(self, "pruning")
        checks.between("pruning.sparsity", self.sparsity, 0, 1)
        checks.one_of("pruning.schedule", self.schedule, PRUNING_SCHEDULES)
        checks.one_of("pruning.criterion", self.criterion, CRITERIA)
        checks.one_of("pruning.unit", self.unit, UNITS)
        checks.one_of("pruning.scope", self.scope, SCOPES)
