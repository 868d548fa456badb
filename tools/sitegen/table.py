"""Parts of the report's tables, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from algebranets.lab.report.parts import Sheet, markdown_table


def pick(sheet: Sheet, headings: Sequence[str], names: Sequence[str] = ()) -> str:
    """Some columns and rows of a table of the report.

    Args:
        sheet: The table.
        headings: The columns to keep, by the beginnings of their headings.
        names: The rows to keep, by their first cells. By default all.
    """
    places = [_place(sheet, heading) for heading in headings]
    kept = [row for row in sheet.rows if not names or row[0].text in names]
    cells = [[row[place].bold for place in places] for row in kept]
    prose = [number for number, place in enumerate(places) if place in sheet.prose]
    return markdown_table([sheet.headings[place] for place in places], cells, prose)


def _place(sheet: Sheet, heading: str) -> int:
    exact = [number for number, found in enumerate(sheet.headings) if found == heading]
    found = exact or [number for number, text in enumerate(sheet.headings) if text.startswith(heading)]
    if not found:
        known = ", ".join(sheet.headings)
        raise ValueError(f"the table {sheet.title!r} must have a column {heading!r}; it has: {known}.")
    return found[0]
