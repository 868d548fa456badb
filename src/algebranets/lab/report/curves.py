"""Learning curves: what was measured while training went on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from algebranets.lab.report.groups import Group, Study
from algebranets.lab.report.numbers import metric_name, tick
from algebranets.lab.report.style import drawing, legend, line_style, panels
from algebranets.lab.report.svg import render
from algebranets.lab.train.results import Result

#: What a curve calls it.
LOSS = "train_loss"
#: As few as these are no curve.
_POINTS = 2
#: Step: (place, value measured there).
Curve = dict[float, tuple[float, float]]


def learning(study: Study, groups: Sequence[Group], quantity: str, name: str, clocks: Sequence[str]) -> str | None:
    """``quantity`` as training went on, a panel for each of `clocks`: a thin line a seed, a bold one their mean.

    None where there is no curve.
    """
    drawn = [group for group in groups if any(len(_curve(run, clocks[0], quantity)) > _POINTS for run in group.results)]
    if not drawn:
        return None
    with drawing():
        figure, axes = panels(len(clocks))
        for panel, clock in zip(axes, clocks, strict=True):
            _draw(panel, study, drawn, quantity, clock)
        legend(figure, *axes[0].get_legend_handles_labels())
        by = " and by ".join(panel.get_xlabel() for panel in axes)
        described = f"{axes[0].get_ylabel()} by {by}: {', '.join(map(study.name, drawn))}."
        return render(figure, f"{study.recipe}-{name}", described)


def clocks(runs: Iterable[Result]) -> list[str]:
    """What runs are drawn against: characters and minutes of texts; else epochs, if all counted more than two."""
    runs = list(runs)
    if all("length" in run.experiment.get("data", {}) for run in runs):
        return ["characters", "minutes"]
    rows = [row for run in runs for row in run.curve]
    epochs = [row["epoch"] for row in rows if "epoch" in row]
    return ["epoch" if len(epochs) == len(rows) and max(epochs, default=0) > 2 else "step"]


def _draw(panel: Axes, study: Study, groups: Sequence[Group], quantity: str, clock: str) -> None:
    variants: dict[str, int] = {}
    late: list[float] = []
    for group in groups:
        variant = variants[group.algebra] = variants.get(group.algebra, -1) + 1
        style = line_style(study, group.algebra, variant)
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
    """Where every seed was measured; the first one's curve, where they have no step in common."""
    first, *others = curves
    common = [step for step in first if all(step in other for other in others)]
    if not common:
        return first
    pairs = {step: [curve[step] for curve in curves] for step in common}
    return {step: (fmean(p for p, _ in found), fmean(v for _, v in found)) for step, found in pairs.items()}


def _frame(panel: Axes, late: list[float]) -> None:
    """The frame holds all but the first, steep part, which would press the rest together."""
    low, high = min(late), max(late)
    margin = 0.06 * (high - low) or 1
    panel.set_ylim(low - margin, high + margin)
