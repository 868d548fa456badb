"""`export`, which writes a model to a file for deployment: torch.export, ONNX or AOTInductor."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from algebranets import checks, files
from algebranets.conversion.real.graph import exported, reason
from algebranets.conversion.running import Call, call_of, largest_error, tolerance_for
from algebranets.conversion.sources import library

#: The default format for each suffix of a file name.
_SUFFIXES = {".pt2": "pt2", ".onnx": "onnx"}


@dataclass(frozen=True)
class Artifact:
    """A file that `export` wrote and checked.

    Args:
        path: The file.
        format: "pt2", "onnx" or "aoti".
        largest_error: The largest difference between the outputs of the file and of the model, relative to the largest
            output.
        num_bytes: The size of the file.
        dynamic: Whether some axis of the inputs, such as the batch, may have any size. If not, the file only takes
            inputs of the exported sizes.
    """

    path: Path
    format: str
    largest_error: float
    num_bytes: int
    dynamic: bool


def export(
    model: nn.Module,
    path: Path | str,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    format: str | None = None,
    tolerance: float | None = None,
) -> Artifact:
    """Write a model to a file that runs without algebranets, and check that the file gives the model's outputs.

    The file holds the model in evaluation mode. The weights of an AlgebraNet are compact in the file. Over algebras
    other than M_n(R), they are expanded each time it runs. To avoid this, export `algebranets.to_real(model)`, which
    gives a larger file. Batches may have any size if the model allows it. The file is loaded again and run on the
    inputs. If its outputs differ from the model's by more than the tolerance, an error is raised and no file is
    written.

    Args:
        model: An AlgebraNet, or any torch model.
        path: The file. ``model.pt2`` is a program of `torch.export`, and ``model.onnx`` a model for onnxruntime.
        inputs: Inputs of the model, by default those of its method ``example_inputs``, or a guess.
        kwargs: Further inputs, by name.
        format: "pt2", "onnx", or "aoti" for an AOTInductor package: machine code for this kind of machine, in a file
            that ends in ``.pt2``. It needs a C++ compiler. By default the suffix of the file decides.
        tolerance: The largest error to accept, relative to the model's largest output. The default depends on the
            dtype of the output. It is 1.4e-3 for float32.

    >>> import tempfile, torch, algebranets as an
    >>> file = Path(tempfile.mkdtemp()) / "model.pt2"
    >>> artifact = export(an.nn.Linear(8, 12, algebra=an.H), file, torch.randn(2, 8))
    >>> artifact.format, artifact.largest_error < 1e-6, artifact.dynamic
    ('pt2', True, True)
    >>> torch.export.load(file).module()(torch.randn(5, 8)).shape
    torch.Size([5, 12])
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    chosen = _checked_format(path, format)
    call = call_of(model, inputs, kwargs)
    expected = call.expected(model)
    limit = tolerance_for(expected) if tolerance is None else checks.positive("tolerance", tolerance)
    program = _program(model, call)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        file = Path(folder) / path.name
        with warnings.catch_warnings(action="ignore"):  # torch's notes on its own internals
            run = _WRITERS[chosen](program, file)
            error = largest_error(run(call), expected)
        if not error <= limit:
            raise ValueError(
                f"the exported model differs from the model by {error:.2g} of its largest output, more than "
                f"tolerance={limit:.2g}, so {path} was not written. If that is good enough, pass a larger tolerance."
            )
        with files.replacing(path) as partial:
            file.replace(partial)
    return Artifact(path, chosen, error, path.stat().st_size, _is_dynamic(program))


def _checked_format(path: Path, format: str | None) -> str:
    if format is None:
        if path.suffix not in _SUFFIXES:
            raise ValueError(f"the name of the file must end in {' or '.join(_SUFFIXES)}; got {path}.")
        return _SUFFIXES[path.suffix]
    checks.one_of("format", format, _WRITERS)
    wanted = ".onnx" if format == "onnx" else ".pt2"
    if path.suffix != wanted:
        raise ValueError(f"the name of a file in the format {format!r} must end in {wanted}; got {path}.")
    return format


def _program(model: nn.Module, call: Call) -> ExportedProgram:
    try:
        program = exported(model, call)
    except Exception as error:
        config = getattr(model, "config", None)
        hint = " Set model.config.use_cache = False first." if getattr(config, "use_cache", False) else ""
        raise ValueError(
            f"{type(model).__name__} cannot be exported by torch.export: {reason(error).rstrip('.')}.{hint}"
        ) from error
    ours = {str(node.target) for node in program.graph.nodes if str(node.target).startswith("algebranets")}
    assert not ours, f"operators of algebranets are left in the program: {ours}"
    return program


def _is_dynamic(program: ExportedProgram) -> bool:
    names = set(program.graph_signature.user_inputs)
    inputs = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return any(isinstance(x, Tensor) and any(isinstance(size, torch.SymInt) for size in x.shape) for x in inputs)


# One function for each format: it writes the file and returns a function that runs it. --------------------------------

Runner = Callable[[Call], Any]


def _write_pt2(program: ExportedProgram, file: Path) -> Runner:
    torch.export.save(program, file)
    loaded = torch.export.load(file).module()
    return lambda call: loaded(*call.args, **call.kwargs)


def _write_aoti(program: ExportedProgram, file: Path) -> Runner:
    from torch import _inductor

    try:
        _inductor.aoti_compile_and_package(program, package_path=str(file))
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"AOTInductor could not compile the model ({type(error).__name__}: {first}). It needs a C++ compiler, such "
            "as g++ of the package build-essential; set the environment variable CXX if it has another name. The "
            "format 'pt2' needs none."
        ) from error
    loaded = _inductor.aoti_load_package(str(file))
    return lambda call: loaded(*call.args, **call.kwargs)


def _write_onnx(program: ExportedProgram, file: Path) -> Runner:
    *_, onnxruntime = (library(name, "The format 'onnx'") for name in ("onnx", "onnxscript", "onnxruntime"))
    try:
        torch.onnx.export(program, (), file, dynamo=True, external_data=False, verbose=False)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    except Exception as error:  # for example an output that is not a tensor, or a layer in float64
        while error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]
        raise ValueError(
            f"the model cannot be written as ONNX, or onnxruntime cannot run it: {reason(error)}. All outputs must be "
            "tensors, and most layers of onnxruntime need float32, as after model.float(). The format 'pt2' has no "
            "such limits."
        ) from error

    def run(call: Call) -> Any:
        leaves = pytree.tree_leaves((call.args, dict(call.kwargs)))
        given = dict(zip(program.graph_signature.user_inputs, leaves, strict=True))
        feed = {known.name: given[known.name].numpy(force=True) for known in session.get_inputs()}
        return [torch.from_numpy(array) for array in session.run(None, feed)]

    return run


_WRITERS: dict[str, Callable[[ExportedProgram, Path], Runner]] = {
    "pt2": _write_pt2,
    "onnx": _write_onnx,
    "aoti": _write_aoti,
}
