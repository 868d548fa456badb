"""The parts of a report: tables, their cells, and key figures.

The cells of a `Sheet` are text. The terminal, the Markdown file and the page each draw it in their own way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import NONE, difference, interval, quality
from algebranets.lab.report.significance import is_significant
from algebranets.lab.report.study import Study

#: What a cell says about a significant difference: it is an improvement, it is none, or it is neither, as the
#: difference to a printed figure.
Tone = Literal["", "better", "worse", "differs"]

#: The heading of the column with `interval_cell`.
INTERVAL = "95 % interval"


class Cell(NamedTuple):
    """The text of a cell, and its tone if it is a significant difference."""

    text: str
    tone: Tone = ""

    @property
    def bold(self) -> str:
        """The text as Markdown: bold if it is a significant difference."""
        return f"**{self.text}**" if self.tone else self.text

    @property
    def verdict(self) -> str:
        """The word that follows the text, so that the color of the cell is not needed: better, worse, or nothing."""
        return self.tone if self.tone in ("better", "worse") else ""

    @property
    def words(self) -> str:
        """The text and the verdict.

        >>> Cell("+0.030", "worse").words, Cell("+0.030").words
        ('+0.030 worse', '+0.030')
        """
        return f"{self.text} {self.verdict}".strip()


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

    def compact(self) -> Sheet:
        """The table without the columns that have no value in any row.

        >>> cells = (Cell("R"), Cell("–"), Cell("94.20"))
        >>> Sheet("Means", ("network", "of R", "accuracy"), (cells,)).compact().headings
        ('network', 'accuracy')
        """
        kept = [n for n in range(len(self.headings)) if n == 0 or any(row[n].text != NONE for row in self.rows)]
        return replace(
            self,
            headings=tuple(self.headings[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
            prose=tuple(place for place, n in enumerate(kept) if n in self.prose),
        )

    def markdown(self, level: int = 3) -> str:
        """The table as Markdown, with its title as a heading of this level."""
        rows = ([f"{cell.bold} {cell.verdict}".strip() for cell in row] for row in self.rows)
        table = markdown_table(self.headings, rows, self.prose)
        return "\n\n".join([f"{'#' * level} {self.title}", table, *self.notes]) + "\n"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], prose: Sequence[int] = (0,)) -> str:
    r"""A table in Markdown.

    >>> print(markdown_table(["", "C"], [["linear", "1.13"], ["a|b", ""]]))
    | | C |
    | --- | ---: |
    | linear | 1.13 |
    | a\|b | |

    Args:
        headings: One heading for each column.
        rows: The cells, row by row.
        prose: The indices of the columns with words; all others have numbers.
    """
    marks = ["---" if column in prose else "---:" for column in range(len(headings))]
    lines = (" | ".join(text.replace("|", "\\|") for text in line) for line in (headings, marks, *rows))
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", f"| {line} |") for line in lines)


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


def spread(group: Group) -> str:
    """The standard deviation of a network's metric and the number of seeds, such as ``± 0.12 over 3 seeds``."""
    if group.deviation is None:
        return "1 seed" if len(group.results) == 1 else f"{len(group.results)} seeds"
    return f"± {quality(group.deviation, group.first.metric)} over {len(group.results)} seeds"


def interval_cell(group: Group) -> Cell:
    """The 95 % interval of a network's accuracy, such as ``95.32 to 98.68``; a dash if it is not known."""
    return Cell(interval(group.interval, group.first.metric))


def difference_cell(study: Study, group: Group | None, other: Group | float | None) -> Cell:
    """The mean of ``group`` minus that of ``other``, which may be a printed figure; a dash if one is missing.

    The cell has a tone if the difference is significant (`is_significant`). A difference to a printed figure is called
    neither better nor worse: a real network that is better than the printed one does not support the paper's claim.
    """
    if group is None or other is None:
        return Cell(difference(None, study.metric))
    mean, values = (other.mean, other.values) if isinstance(other, Group) else (other, other)
    away = group.mean - mean
    text = difference(away, study.metric)
    if not is_significant(group.values, values):
        return Cell(text)
    if not isinstance(other, Group):
        return Cell(text, "differs")
    return Cell(text, "better" if study.is_better(away) else "worse")
