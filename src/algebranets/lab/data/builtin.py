"""Data sets that need no download: scikit-learn's digits and Python's own reference."""

from __future__ import annotations

from importlib import import_module

import torch

from algebranets.lab.data.corpora import split
from algebranets.lab.data.tensors import ImageTensors
from algebranets.lab.data.text import Text

#: The number of test digits: the last of scikit-learn's 1,797 digits. The digits are sorted by writer, so most test
#: digits are by people who wrote no training digits.
NUM_TEST_DIGITS = 360


def digits() -> ImageTensors:
    """scikit-learn's handwritten digits, 8 x 8 pixels, in 17 shades of gray.

    >>> digits()
    <digits: 1,437 + 360 images of 1 x 8 x 8, 10 classes>
    """
    try:
        datasets = import_module("sklearn.datasets")
    except ImportError:
        raise ValueError("digits are part of scikit-learn, which is not installed: pip install scikit-learn.") from None
    bunch = datasets.load_digits()
    images = torch.tensor(bunch.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.tensor(bunch.target).long()
    cut = len(images) - NUM_TEST_DIGITS
    classes = tuple("0123456789")
    return ImageTensors("digits", images[:cut], labels[:cut], images[cut:], labels[cut:], classes)


def python_prose() -> Text:
    """The language reference that ships with Python, the text that ``help("lambda")`` shows.

    >>> data = python_prose()
    >>> len(data.train) > 300_000
    True
    """
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        raise ValueError(
            "python-prose is the text that Python's help() prints, the module pydoc_data, which this Python lacks: "
            "install all of its standard library."
        ) from None
    prose = "\n".join(topics.values()).encode()
    return split("python-prose", torch.frombuffer(bytearray(prose), dtype=torch.uint8))
