"""The figures of the pages, drawn from the rows in ``results/`` and ``benchmarks/``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from algebranets.lab.bench import figure as speed
from algebranets.lab.bench import rows
from algebranets.lab.drawing import svg
from algebranets.lab.report import pictures
from algebranets.lab.report.study import studies
from algebranets.lab.train import results

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs" / "figures"


def _of_study(name: str, figure: str) -> Callable[[], str]:
    """A figure of the report on a file of results."""

    def draw() -> str:
        (study,) = studies(results.read([ROOT / "results" / f"{name}.jsonl"]))
        drawn = pictures.JOINT[figure](study)
        assert drawn is not None
        return drawn

    return draw


def _of_benchmarks(*names: str) -> Callable[[], str]:
    """A figure of files of benchmarks."""
    return lambda: speed.draw([row for name in names for row in rows.load(ROOT / "benchmarks" / f"{name}.jsonl")])


#: The functions that draw the figures, by name. Each returns an ``<svg>`` element.
FIGURES: dict[str, Callable[[], str]] = {
    "transformer_xl-short": _of_study("transformer_xl-short", "learning"),
    "transformer_xl-small": _of_study("transformer_xl-small", "trade-off"),
    "cifar10-pruned": _of_study("cifar10-pruned", "pruning"),
    "speed-h200": _of_benchmarks(
        *(f"{op}-h200" for op in ("linear", "conv2d", "decode", "depthwise", "models", "peers"))
    ),
}


@cache
def in_page(name: str) -> str:
    """A figure as an ``<svg>`` element, in the colors of the page around it."""
    return FIGURES[name]()


def as_file(name: str) -> str:
    """A figure as the text of an SVG file, which follows the reader's light or dark mode."""
    return svg.standalone(in_page(name))


def description(text: str) -> str:
    """The description of a figure for screen readers. It has all numbers that are drawn."""
    found = re.search(r'aria-label="([^"]*)"', text)
    return found[1] if found else ""
