"""Published weights: safetensors files that say what model they are of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from algebranets import files, models
from algebranets.algebra import Algebra


def publish(model: nn.Module, name: str, algebra: Algebra, options: Mapping[str, Any], path: Path) -> None:
    """Write the weights of `models.create`'s model ``name``; its algebra's table and its options stand beside them."""
    described = {"model": name, "options": dict(options), "algebra": algebra.to_dict()}
    with files.replacing(path) as partial:
        save_model(model, str(partial), {"algebranets": json.dumps(described)})


def load(path: Path | str) -> nn.Module:
    """The model whose weights are in a run's folder or in a ``.safetensors`` file, in evaluation mode.

    >>> import tempfile, torch, algebranets as an
    >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16)
    >>> publish(model, "gru_lm", an.H, {"hidden_size": 16}, file)
    >>> torch.equal(load(file).head.weight, model.head.weight)
    True
    """
    path = Path(path)
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.exists():
        hint = f"its run is not done; go on by `algebranets train --resume {path}`." if path.is_dir() else "give a run."
        raise ValueError(f"{file} does not exist: {hint}")
    try:
        with safe_open(file, "pt") as opened:
            described = json.loads((opened.metadata() or {})["algebranets"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(
            f"{file} is no file of algebranets' weights ({error!r}): it must be as `algebranets train` wrote it."
        ) from None
    algebra = Algebra.from_table(described["algebra"])
    model = models.create(described["model"], algebra=algebra, **described["options"])
    load_model(model, file)
    return model.eval()
