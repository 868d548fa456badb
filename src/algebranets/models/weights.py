"""Published weights: safetensors files that say what model they are of."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, load_model, save_model
from torch import nn

from algebranets import files
from algebranets.algebra import Algebra
from algebranets.models.registry import create
from algebranets.nn.sparse import SparseLinear, sparse


def publish(model: nn.Module, name: str, algebra: Algebra, options: Mapping[str, Any], path: Path) -> None:
    """Write the weights of `models.create`'s model ``name``; its algebra's table and its options stand beside them.

    It may be a sparse one of it, as `algebranets.sparse` makes them.
    """
    is_sparse = any(isinstance(module, SparseLinear) for module in model.modules())
    described = {"model": name, "options": dict(options), "algebra": algebra.to_dict(), "sparse": is_sparse}
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
    file, described = describe(path)
    try:
        algebra = Algebra.from_table(described["algebra"])
        model = create(described["model"], algebra=algebra, **described["options"])
        if described.get("sparse"):
            model = sparse(model, state=load_file(file))
        else:
            load_model(model, file)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise _foreign(file, error) from None
    return model.eval()


def describe(path: Path | str) -> tuple[Path, dict[str, Any]]:
    """The file of the weights that `load` would read, and what it says of its model: what `publish` wrote."""
    path = Path(path)
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.exists():
        if not path.is_dir():
            raise ValueError(f"{path} does not exist: give a finished run's folder, or its weights.safetensors.")
        if not (path / "config.json").exists():
            raise ValueError(f"{path} is no run's folder: it has neither weights.safetensors nor config.json.")
        raise ValueError(f"{path} is not finished: go on with it by `algebranets train --resume {path}`.")
    try:
        with safe_open(file, "pt") as opened:
            described = json.loads((opened.metadata() or {})["algebranets"])
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise _foreign(file, error) from None
    if not isinstance(described, dict):
        raise _foreign(file, TypeError(f"its description is {described!r}"))
    return file, described


def _foreign(file: Path, error: Exception) -> ValueError:
    """The error that says why these are no weights of ours; torch takes a line a tensor for it, here it is one."""
    reason = f"there is no {error} in it" if isinstance(error, KeyError) else str(error)
    return ValueError(
        f"{file} is no file of algebranets' weights, or damaged: it must be as `algebranets train` wrote it "
        f"({textwrap.shorten(reason, 200, placeholder=' ...')})."
    )
