"""Data sets, loaded by name, and their batches, requested by number.

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

#: What `load` returns: images in memory, a folder of images, or a text.
Data = ImageTensors | ImageFolder | Text


class ImageShape(NamedTuple):
    """The sizes of a data set of images: the number of classes, the channels, and the side in pixels."""

    num_classes: int
    channels: int
    side: int


@dataclass(frozen=True)
class Dataset:
    """A data set that `load` knows by name.

    Args:
        read: The function that reads it from the folder of data sets.
        images: The shape of its images, as the recipes evaluate them; None for a text.
        num_test: The number of its test images; None for a text, or if copies of the data set differ in it.

    >>> DATASETS["cifar100"].images
    ImageShape(num_classes=100, channels=3, side=32)
    """

    read: Callable[[Path], Data]
    images: ImageShape | None = None
    num_test: int | None = None


#: Every data set, by the name that `load` takes.
DATASETS: dict[str, Dataset] = {
    "cifar10": Dataset(cifar.cifar10, ImageShape(10, 3, 32), 10_000),
    "cifar100": Dataset(cifar.cifar100, ImageShape(100, 3, 32), 10_000),
    "mnist": Dataset(idx.mnist, ImageShape(10, 1, 28), 10_000),
    "fashion-mnist": Dataset(idx.fashion_mnist, ImageShape(10, 1, 28), 10_000),
    "imagenet": Dataset(images.imagenet, ImageShape(1000, 3, 224), images.KNOWN["imagenet"][1]),
    "tiny-imagenet": Dataset(images.tiny_imagenet, ImageShape(200, 3, 64)),
    "digits": Dataset(lambda _: builtin.digits(), ImageShape(10, 1, 8), builtin.NUM_TEST_DIGITS),
    "enwik8": Dataset(corpora.enwik8),
    "text8": Dataset(corpora.text8),
    "wikitext-2": Dataset(corpora.wikitext_2),
    "wikitext-103": Dataset(corpora.wikitext_103),
    "wikitext-2-103": Dataset(corpora.wikitext_2_103),
    "python-prose": Dataset(lambda _: builtin.python_prose()),
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
    path = Path(os.path.expanduser(name))  # Path.expanduser would raise an error for an unknown user
    if path.is_dir():
        return ImageFolder(path)
    if path.is_file():
        return corpora.text_file(path)
    raise ValueError(
        f"a data set must be one of {', '.join(DATASETS)}, or the path of a folder of images or of a text file; got "
        f"{name!r}.{checks.did_you_mean(name, DATASETS)}"
    )
