"""The parts of a report: tables, their cells, and key figures.

The cells of a `Sheet` are text. The terminal, the Markdown file and the page each draw it in their own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import difference, quality
from algebranets.lab.report.significance import is_significant
from algebranets.lab.report.study import Study

Tone = Literal["", "better", "worse"]


class Cell(NamedTuple):
    """The text of a cell, and whether it is a significant difference for better or worse."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Sheet:
    """A table of text.

    >>> print(Sheet("Means", ("network", "accuracy"), ((Cell("R"), Cell("94.20")),)).markdown())
    ### Means
    <BLANKLINE>
    | network | accuracy |
    | --- | ---: |
    | R | 94.20 |
    <BLANKLINE>

    Args:
        title: The table's title.
        headings: One heading per column.
        rows: The cells, row by row. The first column has the names of the rows.
        notes: Paragraphs below the table.
        prose: The indices of the columns with words; all others have numbers.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    prose: tuple[int, ...] = (0,)

    def markdown(self) -> str:
        """The table as Markdown, with its title as a heading."""
        marks = ["---" if column in self.prose else "---:" for column in range(len(self.headings))]
        lines = [self.headings, marks, *([_bold(cell) for cell in row] for row in self.rows)]
        table = "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
        return "\n\n".join([f"### {self.title}", table, *self.notes]) + "\n"


def _bold(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.tone else cell.text


@dataclass(frozen=True)
class Card:
    """A key figure and its meaning, such as ``25 %`` and ``of the real network's parameters, M2R``."""

    figure: str
    meaning: str


def mean_and_deviation(group: Group, with_seeds: bool = True) -> str:
    """The mean and standard deviation of a network's metric, such as ``94.31 ± 0.12 (3 seeds)``.

    Args:
        group: The network.
        with_seeds: Whether the number of seeds is added.
    """
    metric = group.first.metric
    text = quality(group.mean, metric)
    if group.deviation is not None:
        text += f" ± {quality(group.deviation, metric)}"
    number = len(group.results)
    return text + (f" ({number} seed{'' if number == 1 else 's'})" if with_seeds else "")


def difference_cell(study: Study, group: Group | None, other: Group | float | None) -> Cell:
    """The mean of ``group`` minus that of ``other``, which may be a printed figure; a dash if one is missing.

    The cell has a tone if the difference is significant (`is_significant`).
    """
    if group is None or other is None:
        return Cell(difference(None, study.metric))
    mean, values = (other.mean, other.values) if isinstance(other, Group) else (other, other)
    away = group.mean - mean
    if not is_significant(group.values, values):
        return Cell(difference(away, study.metric))
    return Cell(difference(away, study.metric), "better" if study.is_better(away) else "worse")
