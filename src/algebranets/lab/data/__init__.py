"""Data sets by name, and their batches by number.

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
from difflib import get_close_matches
from pathlib import Path

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
    "ImageTensors",
    "Share",
    "Text",
    "generator",
    "load",
]

Data = ImageTensors | ImageFolder | Text


@dataclass(frozen=True)
class Dataset:
    """A data set that `load` knows: what it is in a line, and how it is read from where data sets are."""

    description: str
    read: Callable[[Path], Data]
    #: Whether it is there already, with what is installed.
    is_included: bool = False


#: Every data set by its name.
DATASETS: dict[str, Dataset] = {
    "cifar10": Dataset("50,000 + 10,000 photographs, 32 x 32, 10 classes", cifar.cifar10),
    "cifar100": Dataset("50,000 + 10,000 photographs, 32 x 32, 100 classes", cifar.cifar100),
    "mnist": Dataset("60,000 + 10,000 handwritten digits, 28 x 28, grey", idx.mnist),
    "fashion-mnist": Dataset("60,000 + 10,000 pieces of clothing, 28 x 28, grey, 10 classes", idx.fashion_mnist),
    "imagenet": Dataset("1,281,167 + 50,000 photographs of any size, 1,000 classes", images.imagenet),
    "tiny-imagenet": Dataset("100,000 + 10,000 photographs, 64 x 64, 200 classes", images.tiny_imagenet),
    "digits": Dataset(
        "1,437 + 360 handwritten digits, 8 x 8, grey; comes with scikit-learn", lambda _: builtin.digits(), True
    ),
    "enwik8": Dataset("100,000,000 bytes of a Wikipedia, 90 + 5 + 5 million", corpora.enwik8),
    "text8": Dataset("100,000,000 letters of a Wikipedia, 90 + 5 + 5 million", corpora.text8),
    "wikitext-2": Dataset("good articles of a Wikipedia, 11 + 1 + 1 million characters", corpora.wikitext_2),
    "wikitext-103": Dataset("good articles of a Wikipedia, 540 + 1 + 1 million characters", corpora.wikitext_103),
    "wikitext-2-103": Dataset("trains on WikiText-2's text, judged on WikiText-103's", corpora.wikitext_2_103),
    "python-prose": Dataset(
        "Python's own reference, half a million characters; comes with it", lambda _: builtin.python_prose(), True
    ),
}


def load(name: str, root: Path | str | None = None) -> Data:
    """The data set of this name, or the folder of images or the text file at this path.

    ``root`` is where data sets are; without it ``ALGEBRANETS_DATA`` of the environment says it, or it is ``./data``.

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
    near = get_close_matches(name, DATASETS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"unknown data set {name!r}.{hint} It must be one of {', '.join(DATASETS)}, or the path of a folder of images "
        "or of a text file."
    )
