"""The plan of a run: an experiment with its data, batches, task, model and number of steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from algebranets.lab import data as datasets
from algebranets.lab.data import Batches, ImageFolder, ImageTensors, Share, Text
from algebranets.lab.train.experiment import MAX_STEPS, Experiment
from algebranets.lab.train.length import Length
from algebranets.lab.train.settings import Images, Texts
from algebranets.lab.train.tasks import Classification, Language, Task
from algebranets.pruning import Pruner

SettingsT = TypeVar("SettingsT", bound=Images | Texts)
DataT = TypeVar("DataT", bound=ImageTensors | ImageFolder | Text)


class Plan(ABC, Generic[SettingsT, DataT]):
    """The data, model and task of a run.

    Args:
        experiment: The experiment. The attribute ``fitted`` is the experiment with the model sizes that the data needs.
        settings: The settings for making batches from the data.
        data: The data set.
    """

    def __init__(self, experiment: Experiment, settings: SettingsT, data: DataT) -> None:
        self.experiment, self.settings, self.data = experiment, settings, data
        self.fitted = replace(experiment, model={**experiment.model, **self.model_sizes()})

    @cached_property
    def per_epoch(self) -> int:
        """The number of batches in one pass over the data."""
        return len(self.training("cpu", Share()))

    @property
    def steps(self) -> int:
        """The number of batches to train on."""
        steps = self.experiment.steps or max(1, round(self.experiment.epochs * self.per_epoch))
        if steps > MAX_STEPS:
            raise ValueError(
                f"a run must have at most {MAX_STEPS:,} steps; {self.experiment.epochs:g} epochs of "
                f"{self.per_epoch:,} batches are more."
            )
        return steps

    @property
    def length(self) -> Length:
        """The number of steps, and how the budget changed it."""
        return Length(self.steps, self.experiment.replanned_at, self.experiment.replanned_from)

    def replan(self, steps: int, step: int) -> None:
        """Change the number of steps, in place.

        Args:
            steps: The new number of steps.
            step: The number of steps that are already trained.
        """
        self.experiment = self.experiment.replanned(steps, step)
        self.fitted = replace(self.experiment, model=self.fitted.model)

    def evaluate_every(self, step: int = 0) -> int:
        """The number of batches between two evaluations, around ``step``."""
        return self.length.evaluate_every(step, self.experiment.evaluations)

    def build(self) -> nn.Module:
        """Build the model, with initial weights from the experiment's seed."""
        torch.manual_seed(self.experiment.seed)
        return self.fitted.build()

    def is_evaluated(self, step: int) -> bool:
        """Whether the model is evaluated after this step."""
        return step % self.evaluate_every(step) == 0 or step == self.steps

    def pruner(self, model: nn.Module) -> Pruner | None:
        """The pruner of the model, or None if the experiment does not prune."""
        p = self.experiment.pruning
        if not p.sparsity:
            return None
        options = {f.name: getattr(p, f.name) for f in fields(p) if f.name != "sparsity"}
        return Pruner(model, p.sparsity, self.steps, **options)

    @abstractmethod
    def model_sizes(self) -> dict[str, int]:
        """The model options that are determined by the data."""

    @abstractmethod
    def training(self, device: torch.device | str, share: Share) -> Batches:
        """The batches to train on; ``share`` says which rows this process takes."""

    @abstractmethod
    def evaluation(self, device: torch.device | str, share: Share) -> Batches:
        """The batches to evaluate on; ``share`` says which rows this process takes."""

    @abstractmethod
    def task(self, model: nn.Module) -> Task:
        """The Lightning module that trains the model."""

    @abstractmethod
    def example_inputs(self, model: Any) -> tuple[Any, ...]:
        """The model's arguments for one input, for `account`."""

    def _eval_batch_size(self, share: Share) -> int:
        """The evaluation batch size, rounded up to a multiple of the number of processes."""
        return math.ceil(self.settings.eval_batch_size / share.world) * share.world


class ImagePlan(Plan[Images, ImageTensors | ImageFolder]):
    """A plan for the classification of images."""

    def model_sizes(self) -> dict[str, int]:
        return {"num_classes": self.data.num_classes, "in_channels": self.data.channels}

    def training(self, device: torch.device | str, share: Share) -> Batches:
        s = self.settings
        return self.data.training(
            s.batch_size,
            crop=s.crop or None,
            padding=s.padding,
            flip=s.flip,
            workers=s.workers,
            seed=self.experiment.seed,
            device=device,
            share=share,
        )

    def evaluation(self, device: torch.device | str, share: Share) -> Batches:
        size, crop = self._eval_batch_size(share), self.settings.crop or None
        return self.data.evaluation(size, workers=self.settings.workers, device=device, share=share, crop=crop)

    def task(self, model: nn.Module) -> Task:
        e = self.experiment
        return Classification(model, self.data.num_classes, e.optimizer, self.steps, e.schedule, e.label_smoothing)

    def example_inputs(self, model: Any) -> tuple[Any, ...]:
        """One image of the size in evaluation: image files are cropped to ``crop``, images in memory stay whole."""
        cut = self.settings.crop if isinstance(self.data, ImageFolder) else 0
        return model.example_inputs(cut or self.data.image_size)


class TextPlan(Plan[Texts, Text]):
    """A plan for a language model, evaluated on the validation part of its text."""

    def model_sizes(self) -> dict[str, int]:
        return {"vocab_size": self.data.vocab_size}

    def training(self, device: torch.device | str, share: Share) -> Batches:
        s = self.settings
        return self.data.training(
            s.batch_size,
            s.length,
            fresh_every=s.fresh_every,
            seed=self.experiment.seed,
            device=device,
            share=share,
        )

    def evaluation(self, device: torch.device | str, share: Share) -> Batches:
        size = self._eval_batch_size(share)
        return self.data.evaluation(size, self.settings.eval_length, device=device, share=share)

    def task(self, model: nn.Module) -> Task:
        e = self.experiment
        window = min(self.settings.eval_window, len(self.data.valid)) or None
        return Language(model, e.optimizer, self.steps, e.schedule, e.label_smoothing, window)

    def example_inputs(self, model: Any) -> tuple[Any, ...]:
        return model.example_inputs()


def make(experiment: Experiment, root: str) -> ImagePlan | TextPlan:
    """Load the data of an experiment and make its plan.

    Args:
        experiment: The experiment.
        root: The folder of data sets; "" means the default of `algebranets.lab.data.load`.
    """
    settings, data = experiment.data, datasets.load(experiment.data.name, root or None)
    if isinstance(settings, Images) and not isinstance(data, Text):
        return ImagePlan(experiment, settings, data)
    if isinstance(settings, Texts) and isinstance(data, Text):
        return TextPlan(experiment, settings, data)
    kind = "images" if isinstance(settings, Images) else "a text"
    raise ValueError(f"{experiment.recipe} trains on {kind}; data.name={settings.name!r} is {data!r}.")
