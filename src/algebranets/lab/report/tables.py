"""The tables of a report: the paper's figures beside ours, and what each variant changes."""

from __future__ import annotations

from algebranets.algebra import CATALOGUE
from algebranets.lab.report.groups import Group, Study
from algebranets.lab.report.numbers import NONE, amount, difference, duration, metric_name, quality, share
from algebranets.lab.report.parts import Cell, Sheet, compared, reached
from algebranets.lab.report.pruned import tables as pruned
from algebranets.lab.report.published import SIZES, claim


def sheets(study: Study) -> list[Sheet]:
    """The study's tables, those that hold anything: rows, what real networks as good would cost, variants, pruned."""
    found = [rows_sheet(study)] if study.rows else []
    found += [equal_quality_sheet(study), ablations_sheet(study), *pruned.sheets(study)]
    return [sheet for sheet in found if sheet.rows]


def rows_sheet(study: Study) -> Sheet:
    """Every network of the study beside the paper's row of it; beside the real network where most have no such row."""
    printed = sum(group.printed is not None for group in study.rows)
    return _beside_the_paper(study) if 2 * printed >= len(study.rows) else _beside_the_real(study)


def _beside_the_paper(study: Study) -> Sheet:
    rows, notes = [], []
    for group in study.rows:
        there = group.printed
        if there and there.note:
            notes.append(f"{study.name(group)}, parameters: {there.note}.")
        rows.append((
            Cell(study.name(group)),
            Cell(amount(group.first.parameters)),
            Cell(f"{there.parameters} M" if there and there.parameters else NONE),
            Cell(amount(group.first.multiplies)),
            Cell(there.quality if there else NONE),
            Cell(reached(group)),
            compared(study, group, group.difference),
            Cell(duration(group.seconds)),
        ))  # fmt: skip
    quality_there, quality_here = f"{study.metric}, paper", f"{study.metric}, ours"
    headings = (
        "network", "parameters", "parameters, paper", "multiply-adds", quality_there, quality_here, "difference",
        "training time",
    )  # fmt: skip
    return Sheet("Against the paper", headings, tuple(rows), (*notes, *_notes(study, "the paper's")))


def _beside_the_real(study: Study) -> Sheet:
    rows = []
    for group in study.rows:
        real = real_like(study, group)
        away = None if real is None else group.mean - real.mean
        rows.append((
            Cell(study.name(group)),
            Cell(amount(group.first.parameters)),
            Cell(share(group.first.parameters, real.first.parameters) if real else NONE),
            Cell(amount(group.first.multiplies)),
            Cell(share(group.first.multiplies, real.first.multiplies) if real else NONE),
            Cell(reached(group)),
            compared(study, group, away, real),
            Cell(duration(group.seconds)),
        ))  # fmt: skip
    headings = ("network", "parameters", "of R", "multiply-adds", "of R", study.metric, "difference", "training time")
    notes = [
        f"The paper prints {group.printed.quality} for {study.name(group)}; ours differs by "
        f"{difference(group.difference, study.metric)}."
        for group in study.rows
        if group.printed
    ]
    return Sheet("Against the real network", headings, tuple(rows), (*notes, *_notes(study, "the real network's")))


def real_like(study: Study, group: Group) -> Group | None:
    """The real network of the same width and size as this one, if it was trained and is not this one."""
    sizes = {key: value for key, value in study.changed(group).items() if key in SIZES}
    for other in study.rows:
        alike = other.first.width == group.first.width and study.changed(other) == sizes
        if alike and other.is_real and not group.is_real:
            return other
    return None


def equal_quality_sheet(study: Study) -> Sheet:
    """Each network beside a real one that is as good, as far as real ones of several sizes tell."""
    rows = []
    for group, real in study.matched:
        ours = group.first
        rows.append((
            Cell(study.name(group)),
            Cell(quality(group.mean, study.metric)),
            Cell(amount(ours.parameters)),
            Cell(amount(real.parameters)),
            Cell(share(ours.parameters, real.parameters)),
            Cell(amount(ours.multiplies)),
            Cell(amount(real.multiplies)),
            Cell(share(ours.multiplies, real.multiplies)),
        ))  # fmt: skip
    headings = ("network", study.metric, "parameters", "real", "of it", "multiply-adds", "real", "of it")
    sizes = ", ".join(study.name(group) for group in study.real_sizes)
    note = f"Real: a real network that would be as good, between those that were trained ({sizes})."
    return Sheet("At equal quality", headings, tuple(rows), (note,))


def ablations_sheet(study: Study) -> Sheet:
    """Each variant beside the same network without the change, and what the paper says of it."""
    rows = []
    for group in study.ablations:
        usual = study.baseline(group)
        away = None if usual is None else group.mean - usual.mean
        rows.append((
            Cell(study.name(group)),
            Cell(NONE if usual is None else reached(usual, seeds=False)),
            Cell(reached(group)),
            compared(study, group, away, usual),
            Cell(_slower(group, usual)),
            Cell("; ".join(_said(study, group, usual)) or NONE),
        ))  # fmt: skip
    headings = ("variant", "without the change", "with it", "difference", "time of a step", "the paper says")
    notes = (
        "What the paper says is about ResNet-50 on ImageNet, unless it is of a table.",
        "Times of steps are compared behind the first evaluation; of runs that shared a device they say little.",
    )
    return Sheet("Ablations", headings, tuple(rows), notes, prose=(0, 5))


def _slower(group: Group, usual: Group | None) -> str:
    if usual is None or group.pace is None or not usual.pace:
        return NONE
    return f"{group.pace / usual.pace:.2f}x"


def _said(study: Study, group: Group, usual: Group | None) -> list[str]:
    said = []
    if group.printed and usual and usual.printed:
        away = float(group.printed.quality) - float(usual.printed.quality)
        said.append(f"{round(away, 3):+g} in its table".replace("-", "−"))
    return said + [text for text in (claim(*change) for change in study.changed(group).items()) if text]


def _notes(study: Study, whose: str) -> tuple[str, ...]:
    direction = "more" if study.more_is_better else "less"
    notes = [
        f"The metric is {metric_name(study.metric)}, of which {direction} is better: mean ± sample standard deviation "
        f"over seeds. A difference is ours less {whose}; it is set off where it is more than twice that deviation."
    ]
    sizes = [
        f"{name} {CATALOGUE[name].dim} and {CATALOGUE[name].multiplies}"
        for name in dict.fromkeys(group.algebra for group in study.rows)
        if name in CATALOGUE
    ]
    if study.pruned:
        notes.append("None of these networks is pruned.")
    if sizes:
        notes.append(f"Components of a tuple, and multiplies in a product of two: {', '.join(sizes)}.")
    return tuple(notes)
