"""Recipes: functions of an algebra and a width that return a complete `Experiment`, by name.

>>> from algebranets.lab import recipes
>>> experiment = recipes.create("cifar10", algebra="H", settings={"model.norm": "whitening"}, seed=1)
>>> experiment.optimizer.weight_decay, experiment.changes
(0.0003, {'model.norm': 'whitening'})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from algebranets import checks
from algebranets.accounting import Account, account
from algebranets.lab import recorded
from algebranets.lab.data import DATASETS
from algebranets.lab.recipes.images import (
    cifar10,
    cifar10_pruned,
    cifar100,
    digits,
    fashion_mnist,
    mnist,
    mobilenet_v1,
    resnet50,
    resnet50_pruned,
    tiny_imagenet_mobilenet,
    tiny_imagenet_resnet50,
)
from algebranets.lab.recipes.text import (
    char_lm,
    char_lm_small,
    gru,
    gru_short,
    text8_transformer_xl,
    transformer_xl,
    transformer_xl_short,
    transformer_xl_small,
    wikitext_2_gru,
)
from algebranets.lab.train import Experiment, Images

#: Every recipe by its name: the paper's experiments, related experiments, and small ones.
RECIPES: dict[str, Callable[[str, float], Experiment]] = {
    "resnet50": resnet50,
    "mobilenet_v1": mobilenet_v1,
    "resnet50-pruned": resnet50_pruned,
    "cifar10": cifar10,
    "cifar10-pruned": cifar10_pruned,
    "transformer_xl": transformer_xl,
    "transformer_xl-short": transformer_xl_short,
    "transformer_xl-small": transformer_xl_small,
    "gru": gru,
    "gru-short": gru_short,
    "cifar100": cifar100,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "tiny-imagenet-resnet50": tiny_imagenet_resnet50,
    "tiny-imagenet-mobilenet": tiny_imagenet_mobilenet,
    "text8-transformer_xl": text8_transformer_xl,
    "wikitext-2-gru": wikitext_2_gru,
    "digits": digits,
    "char-lm": char_lm,
    "char-lm-small": char_lm_small,
}


def create(
    name: str, algebra: str = "R", width: float = 1.0, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Experiment:
    """Create an experiment from a recipe.

    Args:
        name: A key of `RECIPES`.
        algebra: The algebra's name, a constructor such as ``clifford(2, 0)``, or the path of a table file.
        width: The multiplier of the network's sizes; the results are rounded to whole tuples.
        seed: Decides initial weights, batches and dropout.
        settings: Settings that differ from the recipe's, by dotted name.

    >>> create("digits", algebra="M2R", settings={"optimizer.lr": 0.1}).optimizer.lr
    0.1
    """
    checks.one_of("recipe", name, RECIPES)
    checks.positive("width", width)
    return replace(RECIPES[name](algebra, width), seed=seed).changed(settings or {})


def cost(experiment: Experiment) -> Account:
    """Count the parameters and multiply-adds of an experiment's model for one image or token, without loading data.

    Args:
        experiment: An experiment on one of `algebranets.lab.data.DATASETS`.

    >>> cost(create("digits", algebra="M2R")).parameters
    34714
    """
    shape = DATASETS[experiment.data.name].images
    sizes = {"num_classes": shape.num_classes, "in_channels": shape.channels} if shape else {}
    with torch.device("meta"):
        model: Any = replace(experiment, model={**experiment.model, **sizes}).build()
        inputs = model.example_inputs(shape.side) if shape else model.example_inputs()
    return account(model, *inputs)


def describe(name: str, algebra: str) -> recorded.Recipe:
    """Describe a recipe over an algebra: its data, the length of training, and the cost of its model.

    Args:
        name: A key of `RECIPES`.
        algebra: The algebra's name, a constructor, or the path of a table file.

    >>> describe("digits", "M2R").length
    '20 epochs'
    """
    experiment = create(name, algebra)
    if isinstance(experiment.data, Images):
        length = f"{experiment.epochs:g} epochs"
    else:
        length = f"{experiment.steps:,} steps" if experiment.steps else f"{experiment.budget / 60:g} min"
    counted, shape = cost(experiment), DATASETS[experiment.data.name].images
    side = shape.side if shape else None
    return recorded.Recipe(experiment.data.name, side, length, counted.parameters, counted.multiplies)
