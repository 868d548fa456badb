"""The headline and tables of a study as Markdown, for the ``tables.md`` of a report."""

from __future__ import annotations

from algebranets.lab.report import summary, tables
from algebranets.lab.report.paper.departures import TITLES
from algebranets.lab.report.study import Study


def title(study: Study) -> str:
    """The title of a study, such as ``CIFAR-10``; the name of its recipe if it has no title."""
    return TITLES.get(study.recipe, study.recipe)


def markdown(study: Study, level: int = 2) -> str:
    """The title, headline and all tables of a study, with their notes, as Markdown.

    A report writes this text to ``tables.md``. It has no links and no figures, so you can insert it anywhere in a page.
    It needs no matplotlib.

    >>> from pathlib import Path
    >>> from algebranets.lab.report.study import studies
    >>> from algebranets.lab.train import results
    >>> (study,) = studies(results.read([Path("results/digits.jsonl")]))
    >>> [line for line in markdown(study).splitlines() if line.startswith("#")]
    ['## Handwritten digits', '### Compared with the real network']

    Args:
        study: The study.
        level: The level of the title's heading, from 1 on. Tables have headings one level below it.
    """
    parts = [f"{'#' * level} {title(study)}\n", f"{summary.headline(study)}\n"]
    return "\n".join([*parts, *(sheet.markdown(level + 1) for sheet in tables.sheets(study))])
