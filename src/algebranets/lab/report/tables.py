"""The tables of a report: networks compared with the paper or with R, and variants with their baselines."""

from __future__ import annotations

from algebranets.algebra import CATALOGUE
from algebranets.lab.report import equal_quality
from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import NONE, amount, duration, quality, share
from algebranets.lab.report.paper.rows import SIZES, printed_claim
from algebranets.lab.report.parts import INTERVAL, Cell, Sheet, difference_cell, interval_cell, mean_and_deviation
from algebranets.lab.report.pruned import tables as pruned
from algebranets.lab.report.study import Study
from algebranets.lab.report.words import paragraphs


def sheets(study: Study) -> list[Sheet]:
    """All tables of a study: networks, costs at equal quality, ablations, pruned networks.

    Empty tables are left out, and so are columns without any value. The second column has the metric.
    """
    found = [rows_sheet(study)] if study.rows else []
    found += [equal_quality_sheet(study), ablations_sheet(study), *pruned.sheets(study)]
    return [sheet.compact() for sheet in found if sheet.rows]


def rows_sheet(study: Study) -> Sheet:
    """The networks compared with the paper's rows, or with the real network if most have no row in the paper."""
    num_printed = sum(group.printed is not None for group in study.rows)
    return _paper_sheet(study) if 2 * num_printed >= len(study.rows) else _real_sheet(study)


def _paper_sheet(study: Study) -> Sheet:
    rows = []
    for group in study.rows:
        there = group.printed
        rows.append((
            Cell(study.name(group)),
            Cell(mean_and_deviation(group)),
            interval_cell(group),
            Cell(there.quality if there else NONE),
            difference_cell(study, group, float(there.quality) if there else None),
            Cell(amount(group.first.parameters)),
            Cell(f"{there.parameters} M" if there and there.parameters else NONE),
            Cell(amount(group.first.multiplies)),
            Cell(duration(group.seconds)),
        ))  # fmt: skip
    headings = (
        "network", f"{study.metric}, ours", INTERVAL, f"{study.metric}, paper", "difference", "parameters",
        "parameters, paper", "multiply-adds", "training time",
    )  # fmt: skip
    return Sheet(
        "Compared with the paper", headings, tuple(rows), _rows_notes(study, "the paper's", is_beside_paper=True)
    )


def _real_sheet(study: Study) -> Sheet:
    reals = [_find_real(study, group) for group in study.rows]
    rows = []
    for group, real in zip(study.rows, reals, strict=True):
        rows.append((
            Cell(study.name(group)),
            Cell(mean_and_deviation(group)),
            interval_cell(group),
            difference_cell(study, group, real),
            Cell(amount(group.first.parameters)),
            Cell(share(group.first.parameters, real.first.parameters) if real else NONE),
            Cell(amount(group.first.multiplies)),
            Cell(share(group.first.multiplies, real.first.multiplies) if real else NONE),
            Cell(duration(group.seconds)),
        ))  # fmt: skip
    headings = (
        "network", study.metric, INTERVAL, "difference", "parameters", "of R", "multiply-adds", "of R", "training time",
    )  # fmt: skip
    is_compared = any(reals)
    title = "Compared with the real network" if is_compared else "Networks"
    notes = _rows_notes(study, "that of the real network of the same width" if is_compared else "")
    return Sheet(title, headings, tuple(rows), notes)


def _rows_notes(study: Study, subtracted: str, is_beside_paper: bool = False) -> tuple[str, ...]:
    """Notes below the table of networks; ``subtracted`` says what differences are to, if there are any."""
    rows = [
        {
            "name": study.name(group),
            "printed": group.printed.quality,
            "remark": group.printed.note,
            "away": group.difference_to_paper,
        }
        for group in study.rows
        if group.printed
    ]
    names = dict.fromkeys(group.algebra for group in study.rows)
    return tuple(
        paragraphs(
            "notes/rows",
            metric=study.metric,
            more_is_better=study.more_is_better,
            subtracted=subtracted,
            is_beside_paper=is_beside_paper,
            num_test=study.rows[0].num_test,
            rows=rows,
            has_pruned=bool(study.pruned),
            algebras=[CATALOGUE[name] for name in names if name in CATALOGUE],
        )
    )


def _find_real(study: Study, group: Group) -> Group | None:
    """The real network of the same width and size; None if ``group`` is real or there is no such network."""
    sizes = {key: value for key, value in study.changed(group).items() if key in SIZES}
    for other in study.rows:
        alike = other.first.width == group.first.width and study.changed(other) == sizes
        if alike and other.is_real and not group.is_real:
            return other
    return None


def equal_quality_sheet(study: Study) -> Sheet:
    """The costs of each network and of a real one of the same quality, if several real sizes were trained."""
    rows = []
    for group, real in equal_quality.matched(study):
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
    headings = ("network", study.metric, "parameters", "real", "of real", "multiply-adds", "real", "of real")
    sizes = [study.name(group) for group in equal_quality.real_sizes(study)]
    return Sheet("At equal quality", headings, tuple(rows), tuple(paragraphs("notes/equal_quality", sizes=sizes)))


def ablations_sheet(study: Study) -> Sheet:
    """Each variant compared with the same network without the change, and the paper's statement on the change."""
    rows = []
    for group in study.ablations:
        baseline = study.baseline(group)
        rows.append((
            Cell(study.name(group)),
            Cell(mean_and_deviation(group)),
            Cell(NONE if baseline is None else mean_and_deviation(baseline)),
            difference_cell(study, group, baseline),
            Cell(_step_time_ratio(group, baseline)),
            Cell("; ".join(_claims(study, group, baseline)) or NONE),
        ))  # fmt: skip
    headings = ("variant", study.metric, "without the change", "difference", "time of a step", "the paper says")
    has_claims = any(row[5].words != NONE for row in rows)
    notes = paragraphs("notes/ablations", metric=study.metric, has_claims=has_claims)
    return Sheet("Ablations", headings, tuple(rows), tuple(notes), prose=(0, 5))


def _step_time_ratio(group: Group, baseline: Group | None) -> str:
    if baseline is None or group.seconds_per_step is None or not baseline.seconds_per_step:
        return NONE
    return f"{group.seconds_per_step / baseline.seconds_per_step:.2f}x"


def _claims(study: Study, group: Group, baseline: Group | None) -> list[str]:
    """The paper's statements about the variant: a difference in its table, and its text on the changed settings."""
    said = []
    if group.printed and baseline and baseline.printed:
        away = float(group.printed.quality) - float(baseline.printed.quality)
        said.append(f"{round(away, 3):+g} in its table".replace("-", "−"))
    return said + [text for text in (printed_claim(*change) for change in study.changed(group).items()) if text]
