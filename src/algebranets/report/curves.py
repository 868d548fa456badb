"""Learning curves: what was measured while training went on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from algebranets.report.groups import Group, Study
from algebranets.report.numbers import metric_name, tick
from algebranets.report.style import drawing, legend, line_style, panels
from algebranets.report.svg import render
from algebranets.train.results import Result

#: What a curve calls it.
LOSS = "train_loss"
#: As few as these are no curve.
_POINTS = 2
#: Epoch or step: the value measured there.
Curve = dict[float, float]


def learning(study: Study, groups: Sequence[Group], quantity: str, name: str) -> str | None:
    """``quantity`` as training went on: a thin line a seed, a bold one their mean. None where there is no curve."""
    clock = _clock(run for group in groups for run in group.results)
    drawn = [group for group in groups if any(len(_curve(run, clock, quantity)) > _POINTS for run in group.results)]
    if not drawn:
        return None
    with drawing():
        figure, (panel,) = panels(1)
        variants: dict[str, int] = {}
        late: list[float] = []
        for group in drawn:
            variant = variants[group.algebra] = variants.get(group.algebra, -1) + 1
            style = line_style(study, group.algebra, variant)
            curves = [curve for curve in (_curve(run, clock, quantity) for run in group.results) if curve]
            for curve in curves:
                late += [value for place, value in curve.items() if place >= 0.3 * max(curve)]
                panel.plot(list(curve), list(curve.values()), linewidth=0.6, alpha=0.35, **style)
            mean = _mean(curves)
            panel.plot(list(mean), list(mean.values()), linewidth=1.6, label=study.name(group), **style)
        _frame(panel, late)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        panel.set(xlabel=clock, ylabel="training loss" if quantity == LOSS else metric_name(quantity))
        legend(figure, *panel.get_legend_handles_labels())
        described = f"{panel.get_ylabel()} by {panel.get_xlabel()}: {', '.join(map(study.name, drawn))}."
        return render(figure, f"{study.recipe}-{name}", described)


def _clock(runs: Iterable[Result]) -> str:
    """Epochs, if all runs counted them and they are more than two."""
    rows = [row for run in runs for row in run.curve]
    epochs = [row["epoch"] for row in rows if "epoch" in row]
    return "epoch" if len(epochs) == len(rows) and max(epochs, default=0) > 2 else "step"


def _curve(run: Result, clock: str, quantity: str) -> Curve:
    return {
        row[clock]: row[quantity]
        for row in run.curve
        if clock in row and quantity in row and math.isfinite(row[quantity])
    }


def _mean(curves: list[Curve]) -> Curve:
    """Where every seed was measured."""
    return {place: fmean(curve[place] for curve in curves) for place in curves[0] if all(place in c for c in curves)}


def _frame(panel: Axes, late: list[float]) -> None:
    """The frame holds all but the first, steep part, which would press the rest together."""
    low, high = min(late), max(late)
    margin = 0.06 * (high - low) or 1
    panel.set_ylim(low - margin, high + margin)
