"""The command ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from algebranets.lab.cli.terminal import console, new_table, say, show

if TYPE_CHECKING:
    from algebranets.lab.report.parts import Sheet

_STYLES = {"": "", "better": "bold green", "worse": "bold red"}
#: Line breaks in headings, so that tables fit in 80 columns.
_BREAKS = {
    "parameters": "para-\nmeters",
    "multiply-adds": "multi-\nply-adds",
    "accuracy": "accu-\nracy",
    "difference": "differ-\nence",
    "training time": "time",
    "without the change": "without\nthe change",
    "time of a step": "time of\na step",
    "sparsity": "spar-\nsity",
    " not zero": "\nnot zero",
    " left": "\nleft",
    " eigenvalue": "\neigenvalue",
    ", ": ",\n",
}


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, folders that contain run folders, or .jsonl files of results.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("report"),
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
    table = new_table(title)
    for column, heading in enumerate(sheet.headings):
        prose = column in sheet.prose
        for whole, broken in _BREAKS.items():
            heading = heading.replace(whole, broken)
        table.add_column(heading, justify="left" if prose else "right", no_wrap=not prose, overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(_broken(cell.text), style=_STYLES[cell.tone]) for cell in row))
    show(table)
    for note in sheet.notes:
        console.print(note)
    console.print()


def _broken(text: str) -> str:
    """Put the number of seeds on a new line, below the mean and its deviation."""
    return text.replace(" (", "\n(") if "±" in text and "seed" in text else text
