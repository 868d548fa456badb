"""The command ``sparse``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from algebranets.lab.cli.terminal import say, short


def sparse(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or its weights.safetensors.")],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    at_least: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=1, help="Make a layer sparse if at least this share of its tuples is zero. By default 0.7."
        ),
    ] = None,
) -> None:
    """Write the weights of a pruned run without the tuples that are zero. `generate` reads such files too."""
    from algebranets.models.weights import describe, load, publish
    from algebranets.nn.sparse import MIN_SPARSITY, SparseLinear, sparse

    model = load(run)
    file, described = describe(run)
    least = MIN_SPARSITY if at_least is None else at_least
    try:
        made = sparse(model, least)
    except ValueError as error:
        raise ValueError(f"{run}: {error} `algebranets train --set pruning.sparsity=0.9` prunes a model.") from None
    layers = [module for module in made.modules() if isinstance(module, SparseLinear)]
    publish(made, described["model"], model.algebra, described["options"], out)  # type: ignore[arg-type]
    full = sum(layer.in_features * layer.out_features // layer.algebra.dim for layer in layers)
    gone = 1 - sum(layer.values.numel() for layer in layers) / full
    say(
        f"{len(layers)} layers are sparse; {100 * gone:.0f} % of their tuples are zero. "
        f"{short(out.stat().st_size)}B in {out}, instead of {short(file.stat().st_size)}B."
    )
