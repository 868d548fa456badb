"""The command ``convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from algebranets.lab.cli import completion
from algebranets.lab.cli.terminal import console, read_example, read_settings, say, short

Source = Annotated[
    str,
    typer.Argument(
        metavar="LIBRARY:MODEL",
        help="The real model: timm:resnet18, torchvision:resnet50 or transformers:GPT2LMHeadModel.",
    ),
]


def convert(
    source: Source,
    algebra: Annotated[
        str | None,
        typer.Option(help="Algebra of all layers that --map does not name.", autocompletion=completion.algebras),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=ALGEBRA",
            help="Algebra of a layer, of all layers in a module, or of all layers whose name matches re:REGEX. "
            "NAME=real keeps them real. Can be repeated.",
        ),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Layers that stay real: first,last (the default), first, last or none.")
    ] = None,
    lift: Annotated[
        str | None, typer.Option(help="Put a Lift in front of the first layer: learned, zeros or copy.")
    ] = None,
    head: Annotated[str, typer.Option(help="The last layer: real or tuple_norm.")] = "real",
    init: Annotated[str, typer.Option(help="Initial weights: scale (as large as the real ones) or glorot.")] = "scale",
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the model, such as num_classes=10."),
    ] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Shape of an example input, such as 1,3,32,32.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the random weights.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder to write. By default it is named MODEL-ALGEBRA.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the report.")] = False,
) -> None:
    """Convert a model to layers over an algebra, print a report, and write a Hugging Face folder.

    All weights are random: train the model afterwards.
    """
    import torch

    from algebranets.conversion import PretrainedModel, sources
    from algebranets.conversion import convert as convert_model

    chosen = _choice(algebra, maps or [])
    settings = read_settings(options or [])
    if dry_run and out is not None:
        raise ValueError(f"--dry-run writes nothing: leave out --out {out}, or --dry-run.")
    folder = out or Path(f"{sources.split(source)[1]}-{algebra or 'mixed'}")
    if not dry_run:
        _check_new(folder)
    torch.manual_seed(seed)
    model = sources.create(source, **settings)
    inputs = None if shape is None else read_example(shape, model)
    made = convert_model(model, chosen, keep=keep, lift=lift, head=head, init=init, inputs=inputs)
    console.print(str(made.conversion), soft_wrap=True)
    if not dry_run:
        PretrainedModel.wrap(made, source, settings).save_pretrained(folder)
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        say(f"\n{short(size)}B in {folder}. Load it with PretrainedModel.from_pretrained({str(folder)!r}).")


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists already: remove it, or choose another folder with --out.")


def _choice(algebra: str | None, maps: list[str]) -> str | dict[str, str | None]:
    """The second argument of `algebranets.convert`."""
    if algebra is None and not maps:
        raise ValueError("--algebra or --map must say what the layers become, as in --algebra M2R.")
    if algebra is not None and not maps:
        return algebra
    chosen: dict[str, str | None] = {}
    for text in maps:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise ValueError(f"--map must be NAME=ALGEBRA, as in --map layer1=H; got {text!r}.")
        chosen[name] = None if value.lower() in ("real", "r", "none") else value
    return chosen if algebra is None else {**chosen, "*": algebra}
