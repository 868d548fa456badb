"""Rows as a picture: a panel an op, a line a shape, a mark an algebra, at how many times as fast it is.

Ops of one shape, such as whole networks, have no panel of their own, but a line of one that they share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algebranets.algebra import CATALOGUE
from algebranets.lab.bench.rows import Row
from algebranets.lab.report.style import COLOURS, INK, drawing, legend
from algebranets.lab.report.svg import render, standalone

#: Inches of a line, and of what stands around a panel's lines.
_LINE, _AROUND = 0.34, 0.95
#: How much of a line's height its marks are spread over: in the legend's order, from above.
_SPREAD = 0.56


def draw(rows: Sequence[Row]) -> str:
    """An SVG file's text."""
    if not rows:
        raise ValueError("there must be rows to draw; the files hold none.")
    algebras, panels = _in_order(rows), _panels(rows)
    with drawing():
        heights = [_AROUND + _LINE * len(panel) for panel in panels.values()]
        figure = Figure(figsize=(7.6, sum(heights) + 0.4), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights})[:, 0]
        for axis, (title, panel) in zip(axes, panels.items(), strict=True):
            _draw_panel(axis, panel, algebras)
            _write_title(axis, title)
        axes[-1].set_xlabel("times as fast (more is better)")
        _draw_legend(figure, algebras, any(row.limit for row in rows))
        words = [f"{row.op} {row.shape} over {row.algebra} {row.speedup:.2f}" for row in rows]
        return standalone(render(figure, "speed", f"Times as fast: {'; '.join(words)}."))


def _panels(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """By title, the lines of a panel, by name, and their rows."""
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


def _draw_panel(axis: Axes, lines: dict[str, list[Row]], algebras: dict[str, str]) -> None:
    names = list(algebras)
    for number, row in ((number, row) for number, rows in enumerate(lines.values()) for row in rows):
        place = names.index(row.algebra) / max(1, len(names) - 1) - 0.5
        height, colour = number + _SPREAD * place, algebras[row.algebra]
        axis.plot(row.spread, [height] * 2, color=colour, linewidth=1.6, solid_capstyle="butt")
        axis.plot(row.speedup, height, color=colour, marker="o", markersize=5)
        if row.limit:
            axis.plot(row.limit, height, color=colour, marker="|", markersize=7, markeredgewidth=1.4, alpha=0.55)
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
    """From the figure's edge on: names of lines may be so long that a title over the marks would not fit."""
    begin = ("figure fraction", "axes fraction")
    axis.annotate(title, (0.01, 1), xycoords=begin, xytext=(0, 5), textcoords="offset points", fontsize=10)


def _draw_legend(figure: Figure, algebras: dict[str, str], limits: bool) -> None:
    handles = [Line2D([], [], color=colour, marker="o", markersize=5, linestyle="") for colour in algebras.values()]
    labels = list(algebras)
    if limits:
        handles.append(Line2D([], [], color=INK, marker="|", markersize=7, linestyle="", alpha=0.55))
        labels.append("limit by the table's multiplies, or by bytes")
    legend(figure, handles, labels)


def _shape(row: Row) -> str:
    return row.shape if row.lowering == "auto" else f"{row.shape}, {row.lowering}"


def _numbers(line: tuple[str, list[Row]]) -> list[int]:
    """Lines are in the order of their numbers: tuples of other sizes make widths that differ by little."""
    return [int(number) for number in re.findall(r"\d+", _shape(line[1][0]))]


def _in_order(rows: Sequence[Row]) -> dict[str, str]:
    """The algebras' colours, in the catalogue's order; others take those that are left over."""
    found = {row.algebra for row in rows}
    colours = {name: colour for name, colour in zip(CATALOGUE, COLOURS, strict=True) if name in found}
    free = [colour for colour in COLOURS[1:] if colour not in colours.values()] or list(COLOURS[1:])
    others = sorted(found - set(colours))
    return colours | {name: free[number % len(free)] for number, name in enumerate(others)}
