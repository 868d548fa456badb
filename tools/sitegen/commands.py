"""The page of the command line: the help text, arguments and options of every command."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from algebranets.lab.cli import app

PAGE = "reference/command_line.md"


def page() -> str:
    """The text of the page."""
    root = typer.main.get_command(app)
    opening = ["# The command line\n", "`algebranets COMMAND --help` prints the same texts in the terminal.\n"]
    return "\n".join([*opening, *_options(root), *_commands(root, "algebranets")]) + "\n"


def paths() -> list[str]:
    """All commands, such as ``algebranets bench layers``."""
    return [path for path, _ in _walk(typer.main.get_command(app), "algebranets")]


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield f"{path} {name}", inner
            yield from _walk(inner, f"{path} {name}")


def _commands(root: Any, name: str) -> Iterator[str]:
    for path, command in _walk(root, name):
        yield f"## {path} {{#{path.replace(' ', '-')}}}\n"
        arguments = "".join(f" {_metavar(each)}" for each in command.params if each.param_type_name == "argument")
        yield f"```\n{path}{arguments or ' COMMAND' * hasattr(command, 'commands')} [OPTIONS]\n```\n"
        yield f"{inspect.cleandoc(command.help or '')}\n"
        yield from _options(command)


def _metavar(argument: Any) -> str:
    """An argument in a usage line, such as ``RUNS...``; in brackets if it may be left out."""
    name = (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _options(command: Any) -> Iterator[str]:
    """A table of the arguments and options of a command."""
    shown = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    if not shown:
        return
    yield "| | | default |\n|---|---|---|"
    for each in shown:
        is_argument = each.param_type_name == "argument"
        names = _metavar(each) if is_argument else ", ".join([*each.opts, *each.secondary_opts])
        text = " ".join((getattr(each, "help", "") or "").split()).replace("|", "\\|")
        yield f"| `{names}` | {text} | {_default(each)} |"
    yield ""


def _default(option: Any) -> str:
    value = getattr(option, "show_default", None)
    value = value if isinstance(value, str) else option.default
    says_nothing = value is None or isinstance(value, bool) or value in ((), [], "")  # 0 and 1 are shown
    if says_nothing or callable(value) or option.required:
        return ""
    return f"`{value}`"
