"""Published weights: safetensors files that hold a model's weights and its description."""

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
    """Write a model's weights and description to a file that `load` can read.

    Args:
        model: The model, or its sparse copy from `algebranets.sparse`.
        name: The model's name in `models.create`.
        algebra: The model's algebra. Its table is written too.
        options: The other arguments of `models.create` for this model.
        path: The file to write, usually ``weights.safetensors``.

    >>> import tempfile, algebranets as an
    >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16)
    >>> an.models.publish(model, "gru_lm", an.H, {"hidden_size": 16}, file)
    """
    is_sparse = any(isinstance(module, SparseLinear) for module in model.modules())
    described = {"model": name, "options": dict(options), "algebra": algebra.to_dict(), "sparse": is_sparse}
    with files.replacing(path) as partial:
        save_model(model, str(partial), {"algebranets": json.dumps(described)})


def load(path: Path | str) -> nn.Module:
    """Load a published model with its weights, in evaluation mode.

    Args:
        path: The folder of a finished run, or a ``.safetensors`` file that `publish` wrote.

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
    """Return the file that `load` would read, and the description of the model in it.

    Args:
        path: The folder of a finished run, or a ``.safetensors`` file.
    """
    path = Path(path)
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.exists():
        if not path.is_dir():
            raise ValueError(f"{path} does not exist: give a finished run's folder, or its weights.safetensors.")
        if not (path / "config.json").exists():
            raise ValueError(f"{path} is not a run's folder: it has neither weights.safetensors nor config.json.")
        raise ValueError(f"{path} is not finished: continue it with `algebranets train --resume {path}`.")
    try:
        with safe_open(file, "pt") as opened:
            described = json.loads((opened.metadata() or {})["algebranets"])
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise _foreign(file, error) from None
    if not isinstance(described, dict):
        raise _foreign(file, TypeError(f"its description is {described!r}"))
    return file, described


def _foreign(file: Path, error: Exception) -> ValueError:
    """Return an error that says in one line why a file cannot be loaded. torch's error has a line for each tensor."""
    reason = f"there is no {error} in it" if isinstance(error, KeyError) else str(error)
    return ValueError(
        f"{file} is not a file of algebranets' weights, or it is damaged: it must be as `algebranets train` wrote it "
        f"({textwrap.shorten(reason, 200, placeholder=' ...')})."
    )
