"""The style that all figures share: colors and marks of the algebras, panels, legends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from algebranets.algebra import CATALOGUE

#: A placeholder color, which `svg.render` replaces by the text color of the page.
INK = "#010203"

#: Text stays text, so that the page's font is used and a browser can search it. Dollar signs do not start formulas.
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "algebranets",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
}

#: The colors of the algebras, in the catalogue's order; R has the text color. All colors are visible on light and dark
#: pages. Marks and dashes differ too, for readers who cannot tell the colors apart.
COLORS = (
    INK, "#2f7fc4", "#d55e00", "#b5569a", "#8d7a1c", "#6a72d9", "#009e73", "#a0695a", "#7b8794", "#c44e52",
)  # fmt: skip
_MARKERS = ("o", "s", "D", "p", "v", "P", "^", "<", ">", "X")
#: Line styles of an algebra's first variant, its second and so on.
_LINES: tuple[Any, ...] = (
    "-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 4)),
    (0, (8, 2, 3, 2)), (0, (2, 2)), (0, (3, 6)),
)  # fmt: skip
_FILLS: tuple[Any, ...] = ("full", "bottom", "left", "top", "right")


def house_style() -> AbstractContextManager[None]:
    """A context in which matplotlib has our settings. Make and save figures inside it."""
    return matplotlib.rc_context(_SETTINGS)


def places(algebras: Iterable[str]) -> dict[str, int]:
    """The place of each algebra in `COLORS` and in the list of marks.

    Algebras of the catalogue always have their place in the catalogue. Other algebras get the remaining places, except
    that of R.

    >>> places(["R", "M2R", "mine"])
    {'R': 0, 'M2R': 2, 'mine': 1}
    """
    present, names = set(algebras), list(CATALOGUE)
    free = [place for place, name in enumerate(names) if place and name not in present] or list(range(1, len(names)))
    others = sorted(present - set(names))
    return {name: place for place, name in enumerate(names) if name in present} | {
        name: free[number % len(free)] for number, name in enumerate(others)
    }


def line_style(place: int, variant: int = 0) -> dict[str, Any]:
    """The color of an algebra, and the dashes of one of its variants, as arguments of matplotlib.

    Args:
        place: The algebra's place, from `places`.
        variant: The number of the line among the lines of this algebra.
    """
    return {"color": COLORS[place], "linestyle": _LINES[variant % len(_LINES)]}


def mark_style(place: int, variant: int = 0) -> dict[str, Any]:
    """The mark of an algebra, partly filled for its variants, as arguments of matplotlib.

    Args:
        place: The algebra's place, from `places`.
        variant: The number of the line among the lines of this algebra.
    """
    return {
        "marker": _MARKERS[place],
        "markersize": 7.5,
        "fillstyle": _FILLS[variant % len(_FILLS)],
        "markerfacecoloralt": "none",
    }


def panels(number: int) -> tuple[Figure, list[Axes]]:
    """A figure with ``number`` panels side by side. Each panel is readable on a phone."""
    figure = Figure(figsize=(4.9 * number, 3.9), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Draw a legend above the panels. Marks are shown without error bars."""
    handles = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    room = 68 * len(figure.axes)
    lines = math.ceil(len(labels) / max(1, min(5, room // (max(map(len, labels)) + 7))))
    columns = math.ceil(len(labels) / lines)
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, fontsize=9, handlelength=2.2, columnspacing=1.2
    )
