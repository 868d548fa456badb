"""Data sets by name, as batches by number.

>>> from algebranets.lab import data
>>> digits = data.load("digits")
>>> digits
<digits: 1,437 + 360 images of 1 x 8 x 8, 10 classes>
>>> batches = digits.training(batch_size=100, padding=1, seed=0)
>>> images, labels = next(batches.iterate(1_000, 1_001))  # batch number 1,000, whatever came before
>>> images.shape, labels.shape
(torch.Size([100, 1, 8, 8]), torch.Size([100]))
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from algebranets import checks
from algebranets.lab.data import builtin, cifar, corpora, idx, images
from algebranets.lab.data.batches import IGNORED, Batch, Batches, Share, generator
from algebranets.lab.data.images import ImageFolder
from algebranets.lab.data.sources import data_root
from algebranets.lab.data.tensors import ImageTensors
from algebranets.lab.data.text import Text

__all__ = [
    "DATASETS",
    "IGNORED",
    "Batch",
    "Batches",
    "Data",
    "Dataset",
    "ImageFolder",
    "ImageShape",
    "ImageTensors",
    "Share",
    "Text",
    "generator",
    "load",
]

Data = ImageTensors | ImageFolder | Text


class ImageShape(NamedTuple):
    """What a network must know of a data set of images: the number of classes, the channels, and the side in pixels."""

    num_classes: int
    channels: int
    side: int


@dataclass(frozen=True)
class Dataset:
    """A data set that `load` knows by name.

    Args:
        description: What it is, in a line.
        read: The function that reads it from the folder of data sets.
        images: The shape of its images, as the recipes evaluate them; None for a text.
        is_included: Whether it needs no download.

    >>> DATASETS["cifar100"].images
    ImageShape(num_classes=100, channels=3, side=32)
    """

    description: str
    read: Callable[[Path], Data]
    images: ImageShape | None = None
    is_included: bool = False


#: Every data set, by the name that `load` takes.
DATASETS: dict[str, Dataset] = {
    "cifar10": Dataset("50,000 + 10,000 photographs, 32 x 32, 10 classes", cifar.cifar10, ImageShape(10, 3, 32)),
    "cifar100": Dataset("50,000 + 10,000 photographs, 32 x 32, 100 classes", cifar.cifar100, ImageShape(100, 3, 32)),
    "mnist": Dataset("60,000 + 10,000 handwritten digits, 28 x 28, gray", idx.mnist, ImageShape(10, 1, 28)),
    "fashion-mnist": Dataset(
        "60,000 + 10,000 pieces of clothing, 28 x 28, gray, 10 classes", idx.fashion_mnist, ImageShape(10, 1, 28)
    ),
    "imagenet": Dataset(
        "1,281,167 + 50,000 photographs of any size, 1,000 classes", images.imagenet, ImageShape(1000, 3, 224)
    ),
    "tiny-imagenet": Dataset(
        "100,000 + 10,000 photographs, 64 x 64, 200 classes", images.tiny_imagenet, ImageShape(200, 3, 64)
    ),
    "digits": Dataset(
        "1,437 + 360 handwritten digits, 8 x 8, gray; part of scikit-learn",
        lambda _: builtin.digits(),
        ImageShape(10, 1, 8),
        is_included=True,
    ),
    "enwik8": Dataset("100,000,000 bytes of a Wikipedia, 90 + 5 + 5 million", corpora.enwik8),
    "text8": Dataset("100,000,000 letters of a Wikipedia, 90 + 5 + 5 million", corpora.text8),
    "wikitext-2": Dataset("good articles of a Wikipedia, 11 + 1 + 1 million characters", corpora.wikitext_2),
    "wikitext-103": Dataset("good articles of a Wikipedia, 540 + 1 + 1 million characters", corpora.wikitext_103),
    "wikitext-2-103": Dataset("WikiText-2's training text, WikiText-103's other texts", corpora.wikitext_2_103),
    "python-prose": Dataset(
        "Python's own reference, half a million characters; part of Python",
        lambda _: builtin.python_prose(),
        is_included=True,
    ),
}


def load(name: str, root: Path | str | None = None) -> Data:
    """Load a data set.

    Args:
        name: A key of `DATASETS`, or the path of a folder of images or of a text file.
        root: The folder of data sets; by default ``ALGEBRANETS_DATA`` of the environment, or ``./data``.

    >>> load("python-prose")  # doctest: +ELLIPSIS
    <python-prose: ... characters>
    """
    if name in DATASETS:
        return DATASETS[name].read(data_root(root))
    path = Path(os.path.expanduser(name))  # which leaves an unknown user alone
    if path.is_dir():
        return ImageFolder(path)
    if path.is_file():
        return corpora.text_file(path)
    raise ValueError(
        f"a data set must be one of {', '.join(DATASETS)}, or the path of a folder of images or of a text file; got "
        f"{name!r}.{checks.did_you_mean(name, DATASETS)}"
    )
