"""Figures of quality against cost, as in the paper's Figures 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algebranets.lab.drawing.style import INK, house_style, legend, line_style, mark_style, panels, places
from algebranets.lab.drawing.svg import render
from algebranets.lab.report.group import COSTS, Group
from algebranets.lab.report.numbers import amount, metric_name, quality, tick
from algebranets.lab.report.paper.rows import SIZES
from algebranets.lab.report.study import Study
from algebranets.lab.train.results import label


def trade_off(study: Study, costs: Sequence[str] = tuple(COSTS)) -> str:
    """Quality against cost on a logarithmic axis. Hollow marks are the paper's figures.

    Args:
        study: The study whose finished rows are drawn.
        costs: Keys of `COSTS`, one panel each.

    Returns:
        The figure as an ``<svg>`` element.
    """
    with house_style():
        figure, axes = panels(len(costs))
        for panel, cost in zip(axes, costs, strict=True):
            for name, variant, line in _joined(study):
                line.sort(key=lambda group: getattr(group.first, cost))
                draw(study, panel, [getattr(group.first, cost) for group in line], line, name, variant)
                _draw_printed(study, panel, line, cost)
            logarithmic(panel)
            panel.set(xlabel=COSTS[cost], ylabel=with_direction(study))
        handles, labels = axes[0].get_legend_handles_labels()
        if any(group.printed for group in study.finished):
            handles.append(Line2D([], [], color=INK, marker="o", ls="", mfc="none"))
            labels.append("paper")
        legend(figure, handles, labels)
        words = [
            f"{study.name(group)} {quality(group.mean, study.metric)} at "
            + " and ".join(f"{amount(getattr(group.first, cost))} {COSTS[cost]}" for cost in costs)
            for group in study.finished
        ]
        return render(figure, f"{study.recipe}-{'-'.join(costs)}", f"{metric_name(study.metric)}: {'; '.join(words)}.")


def _joined(study: Study) -> Iterator[tuple[str, int, list[Group]]]:
    """The lines of the figure: name, number among the lines of the algebra, and networks that differ only in size."""
    lines: dict[str, list[Group]] = {}
    for group in study.finished:
        others = {key: value for key, value in study.changed(group).items() if key not in SIZES}
        lines.setdefault(label(group.algebra, 1, others), []).append(group)
    seen: dict[str, int] = {}
    for name, line in lines.items():
        number = seen[line[0].algebra] = seen.get(line[0].algebra, -1) + 1
        yield study.name(line[0]) if len(line) == 1 else name, number, line


def draw(study: Study, panel: Axes, at: list[float], groups: list[Group], name: str, variant: int, **look: Any) -> None:
    """Draw networks of one algebra as a line with marks and error bars.

    Args:
        study: The study that the networks belong to.
        panel: The panel to draw in.
        at: The place of each network on the horizontal axis.
        groups: The networks.
        name: The line's name in the legend.
        variant: The number of the line among the lines of its algebra.
        look: Further arguments of matplotlib's ``errorbar``.
    """
    place = places(study.algebras)[groups[0].algebra]
    style = line_style(place, variant) | mark_style(place, variant)
    panel.errorbar(
        at, [group.mean for group in groups], [math.nan if g.deviation is None else g.deviation for g in groups],
        linewidth=1.2, elinewidth=1.2, capsize=3, label=name, **style, **look,
    )  # fmt: skip


def _draw_printed(study: Study, panel: Axes, groups: list[Group], cost: str) -> None:
    """Draw the paper's figures as hollow marks, each joined to ours by a thin line."""
    for group in groups:
        if group.printed:
            # The paper counts operations differently, so its figure is drawn at our count for the same network.
            millions = group.printed.parameters if cost == "parameters" else ""
            place = 1e6 * float(millions) if millions else getattr(group.first, cost)
            look = places(study.algebras)[group.algebra]
            style: dict[str, Any] = mark_style(look) | line_style(look)
            there = float(group.printed.quality)
            ends = [getattr(group.first, cost), place], [group.mean, there]
            panel.plot(*ends, color=style["color"], linewidth=0.6, alpha=0.6, zorder=1)
            panel.plot(place, there, **style | {"linestyle": "", "fillstyle": "none", "zorder": 3})


def logarithmic(panel: Axes) -> None:
    """Make the horizontal axis logarithmic, with round numbers on it."""
    panel.set_xscale("log")
    panel.margins(x=0.12, y=0.14)
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def _ticks(low: float, high: float) -> list[float]:
    """At least three round numbers between ``low`` and ``high``, and as few as possible."""
    decades = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    steps: tuple[float, ...]
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 6), (1, 1.2, 1.5, 2, 2.5, *range(3, 10))):
        found = [step * decade for decade in decades for step in steps if low <= step * decade <= high]
        if len(found) >= 3:
            return found
    return [low * (high / low) ** (part / 4) for part in (1, 2, 3)]


def with_direction(study: Study) -> str:
    """The label of the metric's axis, such as ``top-1 accuracy (more is better)``."""
    return f"{metric_name(study.metric)} ({'more' if study.more_is_better else 'less'} is better)"
