"""What every figure shares: colours and marks of the algebras, panels, legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from algebranets.algebra import CATALOGUE
from algebranets.lab.report.groups import Study

#: Drawn in this colour, lines and letters take the page's own.
INK = "#010203"

#: Letters stay letters, so that the page's font is used and text can be found; a dollar sign is no mathematics.
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

#: By the catalogue's order, the real network in ink. All stand out from light and dark pages; marks and dashes say the
#: same for who sees no colours.
COLOURS = (
    INK, "#2f7fc4", "#d55e00", "#b5569a", "#8d7a1c", "#6a72d9", "#009e73", "#a0695a", "#7b8794", "#c44e52",
)  # fmt: skip
_MARKERS = ("o", "s", "D", "p", "v", "P", "^", "<", ">", "X")
#: For an algebra's first variant, its second and so on.
_LINES: tuple[Any, ...] = (
    "-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 4)),
    (0, (8, 2, 3, 2)), (0, (2, 2)), (0, (3, 6)),
)  # fmt: skip
_FILLS: tuple[Any, ...] = ("full", "bottom", "left", "top", "right")


def drawing() -> AbstractContextManager[None]:
    """Where figures are made and written: matplotlib's settings are ours inside, and untouched outside."""
    return matplotlib.rc_context(_SETTINGS)


def _place(study: Study, algebra: str) -> int:
    names = list(CATALOGUE)
    if algebra in names:
        return names.index(algebra)
    # Algebras of one's own take what the study leaves over; R's ink is none of it.
    present = list(dict.fromkeys(group.algebra for group in study.groups))
    own = [name for name in present if name not in names]
    free = [place for place, name in enumerate(names) if place and name not in present] or list(range(1, len(names)))
    return free[own.index(algebra) % len(free)]


def line_style(study: Study, algebra: str, variant: int = 0) -> dict[str, Any]:
    """An algebra's colour, and dashes for its variants."""
    return {"color": COLOURS[_place(study, algebra)], "linestyle": _LINES[variant % len(_LINES)]}


def mark_style(study: Study, algebra: str, variant: int = 0) -> dict[str, Any]:
    """An algebra's mark, half-filled for its variants."""
    return {
        "marker": _MARKERS[_place(study, algebra)],
        "markersize": 7.5,
        "fillstyle": _FILLS[variant % len(_FILLS)],
        "markerfacecoloralt": "none",
    }


def panels(number: int) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side, each of a size that can be read on a phone."""
    figure = Figure(figsize=(4.9 * number, 3.9), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Above the panels, where it covers nothing; marks without their error bars."""
    handles = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    room = 68 * len(figure.axes)
    lines = math.ceil(len(labels) / max(1, min(5, room // (max(map(len, labels)) + 7))))
    columns = math.ceil(len(labels) / lines)
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, fontsize=9, handlelength=2.2, columnspacing=1.2
    )
