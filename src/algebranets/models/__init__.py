"""The paper's networks, each over any algebra; over R they are the ordinary ones.

>>> import torch, algebranets as an
>>> model = an.models.create("resnet18", algebra="M2R", width=0.5, num_classes=10)
>>> model(torch.randn(2, 3, 32, 32)).shape
torch.Size([2, 10])

Sizes are in real numbers, as everywhere in the library. ``width`` multiplies channels, and the result is rounded to the
nearest whole tuples.
"""

from algebranets.models.cifar_resnet import CifarResNet
from algebranets.models.gru_lm import GRULanguageModel
from algebranets.models.language import bits_per_character, generate, sample
from algebranets.models.mobilenet import MobileNetV1
from algebranets.models.registry import MODELS, create
from algebranets.models.resnet import ResNet
from algebranets.models.transformer_xl import TransformerXL
from algebranets.models.weights import load, publish

__all__ = [
    "MODELS",
    "CifarResNet",
    "GRULanguageModel",
    "MobileNetV1",
    "ResNet",
    "TransformerXL",
    "bits_per_character",
    "create",
    "generate",
    "load",
    "publish",
    "sample",
]
