"""The command ``paper``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from algebranets.lab.cli.terminal import console, new_table, show

if TYPE_CHECKING:
    from algebranets.lab.report.paper import Entry, Table


def print_paper(
    differences: Annotated[
        bool, typer.Option("--differences", help="Print only the figures that differ, each with the reason.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print every table of the paper: its figures, ours computed from the models, and their difference."""
    from algebranets.lab.report import paper

    tables = list(paper.tables())
    shown = [found for table in tables if (found := _differing(table)).entries] if differences else tables
    if as_json:
        console.print_json(json.dumps([asdict(table) for table in shown]))
        return
    for table in shown:
        _print(table)
    compared = [entry.agrees for table in tables for entry in table.entries if entry.agrees is not None]
    console.print(
        f"{sum(compared)} of {len(compared)} figures are the same to the digits printed. "
        f"{len(compared) - sum(compared)} differ"
        + (", as above." if differences else "; `algebranets paper --differences` prints only these.")
    )


def _differing(table: Table) -> Table:
    """The table with only the figures that differ from ours."""
    return replace(table, entries=tuple(entry for entry in table.entries if entry.agrees is False))


def _print(published: Table) -> None:
    table = new_table(published.title)
    for heading in ("row", "quantity", published.heading, "computed", "difference", "note"):
        table.add_column(heading, justify="left" if heading in ("row", "quantity") else "right")
    notes = _notes(published.entries)
    row = ""
    for entry in published.entries:
        mark = "" if entry.agrees or entry.note is None else f"[{notes.index(entry.note) + 1}]"
        table.add_row(
            entry.row if entry.row != row else "", entry.quantity, entry.printed, _computed(entry), _difference(entry),
            mark,
        )  # fmt: skip
        row = entry.row
    show(table)
    for number, note in enumerate(notes, 1):
        console.print(f"[{number}] {note}")
    for note in published.notes:
        console.print(note)
    console.print()


def _notes(entries: Sequence[Entry]) -> list[str]:
    """The notes on figures that do not agree, each once."""
    return list(dict.fromkeys(entry.note for entry in entries if entry.note and not entry.agrees))


def _computed(entry: Entry) -> str:
    if entry.computed is None or isinstance(entry.computed, str):
        return entry.computed or "-"
    return f"{entry.computed:.{max(entry.decimals, 1)}f}"


def _difference(entry: Entry) -> str:
    if entry.agrees is None:
        return ""
    if entry.agrees:
        return "none"
    return "differs" if entry.difference is None else f"{100 * entry.difference:+.2f} %"
