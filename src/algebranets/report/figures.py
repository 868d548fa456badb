"""Quality against what a network costs, and against how much of it is pruned: the paper's Figures 1 to 3 in form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algebranets.report.groups import Group, Study
from algebranets.report.numbers import amount, metric_name, quality, tick
from algebranets.report.published import SIZES
from algebranets.report.style import INK, drawing, legend, line_style, mark_style, panels
from algebranets.report.svg import render
from algebranets.train.results import label

#: What a network costs, as an axis says it.
COSTS = {"parameters": "parameters", "multiplies": "multiply-adds"}


def trade_off(study: Study, costs: Sequence[str] = tuple(COSTS)) -> str:
    """Quality against costs on logarithmic axes, a panel each; hollow marks are the paper's figures (Figures 1, 2)."""
    with drawing():
        figure, axes = panels(len(costs))
        for panel, cost in zip(axes, costs, strict=True):
            for name, variant, line in _joined(study, study.finished, SIZES, widths=True):
                line.sort(key=lambda group: getattr(group.first, cost))
                _draw(panel, [getattr(group.first, cost) for group in line], line, name, variant)
                _draw_printed(panel, line, cost)
            _logarithmic(panel)
            panel.set(xlabel=COSTS[cost], ylabel=_with_direction(study))
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


def sparsity(study: Study) -> str | None:
    """Quality against the share that is pruned, the dense network at 0 (Figure 3); None where nothing is pruned."""
    pruned = [group for group in study.groups if _sparsity(group)]
    if not pruned:
        return None
    dense = {id(study.baseline(group)): study.baseline(group) for group in pruned}
    settings = frozenset(key for group in pruned for key in group.changes if _says_sparsity(key))
    with drawing():
        figure, (panel,) = panels(1)
        for name, variant, line in _joined(study, [*pruned, *filter(None, dense.values())], settings, widths=False):
            line.sort(key=_sparsity)
            _draw(panel, [100 * _sparsity(group) for group in line], line, name, variant)
        panel.set(xlabel="sparsity, %", ylabel=_with_direction(study))
        legend(figure, *panel.get_legend_handles_labels())
        words = [f"{study.name(group)} {quality(group.mean, study.metric)}" for group in pruned]
        return render(figure, f"{study.recipe}-sparsity", f"{metric_name(study.metric)}: {'; '.join(words)}.")


def _says_sparsity(setting: str) -> bool:
    return setting.rpartition(".")[2] == "sparsity"


def _sparsity(group: Group) -> float:
    return next((float(value) for key, value in group.changes.items() if _says_sparsity(key)), 0.0)


def _joined(
    study: Study, groups: Iterable[Group], along: frozenset[str], widths: bool
) -> Iterator[tuple[str, int, list[Group]]]:
    """The rows of each line, which differ ``along`` settings (and widths) only: name, number in its algebra, rows."""
    lines: dict[str, list[Group]] = {}
    for group in groups:
        if math.isfinite(group.mean):
            others = {key: value for key, value in study.changed(group).items() if key not in along}
            width = 1 if widths else group.first.width
            lines.setdefault(label(group.algebra, width, others), []).append(group)
    seen: dict[str, int] = {}
    for name, line in lines.items():
        number = seen[line[0].algebra] = seen.get(line[0].algebra, -1) + 1
        yield study.name(line[0]) if len(line) == 1 else name, number, line


def _draw(panel: Axes, places: list[float], groups: list[Group], name: str, variant: int) -> None:
    style = line_style(groups[0].algebra, variant) | mark_style(groups[0].algebra, variant)
    panel.errorbar(
        places, [group.mean for group in groups], [math.nan if g.spread is None else g.spread for g in groups],
        linewidth=1.2, elinewidth=1.2, capsize=3, label=name, **style,
    )  # fmt: skip


def _draw_printed(panel: Axes, groups: list[Group], cost: str) -> None:
    for group in groups:
        if group.printed:
            # The paper counts operations in its own ways, so its figure stands at our count of the same network.
            millions = group.printed.parameters if cost == "parameters" else ""
            place = 1e6 * float(millions) if millions else getattr(group.first, cost)
            style: dict[str, Any] = mark_style(group.algebra) | line_style(group.algebra)
            style |= {"linestyle": "", "fillstyle": "none", "zorder": 3}
            panel.plot(place, float(group.printed.quality), **style)


def _logarithmic(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.margins(x=0.12, y=0.14)
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, no finer than it takes to have three of them."""
    decades = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    steps: tuple[float, ...]
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 6), (1, 1.2, 1.5, 2, 2.5, *range(3, 10))):
        found = [step * decade for decade in decades for step in steps if low <= step * decade <= high]
        if len(found) >= 3:
            return found
    return [low * (high / low) ** (part / 4) for part in (1, 2, 3)]


def _with_direction(study: Study) -> str:
    return f"{metric_name(study.metric)} ({'more' if study.more_is_better else 'less'} is better)"
