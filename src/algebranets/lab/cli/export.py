"""The command ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from algebranets.lab.cli.terminal import read_example, say, short

if TYPE_CHECKING:
    from torch import nn


def export(
    source: Annotated[
        Path, typer.Argument(help="The folder of a finished run, or one that `algebranets convert` or `publish` wrote.")
    ],
    file: Annotated[Path, typer.Argument(help="The file to write: model.onnx or model.pt2.")],
    fold: Annotated[bool, typer.Option("--fold", help="Fold batch norms into the layers before them.")] = False,
    real: Annotated[
        bool,
        typer.Option("--real", help="Expand the weights to real ones now, not at run time. The file is larger."),
    ] = False,
    format: Annotated[
        str | None, typer.Option(help="pt2, onnx or aoti. By default the suffix of the file decides.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Shape of an example input, such as 1,3,32,32.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="Largest error to accept, relative to the model's largest output.")
    ] = None,
) -> None:
    """Write a model to a file for deployment, and check that the file gives the model's outputs."""
    from algebranets import conversion

    model = _loaded(source)
    inputs = () if shape is None else (read_example(shape, model),)
    before = sum(parameter.numel() for parameter in model.parameters())
    if fold:
        model = conversion.fold(model, *inputs)
    if real:
        model = conversion.to_real(model, *inputs)
    artifact = conversion.export(model, file, *inputs, format=format, tolerance=tolerance)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    sizes = "any batch size" if artifact.dynamic else "one batch size"
    say(
        f"{short(artifact.num_bytes)}B in {artifact.path} ({artifact.format}, {short(numbers)} parameters"
        f"{f' instead of {short(before)}' if numbers != before else ''}, {sizes}). "
        f"Largest error {artifact.largest_error:.1e} of the largest output."
    )


def _loaded(source: Path) -> nn.Module:
    """The model of a Hugging Face folder or of a run."""
    if (source / "model.safetensors").exists():
        from algebranets.conversion import PretrainedModel

        model: nn.Module = PretrainedModel.from_pretrained(source).model
        config: Any = getattr(model, "config", None)
        if getattr(config, "use_cache", False):  # a file has tensors for outputs, and no cache of transformers
            config.use_cache = False
        return model
    from algebranets.models import load

    return load(source)
