"""The commands ``profile`` and ``paper``."""

from __future__ import annotations

import json
from dataclasses import asdict
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from algebranets import algebra as algebras
from algebranets.lab.cli.terminal import console, new_table, read_settings, short, show

if TYPE_CHECKING:
    from algebranets import accounting
    from algebranets.lab.report import paper


def profile(
    model: Annotated[str, typer.Argument(help="Name of a model, such as resnet50; an unknown name lists all models.")],
    algebra: Annotated[
        str, typer.Option(help="Name of an algebra, a constructor such as 'clifford(2,0)', or a file.")
    ] = "R",
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
    """Count a model's parameters, multiply-adds, weights read and activations for one image or token."""
    import torch

    from algebranets import accounting, models
    from algebranets.lab.report.paper import count_operations

    arguments = {
        "algebra": algebras.get(algebra),
        **({} if width is None else {"width": width}),
        **read_settings(options or []),
    }
    with torch.device("meta"):  # counting needs no weights
        built: Any = models.create(model, **arguments)
        inputs = built.example_inputs(**_image_size(model, built, image_size))
    total, printed = accounting.account(built, *inputs), count_operations(built, *inputs)
    if as_json:
        counted = {"model": model, "options": arguments, **total.to_dict(), "paper": printed}
        console.print_json(json.dumps(counted, default=str))
        return
    settings = ", ".join(f"{key} {value}" for key, value in arguments.items())
    table = new_table(f"{model}, {settings}: one {'image' if inputs[0].dim() == 4 else 'token'}")
    table.add_column("stage")
    for heading in ("parameters", "multiply-\nadds", "multiplies per\nvalue loaded", "weights read", "activations"):
        table.add_column(heading, justify="right")
    for row in total.stages(depth):
        table.add_row(row.name or "(model)", *_figures(row))
    table.add_section()
    table.add_row("total", *_figures(total), style="bold")
    show(table)
    if total.statistics:
        console.print(f"Not included: {short(total.statistics)} moving statistics.")
    if printed is not None and round(printed) != total.multiplies:
        console.print(f"Operations as the paper counts them: {short(printed)}.")


def _image_size(name: str, model: Any, size: int | None) -> dict[str, int]:
    if size is None:
        return {}
    if "image_size" not in signature(model.example_inputs).parameters:
        raise ValueError(f"--image-size must be left out: {name} takes no image.")
    return {"image_size": size}


def _figures(row: accounting.Row) -> list[str]:
    intensity = f"{row.intensity:.2f}" if row.multiplies else "-"
    return [short(row.parameters), short(row.multiplies), intensity, short(row.bytes) + "B", short(row.activations)]


def print_paper(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print every table of the paper: its figures, ours computed from the models, and their difference."""
    from algebranets.lab.report import paper

    if as_json:
        console.print_json(json.dumps([asdict(table) for table in paper.tables()]))
        return
    with console.status("computing the paper's counts"):
        for published in paper.tables():
            _print_published(published)


def _print_published(published: paper.Table) -> None:
    table = new_table(published.title)
    table.add_column("")
    table.add_column("")
    for heading in (published.heading, "computed", "difference", "note"):
        table.add_column(heading, justify="right")
    notes: list[str] = []
    row = ""
    for entry in published.entries:
        if entry.note and entry.agrees is not True and entry.note not in notes:
            notes.append(entry.note)
        mark = f"[{notes.index(entry.note) + 1}]" if entry.note in notes and entry.agrees is not True else ""
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


def _computed(entry: paper.Entry) -> str:
    if entry.computed is None or isinstance(entry.computed, str):
        return entry.computed or "-"
    return f"{entry.computed:.{max(entry.decimals, 1)}f}"


def _difference(entry: paper.Entry) -> str:
    if entry.agrees is None:
        return ""
    if entry.agrees:
        return "none"
    return "differs" if entry.difference is None else f"{100 * entry.difference:+.2f} %"
