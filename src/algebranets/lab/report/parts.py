"""What reports are made of: tables, their cells, and key figures.

A `Sheet` is text in cells; the terminal, Markdown and the page each draw it in their own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from algebranets.lab.report.groups import Group, Study
from algebranets.lab.report.numbers import difference, quality

Tone = Literal["", "better", "worse"]


class Cell(NamedTuple):
    """What stands in a cell, and whether it is clearly for better or worse."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Sheet:
    """A table; the first column names the rows, those in ``prose`` hold words, all others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    prose: tuple[int, ...] = (0,)

    def markdown(self) -> str:
        """As Markdown, its title a heading."""
        marks = ["---" if column in self.prose else "---:" for column in range(len(self.headings))]
        lines = [self.headings, marks, *([_bold(cell) for cell in row] for row in self.rows)]
        table = "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
        return "\n\n".join([f"### {self.title}", table, *self.notes]) + "\n"


def _bold(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.tone else cell.text


@dataclass(frozen=True)
class Card:
    """One key figure, and what it is."""

    figure: str
    meaning: str


def reached(group: Group, seeds: bool = True) -> str:
    """Such as ``94.31 ± 0.12 (3 seeds)``."""
    metric = group.first.metric
    text = quality(group.mean, metric)
    if group.spread is not None:
        text += f" ± {quality(group.spread, metric)}"
    number = len(group.results)
    return text + (f" ({number} seed{'' if number == 1 else 's'})" if seeds else "")


def compared(study: Study, group: Group, away: float | None, other: Group | None = None) -> Cell:
    """A difference of the group's, to ``other`` if given; it is set off where it `tells`."""
    if away is None or not group.tells(away, other):
        return Cell(difference(away, study.metric))
    return Cell(difference(away, study.metric), "better" if study.better(away) else "worse")
