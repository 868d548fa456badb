"""The figures of a study's section of the page, with headings and captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from algebranets.lab.report import curves, figures
from algebranets.lab.report.group import COSTS, Group
from algebranets.lab.report.pruned import figures as pruned
from algebranets.lab.report.study import Study
from algebranets.lab.report.words import sentence

#: If there are more networks than this, learning curves are drawn only for those of the recipe's own size.
_MAX_CURVES = 10


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Args:
        heading: Its heading.
        caption: The text below it.
        panels: ``<svg>`` elements by name. They are side by side if there is room.
    """

    heading: str
    caption: str
    panels: dict[str, str]


def pictures(study: Study) -> Iterator[Picture]:
    """Every figure of a study: quality against cost, pruned networks, learning curves."""
    if _has_trade_off(study):
        caption = sentence("captions", figure="trade-off", has_paper=_has_paper(study))
        panels = {cost: figures.trade_off(study, (cost,)) for cost in COSTS}
        yield Picture("Quality and cost", caption, panels)
    drawn = {measure.replace("_", "-"): pruned.quality_left(study, (measure,)) for measure in pruned.MEASURES}
    drawn["criteria"] = pruned.criteria(study)
    if found := {name: panel for name, panel in drawn.items() if panel}:
        yield Picture("Quality of pruned networks", sentence("captions", figure="pruned"), found)
    yield from _learning_curves(study)


def _has_paper(study: Study) -> bool:
    return any(group.printed for group in study.finished)


def _has_trade_off(study: Study) -> bool:
    """Whether quality is drawn against cost. Studies of pruning have figures of their own for that."""
    return (len(study.finished) > 1 or _has_paper(study)) and not study.is_about_pruning


def _joint_curves(study: Study) -> str | None:
    """The learning curves by all clocks; None if there is only one clock."""
    clocks = curves.clocks(study.runs)
    return curves.learning(study, _drawn(study), study.metric, "learning", clocks) if len(clocks) > 1 else None


#: Figures that combine several panels of the page, to be saved as separate files: the functions that draw them, by
#: name. They return None if there is nothing to draw.
JOINT: dict[str, Callable[[Study], str | None]] = {
    "trade-off": lambda study: figures.trade_off(study) if _has_trade_off(study) else None,
    "pruning": pruned.quality_left,
    "learning": _joint_curves,
}


def _drawn(study: Study) -> tuple[Group, ...]:
    """The networks whose learning curves are drawn: rows, other lengths of training, and the recipe's own pruned ones.

    There are too many other pruned networks to draw.
    """
    rows = (*study.rows, *study.lengths, *study.own_pruned)
    return rows if len(rows) <= _MAX_CURVES else tuple(group for group in rows if study.is_own_size(group))


def _learning_curves(study: Study) -> Iterator[Picture]:
    """Learning curves of the rows, and those of the ablations with their baselines."""
    drawn, clocks = _drawn(study), curves.clocks(study.runs)
    panels = {}
    wanted = [("curves", study.metric, clocks[0]), ("curves-loss", curves.LOSS, clocks[0])]
    wanted[1:1] = [(f"curves-{clock}", study.metric, clock) for clock in clocks[1:]]
    for name, quantity, clock in wanted:
        if panel := curves.learning(study, drawn, quantity, name, [clock]):
            panels[name] = panel
    if panels:
        is_partial = not all(group in drawn for group in study.rows)
        yield Picture("Learning curves", sentence("captions", figure="learning", is_partial=is_partial), panels)
    variants = [group for group in study.ablations if group not in study.rows]
    panels = {}
    for baseline in study.groups:
        compared = [group for group in variants if study.baseline(group) is baseline]
        name = f"ablation-curves-{len(panels) + 1}"
        if compared and (panel := curves.learning(study, [baseline, *compared], study.metric, name, clocks[:1])):
            panels[name] = panel
    if panels:
        caption = sentence("captions", figure="learning", is_partial=False)
        yield Picture("Learning curves of the ablations", caption, panels)
