"""The command ``report``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from algebranets.lab.cli.terminal import console, new_table, say, show

if TYPE_CHECKING:
    from algebranets.lab.report.parts import Sheet

_STYLES = {"": "", "better": "bold green", "worse": "bold red", "differs": "bold"}


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders that contain run folders, or .jsonl files of results.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write to. Each recipe gets a folder in it.")] = Path(
        "report"
    ),
) -> None:
    """Compare finished runs with the paper: print tables, and write a page with figures and learning curves."""
    from algebranets.lab.report import page, summary, tables
    from algebranets.lab.report.study import studies
    from algebranets.lab.train import results

    found = results.read(runs)
    path = page.write(found, out)
    for study in studies(found):
        for sheet in tables.sheets(study):
            _print(f"{study.recipe}: {sheet.title[0].lower()}{sheet.title[1:]}", sheet)
        console.print(summary.headline(study))
        console.print()
    for folder in results.unfinished(runs):
        say(f"Left out, because it is not finished: {folder}")
    say(f"The page: {path}")


def _print(title: str, sheet: Sheet) -> None:
    """Print a table. If it is wider than the terminal, its columns are printed in several tables, one after another."""
    widths = [_width(sheet, column) for column in range(len(sheet.headings))]
    for columns in _blocks(widths, console.width):
        table = new_table(title)
        for column in columns:
            heading, is_prose = sheet.headings[column], column in sheet.prose
            if not is_prose:
                heading = "\n".join(textwrap.wrap(heading, widths[column]))
            table.add_column(
                heading, justify="left" if is_prose else "right", no_wrap=not is_prose, min_width=widths[column]
            )
        for row in sheet.rows:
            table.add_row(*(Text(_stacked(row[column].words), style=_STYLES[row[column].tone]) for column in columns))
        show(table)
        title = f"{title.removesuffix(', continued')}, continued"
    for note in sheet.notes:
        console.print(note)
    console.print()


def _width(sheet: Sheet, column: int) -> int:
    """The width that a column needs: its longest line or, in a column of words, its longest word."""
    texts = [row[column].words for row in sheet.rows]
    parts = [part for text in texts for part in (text.split() if column in sheet.prose else _stacked(text).split("\n"))]
    return max(map(len, [*parts, *sheet.headings[column].replace("-", "- ").split()]))


def _blocks(widths: list[int], room: int) -> list[list[int]]:
    """Divide columns into tables that fit into ``room``. Each table starts with the first column.

    >>> _blocks([10, 5, 5, 5], room=26), _blocks([10, 5, 5, 5], room=40)
    ([[0, 1, 2], [0, 3]], [[0, 1, 2, 3]])
    """
    blocks = [[0]]
    for column in range(1, len(widths)):
        if sum(widths[n] + 2 for n in [*blocks[-1], column]) > room and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(column)
    return blocks


def _stacked(text: str) -> str:
    """Put the number of seeds on a new line, below the mean and its deviation."""
    return text.replace(" (", "\n(") if "±" in text and "seed" in text else text
