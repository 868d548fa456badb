"""Every experiment by name: functions of an algebra and a width that return a complete `Experiment`.

>>> from algebranets.lab import recipes
>>> experiment = recipes.create("cifar10", algebra="H", settings={"model.norm": "whitening"}, seed=1)
>>> experiment.optimizer.weight_decay, experiment.changes
(0.0003, {'model.norm': 'whitening'})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from algebranets.lab.recipes.images import cifar10, cifar10_pruned, digits, mobilenet_v1, resnet50, resnet50_pruned
from algebranets.lab.recipes.text import (
    char_lm,
    gru,
    gru_short,
    transformer_xl,
    transformer_xl_short,
    transformer_xl_small,
)
from algebranets.lab.train import Experiment

#: Every recipe by the name `create` and the command line know it by.
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
    "digits": digits,
    "char-lm": char_lm,
}


def create(
    name: str, algebra: str = "R", width: float = 1.0, seed: int = 0, settings: Mapping[str, Any] | None = None
) -> Experiment:
    """The recipe of this name over an algebra, with other ``settings`` where given."""
    if name not in RECIPES:
        near = get_close_matches(name, RECIPES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown recipe {name!r}.{hint} It must be one of {', '.join(RECIPES)}.")
    if not 0 < width < math.inf:
        raise ValueError(f"width must be positive and finite, as it multiplies the network's sizes; got {width}.")
    return replace(RECIPES[name](algebra, width), seed=seed).changed(settings or {})
