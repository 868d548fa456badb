"""Figures of quality against sparsity, nonzero parameters and multiply-adds, as in the paper's Figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from algebranets.lab.drawing.style import house_style, legend, panels
from algebranets.lab.drawing.svg import render
from algebranets.lab.report.figures import draw, logarithmic, with_direction
from algebranets.lab.report.group import PRUNING, Group
from algebranets.lab.report.numbers import metric_name, percent, quality
from algebranets.lab.report.study import Study

#: The quantities on the horizontal axes of the figures, and the labels of these axes.
MEASURES = {"sparsity": "sparsity, %", "nonzero": "parameters not zero", "multiplies_left": "multiply-adds left"}


class _Line(NamedTuple):
    name: str
    #: The number of the line among the lines of its algebra.
    variant: int
    #: The networks, from the dense one, if it was trained, to the most pruned one.
    groups: list[Group]


def quality_left(study: Study, measures: Sequence[str] = tuple(MEASURES)) -> str | None:
    """Quality of pruned networks: one line for each network and unit of pruning.

    Args:
        study: The study whose pruned networks are drawn.
        measures: Keys of `MEASURES`, one panel each. Measures that no run counted are left out.

    Returns:
        The figure as an ``<svg>`` element, or None if there is nothing to draw.
    """
    lines = _lines(study, [group for group in _finished(study) if group.criterion == "norm"])
    return _draw(study, lines, measures, "-".join(measures))


def criteria(study: Study) -> str | None:
    """Quality against sparsity, one line for each criterion; None if only the norm was used."""
    tuples = [group for group in _finished(study) if group.unit == "tuple"]
    others = {study.name(group, without=PRUNING) for group in tuples if group.criterion != "norm"}
    drawn = [group for group in tuples if study.name(group, without=PRUNING) in others]
    return _draw(study, _lines(study, drawn), ["sparsity"], "criteria")


def _draw(study: Study, lines: list[_Line], measures: Sequence[str], name: str) -> str | None:
    drawn = [measure for measure in measures if any(_places(line.groups, measure) for line in lines)]
    if not drawn:
        return None
    with house_style():
        figure, axes = panels(len(drawn))
        for panel, measure in zip(axes, drawn, strict=True):
            for line in lines:
                if found := _places(line.groups, measure):
                    places, groups = [place for place, _ in found], [group for _, group in found]
                    height = 3 - line.variant / 100  # of lines that start at the same mark, the first is on top
                    draw(study, panel, places, groups, line.name, line.variant, zorder=height)
            if measure != "sparsity":
                logarithmic(panel)
            panel.set(xlabel=MEASURES[measure], ylabel=with_direction(study))
        legend(figure, *axes[0].get_legend_handles_labels())
        words = [
            f"{line.name} "
            + ", ".join(f"{quality(group.mean, study.metric)} at {percent(group.sparsity)}" for group in line.groups)
            for line in lines
        ]
        return render(figure, f"{study.recipe}-pruned-{name}", f"{metric_name(study.metric)}: {'; '.join(words)}.")


def _finished(study: Study) -> list[Group]:
    return [group for group in study.pruned if group.is_finished]


def _lines(study: Study, groups: Sequence[Group]) -> list[_Line]:
    """The lines of the figure: each joins networks that differ only in sparsity, starting with the dense one."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(study.name(group, without={"pruning.sparsity"}), []).append(group)
    lines, seen = [], dict.fromkeys((group.algebra for group in groups), -1)
    for name, line in found.items():
        seen[line[0].algebra] += 1
        dense = study.dense(line[0])
        begin = [dense] if dense and dense.is_finished else []
        lines.append(_Line(name, seen[line[0].algebra], begin + sorted(line, key=lambda group: group.sparsity)))
    return lines


def _places(groups: list[Group], measure: str) -> list[tuple[float, Group]]:
    """The networks whose place on the axis is known, with that place; empty if it is known for no pruned network."""
    if measure == "sparsity":
        return [(100 * group.sparsity, group) for group in groups]
    places = [(getattr(group, measure), group) for group in groups]
    known = [(place, group) for place, group in places if place]
    return known if any(group.sparsity for _, group in known) else []
