"""Models by name."""

from __future__ import annotations

from collections.abc import Callable
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


def create(name: str, **options: Any) -> nn.Module:
    """Create a model by name.

    Args:
        name: A key of `MODELS`.
        options: The arguments of the model's constructor. ``algebra`` is required: an `Algebra` or a name.

    >>> model = create("cifar_resnet", algebra="M2R", num_blocks=1)
    >>> model.algebra.name
    'M2R'
    >>> create("gru_lm", algebra="M2R", hidden=64)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: gru_lm has no option 'hidden'. Did you mean 'hidden_size'? It takes algebra, hidden_size, ...
    """
    make = MODELS[checks.one_of("model", name, MODELS)]
    known = checks.parameters(make)
    given = checks.options(name, options, make)
    return make(**{key: checks.typed(f"{name}'s {key}", value, known[key].annotation) for key, value in given.items()})
