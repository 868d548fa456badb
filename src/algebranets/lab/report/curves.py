"""Learning curves: quality and training loss against steps, epochs, characters or time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from algebranets.lab.drawing.style import house_style, legend, line_style, panels, places
from algebranets.lab.drawing.svg import render
from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import metric_name, tick
from algebranets.lab.report.study import Study
from algebranets.lab.train.results import Result

#: The name of the training loss in a curve's rows.
LOSS = "train_loss"
#: A network is drawn only if one of its runs has more points than this.
_TOO_FEW = 2
#: Times are in minutes if a run takes longer than this many seconds.
_SHORT = 120
#: The points of a curve, by step: (place on the horizontal axis, value).
Curve = dict[float, tuple[float, float]]


def learning(study: Study, groups: Sequence[Group], quantity: str, name: str, clocks: Sequence[str]) -> str | None:
    """Learning curves: a thin line for each seed, and a bold one for their mean.

    Args:
        study: The study that the networks belong to.
        groups: The networks to draw.
        quantity: The quantity on the vertical axis: the metric, or `LOSS`.
        name: The figure's name within the page.
        clocks: The horizontal axes, from the function `clocks`; one panel each.

    Returns:
        The figure as an ``<svg>`` element, or None if no run has enough points.
    """
    drawn = [
        group for group in groups if any(len(_curve(run, clocks[0], quantity)) > _TOO_FEW for run in group.results)
    ]
    if not drawn:
        return None
    with house_style():
        figure, axes = panels(len(clocks))
        for panel, clock in zip(axes, clocks, strict=True):
            _draw(panel, study, drawn, quantity, clock)
        legend(figure, *axes[0].get_legend_handles_labels())
        by = " and by ".join(panel.get_xlabel() for panel in axes)
        described = f"{axes[0].get_ylabel()} by {by}: {', '.join(map(study.name, drawn))}."
        return render(figure, f"{study.recipe}-{name}", described)


def clocks(runs: Iterable[Result]) -> list[str]:
    """The horizontal axes of curves: characters and time for texts, else epochs, or steps if epochs are few."""
    runs = list(runs)
    rows = [row for run in runs for row in run.curve]
    if all("length" in run.experiment.get("data", {}) for run in runs):
        return ["characters", "minutes" if max((row["seconds"] for row in rows), default=0) > _SHORT else "seconds"]
    epochs = [row["epoch"] for row in rows if "epoch" in row]
    return ["epoch" if len(epochs) == len(rows) and max(epochs, default=0) > 2 else "step"]


def _draw(panel: Axes, study: Study, groups: Sequence[Group], quantity: str, clock: str) -> None:
    variants: dict[str, int] = {}
    late: list[float] = []
    for group in groups:
        variant = variants[group.algebra] = variants.get(group.algebra, -1) + 1
        style = line_style(places(study.algebras)[group.algebra], variant)
        curves = [curve for curve in (_curve(run, clock, quantity) for run in group.results) if curve]
        for curve in curves:
            late += [value for step, (_, value) in curve.items() if step >= 0.3 * max(curve)]
            panel.plot(*zip(*curve.values(), strict=True), linewidth=0.6, alpha=0.35, **style)
        panel.plot(*zip(*_mean(curves).values(), strict=True), linewidth=1.6, label=study.name(group), **style)
    _frame(panel, late)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    panel.set(xlabel=clock, ylabel="training loss" if quantity == LOSS else metric_name(quantity))


def _curve(run: Result, clock: str, quantity: str) -> Curve:
    return {
        row["step"]: (_place(run, row, clock), row[quantity])
        for row in run.curve
        if quantity in row and math.isfinite(row[quantity])
    }


def _place(run: Result, row: dict[str, float], clock: str) -> float:
    if clock == "characters":
        return row["step"] * run.experiment["data"]["batch_size"] * run.experiment["data"]["length"]
    return row["seconds"] / 60 if clock == "minutes" else row[clock]


def _mean(curves: list[Curve]) -> Curve:
    """The mean of the curves at the steps that they all share; the first curve if they share none."""
    first, *others = curves
    common = [step for step in first if all(step in other for other in others)]
    if not common:
        return first
    pairs = {step: [curve[step] for curve in curves] for step in common}
    return {step: (fmean(p for p, _ in found), fmean(v for _, v in found)) for step, found in pairs.items()}


def _frame(panel: Axes, late: list[float]) -> None:
    """Limit the vertical axis to the values after the first, steep part, so that differences can be seen."""
    low, high = min(late), max(late)
    margin = 0.06 * (high - low) or 1
    panel.set_ylim(low - margin, high + margin)
