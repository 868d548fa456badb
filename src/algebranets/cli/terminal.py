"""What every command shares: the terminal, its tables, and an algebra by its name."""

from __future__ import annotations

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from algebranets import algebra as algebras
from algebranets.algebra import Algebra

console = Console()


def new_table(title: str) -> Table:
    """A table in the house style: as wide as what it holds, no frame."""
    return Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)


def get_algebra(name: str) -> Algebra:
    """The algebra of this name, or the end of the program with what is wrong."""
    try:
        return algebras.get(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
