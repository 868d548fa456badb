"""A figure of measured rows: one panel per op, one line per shape, one mark per algebra.

Ops with a single shape, such as whole networks, share a panel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algebranets.lab.bench.rows import Row
from algebranets.lab.drawing.style import COLORS, INK, house_style, legend, places
from algebranets.lab.drawing.svg import render

#: The height of a line, and of the space around the lines of a panel, in inches.
_LINE, _AROUND = 0.34, 0.95
#: The share of a line's height over which its marks are spread, in the legend's order.
_SPREAD = 0.56


def draw(rows: Sequence[Row]) -> str:
    """Draw the speed-ups of rows, and return an ``<svg>`` element of a page.

    Args:
        rows: The rows, from `bench.load`.
    """
    if not rows:
        raise ValueError("there must be rows to draw; the files have none.")
    colors = {name: COLORS[place] for name, place in places(row.algebra for row in rows).items()}
    panels = _panels(rows)
    with house_style():
        heights = [_AROUND + _LINE * len(panel) for panel in panels.values()]
        figure = Figure(figsize=(7.6, sum(heights) + 0.4), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights})[:, 0]
        for axis, (title, panel) in zip(axes, panels.items(), strict=True):
            _draw_panel(axis, panel, colors)
            _write_title(axis, title)
        axes[-1].set_xlabel("times as fast (more is better)")
        _draw_legend(figure, colors, any(row.limit for row in rows))
        words = [f"{row.op} {row.shape} over {row.algebra} {row.speedup:.2f}" for row in rows]
        return render(figure, "speed", f"Times as fast: {'; '.join(words)}.")


def _panels(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """The panels by title. Each panel has lines by name, and each line has its rows."""
    shapes: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        shapes.setdefault((row.op, row.against), set()).add(_shape(row))
    panels: dict[str, dict[str, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: len(shapes[row.op, row.against]) == 1):
        against, line = row.against, _shape(row)
        title = f"{row.op}: {against}'s time over ours"
        if len(shapes[row.op, against]) == 1:
            is_torch = against == "torch.nn"
            title = f"{against if is_torch else 'another library'}'s time over ours"
            line = f"{row.op if is_torch else against}, {line}"
        panels.setdefault(f"{title} ({row.dtype}, {row.device})", {}).setdefault(line, []).append(row)
    return {title: dict(sorted(panel.items(), key=_numbers)) for title, panel in panels.items()}


def _draw_panel(axis: Axes, lines: dict[str, list[Row]], colors: dict[str, str]) -> None:
    names = list(colors)
    for number, row in ((number, row) for number, rows in enumerate(lines.values()) for row in rows):
        place = names.index(row.algebra) / max(1, len(names) - 1) - 0.5
        height, color = number + _SPREAD * place, colors[row.algebra]
        axis.plot(row.spread, [height] * 2, color=color, linewidth=1.6, solid_capstyle="butt")
        axis.plot(row.speedup, height, color=color, marker="o", markersize=5)
        if row.limit:
            axis.plot(row.limit, height, color=color, marker="|", markersize=7, markeredgewidth=1.4, alpha=0.55)
    axis.axvline(1, color=INK, linewidth=1)
    axis.set_yticks(range(len(lines)), list(lines))
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    for border in range(1, len(lines)):
        axis.axhline(border - 0.5, color=INK, linewidth=0.6, alpha=0.12)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelbottom=True)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(-6, 7)]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def _write_title(axis: Axes, title: str) -> None:
    """Start the title at the figure's left edge, because names of lines take much of the width."""
    begin = ("figure fraction", "axes fraction")
    axis.annotate(title, (0.01, 1), xycoords=begin, xytext=(0, 5), textcoords="offset points", fontsize=10)


def _draw_legend(figure: Figure, colors: dict[str, str], limits: bool) -> None:
    handles = [Line2D([], [], color=color, marker="o", markersize=5, linestyle="") for color in colors.values()]
    labels = list(colors)
    if limits:
        handles.append(Line2D([], [], color=INK, marker="|", markersize=7, linestyle="", alpha=0.55))
        labels.append("limit, by multiplies or by bytes")
    legend(figure, handles, labels)


def _shape(row: Row) -> str:
    return row.shape if row.lowering == "auto" else f"{row.shape}, {row.lowering}"


def _numbers(line: tuple[str, list[Row]]) -> list[int]:
    """The numbers in a line's shape, by which lines are sorted."""
    return [int(number) for number in re.findall(r"\d+", _shape(line[1][0]))]
