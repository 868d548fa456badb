"""The command that lets a language model write."""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from algebranets.lab.cli.training import Accelerator

if TYPE_CHECKING:
    import torch
    from torch import nn


def generate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or its weights.safetensors.")],
    prompt: Annotated[
        str,
        typer.Option(
            help="What to go on behind; a newline says no more than that a line begins.", show_default="newline"
        ),
    ] = "\n",
    length: Annotated[int, typer.Option(min=1, help="How many characters (bytes) to write.")] = 500,
    temperature: Annotated[
        float, typer.Option(help="Less is more careful, more is wilder; 0 takes the likeliest.")
    ] = 1,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from so many of the likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest that together have this probability.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="The same one draws the same text on the same device.")
    ] = None,
    accelerator: Accelerator = "auto",
    precision: Annotated[str, typer.Option(help="Of the weights: 32, bf16 or 16; auto is bf16 on a GPU.")] = "auto",
) -> None:
    """Let a finished run's language model go on behind a prompt; what it makes is printed as it is made."""
    if not prompt:
        raise ValueError("--prompt must hold at least one character; leave it away to begin with a newline.")
    if any("\ud800" <= c <= "\udfff" for c in prompt):  # what Python makes of an argument's bytes that are no UTF-8
        raise ValueError(f"--prompt must be UTF-8; got {prompt!r}.")
    try:
        from algebranets import models

        model = _language_model(run).to(*_place(accelerator, precision))
        begun = time.perf_counter()
        text = models.generate(model, prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        first = next(text)  # which looks at what it was given
        for piece in chain([prompt, first], text):
            typer.echo(piece.encode(), nl=False)  # bytes are left alone
    except KeyboardInterrupt:
        typer.echo()
        raise typer.Exit(130) from None
    typer.echo()
    if sys.stderr.isatty():
        speed = length / (time.perf_counter() - begun)
        typer.echo(f"{length:,} characters, {speed:,.0f} a second", err=True)


def _language_model(run: Path) -> nn.Module:
    from algebranets.lab.train import load
    from algebranets.models.weights import describe

    model = load(run)
    if not hasattr(model, "vocab_size"):
        name = describe(run)[1]["model"]
        raise ValueError(f"{run} holds a {name}, which classifies images; give a run of a language model.")
    return model


def _place(accelerator: str, precision: str) -> tuple[torch.device, torch.dtype]:
    """Where the model is put and how precise its weights are; `train.Hardware` would take seconds to import."""
    import torch

    if accelerator not in ("auto", "cpu", "cuda"):
        raise ValueError(f"accelerator must be one of auto, cpu, cuda; got {accelerator!r}.")
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise ValueError("accelerator 'cuda' needs a CUDA device, and torch sees none here; take cpu or auto.")
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    usual = torch.bfloat16 if on_gpu else torch.float32
    dtypes = {"auto": usual, "32": torch.float32, "bf16": torch.bfloat16, "16": torch.float16}
    if precision not in dtypes:
        raise ValueError(f"precision must be one of {', '.join(dtypes)}; got {precision!r}.")
    return torch.device("cuda" if on_gpu else "cpu"), dtypes[precision]
