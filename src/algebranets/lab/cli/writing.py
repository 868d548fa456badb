"""The command ``generate``."""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from algebranets import checks
from algebranets.lab.cli.training import Accelerator

if TYPE_CHECKING:
    import torch
    from torch import nn


def generate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or its weights.safetensors.")],
    prompt: Annotated[
        str,
        typer.Option(help="Text to continue.", show_default="a newline"),
    ] = "\n",
    length: Annotated[int, typer.Option(min=1, help="Number of characters (bytes) to generate.")] = 500,
    temperature: Annotated[
        float, typer.Option(help="Lower values favor likely characters; 0 always takes the most likely one.")
    ] = 1,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample only from this many most likely characters.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample only from the most likely characters with this total probability.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same text on the same device.")
    ] = None,
    accelerator: Accelerator = "auto",
    precision: Annotated[
        str,
        typer.Option(help="Precision of the weights: 32, bf16 or 16, or auto: bf16 on a GPU, else 32."),
    ] = "auto",
) -> None:
    """Continue a text with the language model of a finished run. Characters are printed as they are generated."""
    if not prompt:
        raise ValueError("--prompt must have at least one character; leave it out to start with a newline.")
    if any("\ud800" <= c <= "\udfff" for c in prompt):  # Python's surrogates for bytes that are not UTF-8
        raise ValueError(f"--prompt must be UTF-8; got {prompt!r}.")
    try:
        from algebranets import models

        model = _language_model(run).to(*_place(accelerator, precision))
        begun = time.perf_counter()
        text = models.generate(model, prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        first = next(text)  # checks the arguments
        for piece in chain([prompt, first], text):
            typer.echo(piece.encode(), nl=False)  # as bytes, so that the encoding of the terminal does not change them
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(130) from None
    typer.echo()
    if sys.stderr.isatty():
        speed = length / (time.perf_counter() - begun)
        typer.echo(f"{length:,} characters, {speed:,.0f} per second", err=True)


def _language_model(run: Path) -> nn.Module:
    from algebranets.models import load
    from algebranets.models.weights import describe

    model = load(run)
    if not hasattr(model, "vocab_size"):
        name = describe(run)[1]["model"]
        raise ValueError(f"{run} holds a {name}, which is not a language model.")
    return model


def _place(accelerator: str, precision: str) -> tuple[torch.device, torch.dtype]:
    """The device and the precision of the weights. (`train.Hardware` does the same, but takes seconds to import.)"""
    import torch

    checks.one_of("accelerator", accelerator, ("auto", "cpu", "cuda"))
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise ValueError("accelerator 'cuda' needs a CUDA device, and torch sees none here. Use cpu or auto.")
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    default = torch.bfloat16 if on_gpu else torch.float32
    dtypes = {"auto": default, "32": torch.float32, "bf16": torch.bfloat16, "16": torch.float16}
    return torch.device("cuda" if on_gpu else "cpu"), dtypes[checks.one_of("precision", precision, dtypes)]
