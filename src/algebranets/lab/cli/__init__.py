"""The command line: ``algebranets --help``."""

from __future__ import annotations

from typing import Annotated

import typer

from algebranets import __version__
from algebranets.lab.cli import (
    algebras,
    bench,
    convert,
    demo,
    export,
    paper,
    profile,
    publish,
    recipes,
    report,
    sparse,
    sweep,
    training,
    writing,
)
from algebranets.lab.cli.errors import SHOW_TRACEBACK, Commands
from algebranets.lab.cli.terminal import console

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    epilog=f"Errors end with exit code 2. Set {SHOW_TRACEBACK}=1 in the environment to see tracebacks.",
)
app.command("algebras")(algebras.list_algebras)
app.command("algebra")(algebras.show_algebra)
app.command("profile")(profile.profile)
app.command("paper")(paper.print_paper)
app.command("recipes")(recipes.list_recipes)
app.command("train")(training.train)
app.command("eval")(training.evaluate)
app.command("generate")(writing.generate)
app.command("sparse")(sparse.sparse)
app.command("convert")(convert.convert)
app.command("export")(export.export)
app.command("publish")(publish.publish)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"algebranets {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Neural networks over algebras: train, compare and time them."""
