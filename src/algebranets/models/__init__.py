"""The paper's networks over any algebra. Over R they are the ordinary networks.

>>> import torch, algebranets as an
>>> model = an.models.create("resnet18", algebra="M2R", width=0.5, num_classes=10)
>>> model(torch.randn(2, 3, 32, 32)).shape
torch.Size([2, 10])

Sizes count real numbers, as everywhere in the library. ``width`` multiplies the numbers of channels, which are rounded
to the nearest whole number of tuples.
"""

from algebranets.models.cifar_resnet import CifarResNet
from algebranets.models.creation import create
from algebranets.models.gru_lm import GRULanguageModel
from algebranets.models.language import bits_per_character, generate, sample
from algebranets.models.mobilenet import MobileNetV1
from algebranets.models.registry import MODELS
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
