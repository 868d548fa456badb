"""The figures of the pages, drawn from the rows in ``results/`` and ``benchmarks/``."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from xml.etree import ElementTree

from algebranets.lab.bench import figure as speed
from algebranets.lab.bench import rows
from algebranets.lab.drawing import svg
from algebranets.lab.report import pictures
from algebranets.lab.report.study import studies
from algebranets.lab.train import results

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs" / "figures"
#: The largest distance, in points, between positions that count as equal, because versions of matplotlib differ.
TOLERANCE = 1.5
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_POSITIONS = ("d", "height", "transform", "viewBox", "width", "x", "y")
_NAMES = ("clip-path", "href", "id")


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


def difference(first: str, second: str) -> str:
    """Say where two SVG files first differ in what they show, or return an empty text.

    Elements, texts and styles must be equal, and positions nearly equal. Names that matplotlib makes up are ignored.

    >>> difference('<svg><text x="1.2">C</text></svg>', '<svg><text x="1.5">C</text></svg>')
    ''
    >>> difference('<svg><text x="1.2">C</text></svg>', '<svg><text x="4.5">C</text></svg>')
    "text 'C' at x=1.2, and text 'C' at x=4.5"
    """
    for one, other in zip_longest(_elements(first), _elements(second), fillvalue=("no element", "")):
        same_shape = one[0] == other[0] and _NUMBER.sub("0", one[1]) == _NUMBER.sub("0", other[1])
        pairs = zip(_NUMBER.findall(one[1]), _NUMBER.findall(other[1]), strict=False)
        if not same_shape or any(abs(float(number) - float(close)) > TOLERANCE for number, close in pairs):
            return f"{one[0]} at {one[1]}, and {other[0]} at {other[1]}"
    return ""


def _elements(text: str) -> list[tuple[str, str]]:
    """Each element of an SVG file: what it is, and where it is."""
    found = []
    for element in ElementTree.fromstring(text).iter():
        values = {name.rpartition("}")[2]: value for name, value in sorted(element.items())}
        style = [f"{name}={value!r}" for name, value in values.items() if name not in (*_POSITIONS, *_NAMES)]
        words = [repr(element.text)] if element.text and element.text.strip() else []
        place = " ".join(f"{name}={value}" for name, value in values.items() if name in _POSITIONS)
        found.append((" ".join([element.tag.rpartition("}")[2], *style, *words]), place))
    return found
