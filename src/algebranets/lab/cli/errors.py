"""Errors of commands: a box on standard error, and exit code 2."""

from __future__ import annotations

import io
import os
import sys
import traceback
from importlib.util import find_spec
from typing import Any

import typer
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperGroup

from algebranets.lab.cli.terminal import error_console, printable, say

#: The environment variable that turns on tracebacks.
SHOW_TRACEBACK = "ALGEBRANETS_TRACEBACK"


class Commands(TyperGroup):
    """The commands, and the only place where their errors are caught.

    Every error is a box on standard error, and exit code 2. Typer prints usage errors in the same box. Ctrl-C is one
    line and exit code 130.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):  # print "±" as an escape if the encoding does not have it
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().main(*args, **options)
        except Exception as error:
            if os.environ.get(SHOW_TRACEBACK):
                traceback.print_exception(error)
            error_console.print(boxed(describe(error)))
            sys.exit(2)

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            say("stopped.", on=error_console)
            raise typer.Exit(130) from None


def boxed(message: str) -> Panel:
    """A message in the box that typer draws around usage errors, wrapped to the width of the terminal."""
    encoding = error_console.encoding
    text = printable(message).encode(encoding, "backslashreplace").decode(encoding)
    return Panel(Text(text), title="Error", title_align="left", border_style="red")


def describe(error: Exception) -> str:
    """The text that is printed for an error. An unexpected error is called a possible bug."""
    said, kind = str(error), type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    # Subclasses of ValueError come from other libraries and do not tell the user what to do.
    if said and (isinstance(error, OSError) or type(error) is ValueError):
        return said
    if module := _missing_module(error):
        return f"this command needs the Python module {module}, which is not installed. Install its package with pip."
    if _is_out_of_memory(error):
        return f"out of memory ({kind}: {said}). Use smaller sizes, or a smaller batch."
    return f"unexpected {kind}: {said} (This may be a bug in algebranets. {SHOW_TRACEBACK}=1 shows the traceback.)"


def _missing_module(error: Exception) -> str:
    """The module that could not be imported because it is not installed; "" for any other error."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return module if module and find_spec(module) is None else ""


def _is_out_of_memory(error: Exception) -> bool:
    if "torch" not in sys.modules:  # to import it here would be slow, and might fail
        return isinstance(error, MemoryError)
    from algebranets.lab.train.memory import is_out_of_memory

    return is_out_of_memory(error)
