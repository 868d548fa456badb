"""What every command shares: the terminal, its tables, numbers on them, and what is read from arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from algebranets import algebra as algebras
from algebranets.algebra import Algebra

console = Console()

T = TypeVar("T")


def new_table(title: str) -> Table:
    """A table in the house style: as wide as what it holds, no frame."""
    return Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)


def or_exit(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What the function gives, or the end of the program with what is wrong."""
    try:
        return function(*arguments, **options)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from None


def get_algebra(name: str) -> Algebra:
    """The algebra of this name, or the end of the program with what is wrong."""
    return or_exit(algebras.get, name)


def read_settings(options: list[str]) -> dict[str, object]:
    """``["num_layers=42"]`` as ``{"num_layers": 42}``; what is no Python literal is a string."""
    settings: dict[str, object] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes NAME=VALUE, as in --set num_layers=42; got {option!r}.")
        words = {"true": True, "false": False}
        try:
            settings[key] = words[text] if text in words else ast.literal_eval(text)
        except (ValueError, SyntaxError):
            settings[key] = text
    return settings


def read_duration(text: str) -> float:
    """Seconds, of hours, minutes and seconds.

    >>> read_duration("25m"), read_duration("1h30m"), read_duration("90s"), read_duration("1.5h")
    (1500.0, 5400.0, 90.0, 5400.0)
    """
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text)
    parts = found.groups("0") if found else ("0", "0", "0")
    seconds = sum(float(part) * size for part, size in zip(parts, (3600, 60, 1), strict=True))
    if not seconds:
        raise typer.BadParameter(f"a time must be as in 25m, 1h30m or 90s, and more than none; got {text!r}.")
    return seconds


def split_names(text: str) -> list[str]:
    """Names with commas between; those within parentheses are the name's own.

    >>> split_names("R, clifford(2,0),M2R")
    ['R', 'clifford(2,0)', 'M2R']
    """
    return [name.strip() for name in re.split(r",(?![^(]*\))", text)]


def show(table: Table) -> None:
    """Print a table. Where it has columns that do not wrap and no room for them, it runs over: nothing is cut."""
    wide = console.options.update_width(10_000)
    widths = []
    for column in table.columns:
        cells = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
        widths.append(max(cell.maximum if column.no_wrap else cell.minimum for cell in cells))
    if sum(widths) + len(widths) + 1 > console.width:
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        table.width = console.measure(table, options=wide).maximum
    console.print(table, crop=False)


def short(number: float) -> str:
    """Such as ``12.34 M``; ready for what is counted, as in ``12.34 MB`` and ``12.34 M parameters``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:#.4g} {unit}"
    return f"{number:.0f} "
