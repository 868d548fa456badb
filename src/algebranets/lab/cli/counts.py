"""The commands that count: what a model costs, and the paper's tables."""

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
    model: Annotated[str, typer.Argument(help="A model's name, such as resnet50; an unknown one lists them all.")],
    algebra: Annotated[str, typer.Option(help="A name, a constructor or a table file.")] = "R",
    width: Annotated[float | None, typer.Option(help="Width multiplier of an image network.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="Further options, as in num_layers=42; give it several times.")
    ] = None,
    image_size: Annotated[int | None, typer.Option(min=1, max=2**16, help="Of an image network's input.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="How finely to split: parts of a layer's name.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print every layer as JSON instead.")] = False,
) -> None:
    """Count a model's parameters, multiply-adds, bytes and activations for one input: one image, or one token."""
    import torch

    from algebranets import accounting, models

    arguments = {
        "algebra": algebras.get(algebra),
        **({} if width is None else {"width": width}),
        **read_settings(options or []),
    }
    with torch.device("meta"):  # counting needs no weights
        built: Any = models.create(model, **arguments)
        inputs = built.example_inputs(**_image_size(model, built, image_size))
        total = accounting.account(built, *inputs)
    if as_json:
        console.print_json(json.dumps({"model": model, "options": arguments, **total.to_dict()}, default=str))
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
        console.print(f"Besides, {short(total.statistics)} moving statistics.")
    if total.paper is not None and round(total.paper) != total.multiplies:
        console.print(f"Operations as the paper counts them: {short(total.paper)}.")


def _image_size(name: str, model: Any, size: int | None) -> dict[str, int]:
    if size is None:
        return {}
    if "image_size" not in signature(model.example_inputs).parameters:
        raise ValueError(f"--image-size: {name} takes no image.")
    return {"image_size": size}


def _figures(row: accounting.Row) -> list[str]:
    intensity = f"{row.intensity:.2f}" if row.multiplies else "-"
    return [short(row.parameters), short(row.multiplies), intensity, short(row.bytes) + "B", short(row.activations)]


def print_paper(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Print every table of the paper: its figures, ours computed from the models, and the difference."""
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
