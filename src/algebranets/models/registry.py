"""Models by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from torch import nn

from algebranets.models.cifar_resnet import CifarResNet
from algebranets.models.gru_lm import GRULanguageModel
from algebranets.models.mobilenet import MobileNetV1
from algebranets.models.resnet import resnet18, resnet34, resnet50, resnet101
from algebranets.models.transformer_xl import TransformerXL

#: Every model by the name `create` knows it by.
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

_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}


def create(name: str, **options: Any) -> nn.Module:
    """The model of this name; ``options`` are its constructor's arguments, ``algebra`` among them."""
    if name not in MODELS:
        near = get_close_matches(name, MODELS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown model {name!r}.{hint} It must be one of {', '.join(MODELS)}.")
    known = inspect.signature(MODELS[name]).parameters
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name} has no option {option!r}.{hint} It takes {', '.join(known)}.")
        annotation = str(known[option].annotation)
        value = options[option]
        is_of_type = isinstance(value, _TYPES.get(annotation, object))
        if not is_of_type or (isinstance(value, bool) and annotation in ("int", "float")):
            raise ValueError(f"{name}'s {option} must be {annotation}; got {options[option]!r}.")
    return MODELS[name](**options)
