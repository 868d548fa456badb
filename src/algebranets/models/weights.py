"""Published weights: safetensors files that hold a model's weights and its description."""

from __future__ import annotations

import copy
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, load_model, save_model
from torch import nn

from algebranets import files
from algebranets.algebra import Algebra
from algebranets.models.registry import build
from algebranets.nn.quantization import QuantizedLinear, quantize
from algebranets.nn.sparse import SparseLinear, sparse

#: Errors of building and loading a model whose file is damaged.
_DAMAGE = (ValueError, KeyError, TypeError, RuntimeError)
#: The types that `publish` can store.
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def publish(
    model: nn.Module,
    name: str,
    algebra: Algebra,
    options: Mapping[str, Any],
    path: Path | str,
    *,
    dtype: torch.dtype | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a model's weights and description to a file that `load` and `create` can read.

    Args:
        model: The model, or its copy from `algebranets.sparse` or `algebranets.quantize`.
        name: The model's name in `models.create`.
        algebra: The model's algebra. Its table is written too.
        options: The other arguments of `models.create` for this model.
        path: The file to write, usually ``weights.safetensors``.
        dtype: The floating-point type in which weights with two or more axes are stored, such as `torch.float16` for a
            file of about half the size. The model is not changed, and `load` makes them float32 again. By default they
            are stored as they are. Biases, norms and statistics always are.
        notes: Further facts for the description, as plain JSON data, such as the result of training.

    >>> import tempfile, algebranets as an
    >>> file = Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16)
    >>> an.models.publish(model, "gru_lm", an.H, {"hidden_size": 16}, file)
    """
    is_sparse = any(isinstance(module, SparseLinear) for module in model.modules())
    described = {"model": name, "options": dict(options), "algebra": algebra.to_dict(), "sparse": is_sparse}
    is_quantized = any(isinstance(module, QuantizedLinear) for module in model.modules())
    if is_sparse and is_quantized:
        raise ValueError("a model must be sparse or quantized to be published, not both: leave out one of the two.")
    described |= {"quantized": "int8"} if is_quantized else {}
    described |= {"notes": dict(notes)} if notes else {}
    with files.replacing(Path(path)) as partial:
        save_model(_rounded(model, dtype), str(partial), {"algebranets": json.dumps(described)})


def _rounded(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """The model with its weights of two or more axes in ``dtype``: a copy, or the model itself if ``dtype`` is None."""
    if dtype is None:
        return model
    if dtype not in _DTYPES:
        names = ", ".join(map(str, _DTYPES))
        raise ValueError(f"dtype must be a floating-point type: {names}; got {dtype!r:.80}. Give one of them, or None.")
    model = copy.deepcopy(model)
    for name, weight in model.named_parameters():
        if weight.dim() < 2 or not weight.is_floating_point():
            continue
        rounded = weight.data.to(dtype)
        if not torch.equal(rounded.isfinite(), weight.data.isfinite()):
            largest = weight.data.abs().max().item()
            raise ValueError(
                f"dtype={dtype} must hold every weight, but {name} has the value {largest:.4g}, which it cannot hold: "
                "leave out dtype."
            )
        weight.data = rounded
    return model


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
    return read(*describe(path))


def read(file: Path, described: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> nn.Module:
    """Build the model that a file describes and load its weights, in evaluation mode.

    Args:
        file: The file, from `describe`.
        described: Its description, from `describe`.
        changes: Arguments of the constructor that replace those of the file. The constructor's errors about them are
            raised as they are.
    """
    name, algebra, options = parts(file, described)
    options = {"algebra": algebra, **options}
    try:
        model = build(name, {**options, **(changes or {})})
    except _DAMAGE as error:
        if changes and _can_build(name, options):
            raise
        raise _foreign(file, error) from None
    try:
        if described.get("sparse"):
            model = sparse(model, state=load_file(file))
        else:
            if described.get("quantized"):
                model = quantize(model, described["quantized"])
            load_model(model, file)
    except _DAMAGE as error:
        raise _foreign(file, error) from None
    return model.eval()


def _can_build(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a model can be built with these options. It is built without memory for its weights."""
    try:
        with torch.device("meta"):
            build(name, options)
    except _DAMAGE:
        return False
    return True


def parts(file: Path, described: Mapping[str, Any]) -> tuple[str, Algebra, dict[str, Any]]:
    """Return the model's name, its algebra and its other options from a file's description.

    Args:
        file: The file, which error messages name.
        described: Its description, from `describe`.
    """
    try:
        return described["model"], Algebra.from_table(described["algebra"]), {**described["options"]}
    except (ValueError, KeyError, TypeError) as error:
        raise _foreign(file, error) from None


def describe(path: Path | str) -> tuple[Path, dict[str, Any]]:
    """Return the file that `load` would read, and the description of the model in it.

    Args:
        path: The folder of a finished run, or a ``.safetensors`` file.
    """
    path = Path(path)
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.exists():
        if not path.is_dir():
            raise ValueError(f"{path} does not exist: give the folder of a finished run, or its weights.safetensors.")
        if not (path / "config.json").exists():
            raise ValueError(
                f"{path} is not the folder of a run: it has neither weights.safetensors nor config.json. Give the "
                "folder of a finished run, or its weights.safetensors."
            )
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
