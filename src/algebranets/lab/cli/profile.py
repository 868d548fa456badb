"""The command ``profile``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from algebranets import algebra as algebras
from algebranets.lab.cli import completion, training
from algebranets.lab.cli.terminal import console, new_table, read_settings, short, show

if TYPE_CHECKING:
    from algebranets.accounting import Account, Row

#: A column: its heading, and the text for a stage and the same stage over R, which is None if R's model lacks it.
Column = tuple[str, Callable[["Row", "Row | None"], str]]


def profile(
    model: Annotated[
        str,
        typer.Argument(
            help="Name of a model, such as resnet50; an unknown name lists all models.",
            autocompletion=completion.models,
        ),
    ],
    algebra: training.Algebra = "R",
    width: Annotated[float | None, typer.Option(help="Width multiplier of an image network.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the model, such as num_layers=42; can be repeated.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, max=2**16, help="Height and width of the image, in pixels.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Number of parts of a layer's name that make a stage.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts of every layer, as JSON.")] = False,
) -> None:
    """Count a model's parameters, multiply-adds, weights read and activations for one image or token.

    The model is compared with the same model over R.
    """
    chosen = algebras.get(algebra)
    own = {**({} if width is None else {"width": width}), **read_settings(options or [])}
    arguments = {"algebra": chosen, **own}
    total, operations, unit = _count(model, arguments, image_size)
    real = None if chosen == algebras.R else _count(model, {"algebra": algebras.R, **own}, image_size).cost
    if as_json:
        counted = {"model": model, "options": arguments, **total.to_dict(), "paper": operations}
        compared = {} if real is None else {"real": {"parameters": real.parameters, "multiplies": real.multiplies}}
        console.print_json(json.dumps(counted | compared, default=str))
        return
    settings = ", ".join(f"{key} {value}" for key, value in arguments.items())
    title = f"{model}, {settings}: one {unit}"
    if real is None:
        _print(title, _paired(total, total, depth), [_PARAMETERS, _MULTIPLIES, *_TRAFFIC])
    else:
        rows = _paired(total, real, depth)
        _print(title, rows, [_PARAMETERS, *_compared("parameters"), _MULTIPLIES, *_compared("multiplies")])
        _print("Memory traffic", rows, _TRAFFIC)
    if total.statistics:
        console.print(f"Not included: {short(total.statistics)} moving statistics.")
    if operations is not None and round(operations) != total.multiplies:
        console.print(f"Operations as the paper counts them: {short(operations)}.")


class _Counted(NamedTuple):
    """The cost of a model, its operations as the paper counts them, and what was counted: an image or a token."""

    cost: Account
    operations: float | None
    unit: str


def _count(name: str, arguments: Mapping[str, Any], image_size: int | None) -> _Counted:
    import torch

    from algebranets import accounting, models
    from algebranets.lab.report.paper.operations import count_operations

    with torch.device("meta"):  # counting needs no weights
        built: Any = models.create(name, **arguments)
        inputs = built.example_inputs(**_image_size(name, built, image_size))
    unit = "image" if inputs[0].dim() == 4 else "token"
    return _Counted(accounting.account(built, *inputs), count_operations(built, *inputs), unit)


def _image_size(name: str, model: Any, size: int | None) -> dict[str, int]:
    if size is None:
        return {}
    if "image_size" not in signature(model.example_inputs).parameters:
        raise ValueError(f"--image-size must be left out: {name} takes no image.")
    return {"image_size": size}


#: The columns of a profile.
_PARAMETERS: Column = ("parameters", lambda row, _: short(row.parameters))
_MULTIPLIES: Column = ("multiply-adds", lambda row, _: short(row.multiplies))
_TRAFFIC: tuple[Column, ...] = (
    ("multiplies per\nvalue loaded", lambda row, _: f"{row.intensity:.2f}" if row.multiplies else "-"),
    ("weights\nread", lambda row, _: f"{short(row.bytes)}B"),
    ("\nactivations", lambda row, _: short(row.activations)),
)


def _compared(count: str) -> tuple[Column, Column]:
    """The columns after a count: the count over R, and ours divided by it."""

    def ratio(ours: Row, real: Row | None) -> str:
        whole = 0 if real is None else getattr(real, count)
        return f"{getattr(ours, count) / whole:.3f}" if whole else "-"

    return ("over R", lambda _, real: "-" if real is None else short(getattr(real, count))), ("ratio", ratio)


def _paired(total: Account, real: Account, depth: int) -> list[tuple[Row, Row | None]]:
    """Every stage and the same stage over R, then both totals."""
    stages = {row.name: row for row in real.stages(depth)}
    return [*((row, stages.get(row.name)) for row in total.stages(depth)), (total, real)]


def _print(title: str, rows: Sequence[tuple[Row, Row | None]], columns: Sequence[Column]) -> None:
    """Print a table of stages. The last row is the total."""
    table = new_table(title)
    lines = max(heading.count("\n") for heading, _ in columns)
    table.add_column("\n" * lines + "stage")
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    *stages, total = rows
    for row, real in stages:
        table.add_row(row.name or "(model)", *(cell(row, real) for _, cell in columns))
    table.add_section()
    table.add_row("total", *(cell(*total) for _, cell in columns), style="bold")
    show(table)
