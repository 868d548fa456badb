"""Models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from algebranets import checks
from algebranets.models.cifar_resnet import CifarResNet
from algebranets.models.gru_lm import GRULanguageModel
from algebranets.models.mobilenet import MobileNetV1
from algebranets.models.resnet import resnet18, resnet34, resnet50, resnet101
from algebranets.models.transformer_xl import TransformerXL

#: Every model, by the name that `create` takes.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "mobilenet_v1": MobileNetV1,
    "cifar_resnet": CifarResNet,
    "transformer_xl": TransformerXL,
    "gru_lm": GRULanguageModel,
}


def build(name: str, options: Mapping[str, Any]) -> nn.Module:
    """Create a model with random weights.

    Args:
        name: A key of `MODELS`.
        options: The arguments of the model's constructor. ``algebra`` is required.
    """
    make = MODELS[checks.one_of("model", name, MODELS)]
    known = checks.parameters(make)
    given = checks.options(name, options, make)
    return make(**{key: checks.typed(f"{name}'s {key}", value, known[key].annotation) for key, value in given.items()})
