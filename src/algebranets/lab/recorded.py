"""Recorded counts: what `account` counted for the recipes and the paper's networks, read without torch.

Counting takes up to a second a network, and importing torch takes seconds. ``recorded.json`` has the counts that
`algebranets recipes` and `algebranets paper` print, and the names that the shell completes. ``python tools/record.py``
writes it, and tests/test_recorded.py compares it with what `account` counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Counts:
    """The cost of a network for one image or token.

    >>> networks()["resnet50 algebra=R width=1.0"].parameters
    25557032

    Args:
        parameters: The number of parameters, in real numbers.
        statistics: The number of moving statistics, in real numbers.
        multiplies: The number of real multiply-adds.
        operations: The operations as the paper counts them; None if its count is that of the multiply-adds.
    """

    parameters: int
    statistics: int
    multiplies: int
    operations: float | None


@dataclass(frozen=True)
class Recipe:
    """A recipe over one algebra: the data, the length of training, and the cost of the model.

    >>> recipes()["digits over M2R"].parameters
    34714

    Args:
        data: The name of the data set.
        side: The height and width of its images, in pixels; None if it is a text.
        length: The length of training, such as ``"180 epochs"``.
        parameters: The number of parameters, in real numbers.
        multiplies: The number of real multiply-adds for one image or token.
    """

    data: str
    side: int | None
    length: str
    parameters: int
    multiplies: int


def network_name(model: str, size: int | None, options: Mapping[str, Any]) -> str:
    """The name under which the counts of a network are recorded.

    Args:
        model: The name of the model.
        size: The height and width of its image, if it is not the default.
        options: The options of the model.

    >>> network_name("cifar_resnet", 8, {"norm": "batch", "algebra": "C"})
    'cifar_resnet algebra=C norm=batch size=8'
    """
    parts = [f"{key}={options[key]}" for key in sorted(options)] + ([] if size is None else [f"size={size}"])
    return " ".join([model, *parts])


def networks() -> dict[str, Counts]:
    """The recorded counts of the paper's networks, by `network_name`."""
    return {name: Counts(**counts) for name, counts in _read()["networks"].items()}


def recipes() -> dict[str, Recipe]:
    """The recorded recipes, by names such as ``"digits over M2R"``."""
    return {name: Recipe(**recipe) for name, recipe in _read()["recipes"].items()}


def recipe_names() -> list[str]:
    """The names of all recipes."""
    return list(dict.fromkeys(name.partition(" over ")[0] for name in _read()["recipes"]))


def model_names() -> list[str]:
    """The names of all models."""
    return list(_read()["models"])


@cache
def _read() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))
