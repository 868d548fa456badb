"""Functions that commands share: printing on the terminal, tables, and reading of arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Markup is off, so that names and paths are printed unchanged.
console = Console(markup=False, emoji=False, highlight=False)
error_console = Console(stderr=True, markup=False, emoji=False, highlight=False)

#: The width that each column of a table takes besides its text.
_GAP = 2


def new_table(title: str | None = None) -> Table:
    """A table in the house style, without a frame."""
    return Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)


def say(text: str, mark: str = "", style: str = "", on: Console = console) -> None:
    """Print a sentence without wrapping it, so that a path in it can be copied.

    Args:
        text: The sentence.
        mark: A word before it, as in "error: ...".
        style: The style of the mark.
        on: The console to print on.
    """
    on.print(Text.assemble((mark, style), ": " if mark else "", printable(text)), soft_wrap=True)


def printable(text: str) -> str:
    """The text on one line, with escapes for characters that are not printable.

    >>> print(printable(chr(27) + "[31m of" + chr(10) + "two lines"))
    \\x1b[31m of two lines
    """
    one_line = " ".join(text.splitlines())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in one_line)


def read_settings(options: list[str]) -> dict[str, object]:
    """Read settings from ``NAME=VALUE`` texts. A value that is not a Python literal is a string.

    >>> read_settings(["num_layers=42", "norm=whitening"])
    {'num_layers': 42, 'norm': 'whitening'}
    """
    settings: dict[str, object] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, as in --set num_layers=42; got {option!r}.")
        settings[key] = _read_value(key, text)
    return settings


def _read_value(key: str, text: str) -> object:
    words = {"true": True, "false": False}
    if text in words:
        return words[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # everything that literal_eval may raise
        return text
    if isinstance(value, int) and abs(value) >= 2**63:  # too large for torch, and for some floats
        raise ValueError(f"--set {key}: a whole number must lie between -2^63 and 2^63; got {len(text)} characters.")
    return value


def read_duration(text: str) -> float:
    """Read a time in hours, minutes and seconds, and return it in seconds.

    >>> read_duration("25m"), read_duration("1h30m"), read_duration("90s"), read_duration("1.5h")
    (1500.0, 5400.0, 90.0, 5400.0)
    """
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text)
    parts = found.groups("0") if found else ("0", "0", "0")
    seconds = sum(float(part) * size for part, size in zip(parts, (3600, 60, 1), strict=True))
    if not seconds:
        raise ValueError(f"a time must be positive and written as in 25m, 1h30m or 90s; got {text!r}.")
    return seconds


def split_names(text: str) -> list[str]:
    """Split names at commas, except commas within parentheses.

    >>> split_names("R, clifford(2,0),M2R")
    ['R', 'clifford(2,0)', 'M2R']
    """
    return [name.strip() for name in re.split(r",(?![^(]*\))", text)]


def show(table: Table) -> None:
    """Print a table. If the terminal is too narrow, lines are longer than the terminal, and no text is cut."""
    if table.title:  # rich would break it to the width of the table
        console.print(Text(str(table.title), style="table.title"), soft_wrap=True)
        table.title = None
    _widen(table)
    console.print(table, crop=False)


def _widen(table: Table) -> None:
    """Fix the width of a table that is too wide for the terminal, since rich would cut its texts."""
    wide = console.options.update_width(10_000)
    widths = []
    for column in table.columns:
        cells = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
        widths.append(max(cell.maximum if column.no_wrap else cell.minimum for cell in cells))
    if sum(widths) + _GAP * len(widths) > console.width:
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        table.width = console.measure(table, options=wide).maximum


def table_of_names(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()
) -> Table:
    """A table whose first column has names, which are `broken` so that the table fits the terminal.

    Args:
        title: The table's title.
        headings: One heading for each column.
        rows: The cells, row by row.
        numbers: The headings of the columns with numbers, which are aligned to the right.
    """
    rows, numbers = list(rows), set(numbers)
    others = list(zip(headings, *rows, strict=True))[1:]
    widths = [max(cell_len(line) for text in column for line in text.split("\n")) for column in others]
    room = console.width - sum(widths) - _GAP * len(headings)
    table = new_table(title)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
    for name, *cells in rows:
        table.add_row(broken(name, room), *cells)
    return table


def broken(name: str, width: int) -> str:
    """A name on as many lines as it needs, broken after "-" and "/" only.

    >>> print(broken("demo/M2R-norm-whitening-seed0", 16))
    demo/M2R-norm-
    whitening-seed0
    """
    lines = [""]
    for part in re.findall(r"[^-/]+[-/]*|[-/]+", name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def read_example(shape: str, model: nn.Module) -> Tensor:
    """Return an example input of the shape in ``--shape``: random numbers, or random tokens for a language model.

    Args:
        shape: Positive whole numbers between commas.
        model: The model. A language model has an attribute ``vocab_size``, or its configuration has.

    >>> from torch import nn
    >>> read_example("1,3,32,32", nn.Linear(2, 2)).shape
    torch.Size([1, 3, 32, 32])
    """
    import torch

    try:
        sizes = [int(size) for size in shape.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ValueError(f"--shape must be positive whole numbers, as in --shape 1,3,32,32; got {shape!r}.")
    generator = torch.Generator().manual_seed(0)
    vocab_size = getattr(model, "vocab_size", getattr(getattr(model, "config", None), "vocab_size", None))
    if vocab_size is not None:
        return torch.randint(int(vocab_size), sizes, generator=generator)
    return torch.randn(sizes, generator=generator, dtype=next(model.parameters()).dtype)


def short(number: float) -> str:
    """A number with four digits and a prefix, such as ``12.34 M``. A unit can be appended, as in ``12.34 MB``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:#.4g} {unit}"
    return f"{number:.0f} "
