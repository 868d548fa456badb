"""Turns a benchmark into a command: adds the shared options, measures, prints and saves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from algebranets import checks
from algebranets.lab.cli.bench import options
from algebranets.lab.cli.bench.table import print_rows

if TYPE_CHECKING:
    from algebranets.lab.bench import Row, Run

DTYPES = ("float32", "float64", "bfloat16", "float16")

Measure = Callable[..., "Iterable[Row]"]


def add_command(
    app: typer.Typer,
    title: str,
    *,
    dtype: str = "float32",
    dtype_option: Any = options.Autocast,
    rounds: int = 11,
    on_gpu_only: bool = False,
) -> Callable[[Measure], Measure]:
    """Return a decorator that turns a function into a command of the same name. The function returns rows.

    The function's first parameter is the `Run`. Its other parameters are the command's own options, which come before
    ``--device``, ``--dtype``, ``--rounds``, ``--capture`` and ``--save``. The command prints the rows as a table.

    Args:
        app: The app to which the command is added.
        title: The title of the table; ``{dtype}`` in it is replaced by the precision.
        dtype: The default of ``--dtype``.
        dtype_option: The option ``--dtype``: `options.Autocast` or `options.Stored`.
        rounds: The default of ``--rounds``.
        on_gpu_only: Whether the benchmark runs on a GPU only, so that the command has no ``--device``.
    """
    shared = {
        **({} if on_gpu_only else {"device": (options.Device, "cpu")}),
        "dtype": (dtype_option, dtype),
        "rounds": (options.Rounds, rounds),
        "capture": (options.Capture, True),
        "save": (options.Save, None),
    }
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    def decorate(measure: Measure) -> Measure:
        _, *own = inspect.signature(measure).parameters.values()
        added = [inspect.Parameter(name, kind, default=default, annotation=a) for name, (a, default) in shared.items()]

        def command(device: str = "cuda", **given: Any) -> None:
            precision, save = given.pop("dtype"), given.pop("save")
            run = make_run(device, precision, given.pop("rounds"), given.pop("capture"))
            print_rows(title.format(dtype=precision), measure(run, **given), save)

        command.__doc__ = measure.__doc__
        command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
        app.command(measure.__name__)(command)
        return measure

    return decorate


def make_run(device: str, dtype: str, rounds: int, capture: bool) -> Run:
    """The `Run` for the options of a command. Raises an error if there is no such precision or device here."""
    import torch

    from algebranets.lab.bench import Run

    checks.one_of("--dtype", dtype, DTYPES)
    checks.one_of("--device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("this needs a GPU, and torch sees no CUDA device here.")
    number: torch.dtype = getattr(torch, dtype)
    return Run(device, number, rounds, capture)


def check_each(option: str, given: Iterable[str] | None, choices: Iterable[str]) -> None:
    """Check every value of an option that can be repeated."""
    for value in given or ():
        checks.one_of(option, value, choices)
