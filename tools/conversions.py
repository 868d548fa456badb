"""Converts and checks models of torchvision, timm and transformers, and writes benchmarks/conversions-cpu.jsonl.

    python tools/conversions.py --jobs 8 && python tools/write_docs.py
    python tools/conversions.py --models resnet18 "GPT-2" --algebras H --out rows.jsonl

Each model of `tools/adopted.py` is converted to each algebra. Then it is run, differentiated, compiled, exported, run
with onnxruntime, and made real again by `to_real`. The unconverted model gets the same checks, except `to_real`. Its
rows have the algebra "R". A check that fails there too does not fail because of the conversion. If a check fails, its
error is written to the row, and the other checks still run. Each row is a JSON line, which is written when the row is
finished. Rows that are already in the file are not computed again, so a stopped run continues where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from adopted import MODELS, Adopted, Inputs
from sitegen.conversions import REAL, ROWS, Row, ordered, problems, read
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from algebranets.conversion import Conversion, convert, to_real

LIBRARIES = ("torch", "torchvision", "timm", "transformers", "onnx", "onnxruntime", "onnxscript")
#: The largest relative error that counts as rounding in float32.
TOLERANCE = 1e-3


def main() -> int:
    """Run the command."""
    options = parse()
    if options.row:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(sys.stderr):
            row = compute(MODELS[options.models[0]], options.algebras[0])
        print(json.dumps(row))
        return 0
    is_complete = compute_missing(options)
    for row in ordered(read(options.out)):
        for line in problems(row):
            print(line)
    return 0 if is_complete else 1


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--algebras", nargs="+", default=["C", "H", "M2R"], metavar="ALGEBRA")
    parser.add_argument("--jobs", type=int, default=1, help="the number of rows to compute at the same time")
    parser.add_argument("--out", type=Path, default=ROWS, help="the file of rows (default: %(default)s)")
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)  # one row, in a process of its own
    return parser.parse_args()


def compute_missing(options: argparse.Namespace) -> bool:
    """Compute the rows that the file lacks, each in its own process. Return whether all processes succeeded."""
    done = {(row["model"], row["algebra"]) for row in read(options.out)}
    wanted = [(model, algebra) for model in options.models for algebra in (REAL, *options.algebras)]
    missing = [key for key in wanted if key not in done]
    threads = str(max(1, (os.cpu_count() or 1) // options.jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "TORCHINDUCTOR_COMPILE_THREADS": threads}
    is_complete = True

    def run(model: str, algebra: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, __file__, "--row", "--models", model, "--algebras", algebra]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    with ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(run, *key): key for key in missing}
        for number, future in enumerate(as_completed(futures), 1):
            done_process, (model, algebra) = future.result(), futures[future]
            print(f"[{number}/{len(missing)}] {model} over {algebra}", end=": ", flush=True)
            if done_process.returncode:
                is_complete = False
                print(f"exit code {done_process.returncode}\n{done_process.stderr[-2000:]}", flush=True)
                continue
            row = json.loads(done_process.stdout.splitlines()[-1])
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['seconds']:.0f} s", *(problems(row) or ["all checks passed"]), sep="\n  ", flush=True)
    return is_complete


def compute(adopted: Adopted, algebra: str) -> Row:
    """Convert one model to one algebra and run all checks. The algebra "R" means the unconverted model."""
    begun = time.monotonic()
    torch.manual_seed(0)
    model, inputs = adopted.make().eval(), adopted.check_inputs()
    row: Row = {"op": "convert", "model": adopted.name, "library": adopted.library, "algebra": algebra}
    row |= {"dtype": "float32", "device": "cpu", "machine": platform.machine()}
    row |= {"versions": versions()}
    if algebra != REAL:
        try:
            model = convert(model, algebra, inputs=inputs)
        except Exception as error:
            return row | {"refused": in_one_line(error), "seconds": seconds_since(begun)}
        row |= described(model.conversion)
    row["parameters"] = sum(p.numel() for p in model.parameters())
    try:
        row["multiplies"] = num_multiplies(model, adopted.inputs())
        expected = result(model(**inputs)).detach()
    except Exception as error:
        return row | {"refused": f"it does not run: {in_one_line(error)}", "seconds": seconds_since(begun)}
    checks: dict[str, Callable[[nn.Module, Inputs, Tensor], float]] = {
        "backward": backward,
        "compile": compiled,
        "export": exported,
        "onnx": through_onnx,
    }
    if algebra != REAL:
        checks["to_real"] = made_real
    for name, check in checks.items():
        start = time.monotonic()
        try:
            row[name] = {"error": check(model, inputs, expected)}
        except Exception as error:
            row[name] = {"failure": in_one_line(error)}
        row[name]["seconds"] = seconds_since(start)
    return row | {"seconds": seconds_since(begun)}


def seconds_since(begun: float) -> float:
    """The seconds since a time of the monotonic clock."""
    return round(time.monotonic() - begun, 1)


def versions() -> dict[str, str]:
    """The versions of the libraries that are installed."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def described(report: Conversion) -> Row:
    """The numbers of converted layers, the layers that stay real, and the torn operations of a report."""
    return {
        "converted": len(report.converted),
        "kept": {row.name: row.reason for row in report.kept},
        "torn": [str(torn) for torn in report.torn],
    }


def result(output: Any) -> Tensor:
    """The output of a model, or the logits if the model is one of transformers."""
    return output if isinstance(output, Tensor) else output.logits


def largest_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest error, relative to the largest expected number. Raise a ValueError if it is too large."""
    error = ((found - expected).abs().max() / expected.abs().max()).item()
    if not error < TOLERANCE:
        raise ValueError(f"the largest relative error is {error:.1e}, above {TOLERANCE:.0e}.")
    return error


def num_multiplies(model: nn.Module, inputs: Inputs) -> int:
    """The multiply-adds of one call. torch's counter counts each of them as two operations."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    return counter.get_total_flops() // 2


def gradients(model: nn.Module, output: Tensor) -> None:
    """Compute all gradients. Raise a ValueError if one is missing, zero or not finite."""
    model.zero_grad()
    (output * torch.randn_like(output)).sum().backward()
    trained = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    bad = [name for name, grad in trained.items() if grad is None or not grad.isfinite().all() or not grad.any()]
    if bad:
        raise ValueError(f"the gradients of these parameters are missing, zero or not finite: {', '.join(bad)}.")


def backward(model: nn.Module, inputs: Inputs, expected: Tensor) -> float:
    """Run the model and compute its gradients."""
    output = result(model(**inputs))
    gradients(model, output)
    return largest_error(output.detach(), expected)


def compiled(model: nn.Module, inputs: Inputs, expected: Tensor) -> float:
    """Compile the model as one graph, run it and compute its gradients."""
    fast = torch.compile(model, fullgraph=True)
    output = result(fast(**inputs))
    gradients(model, output)
    return largest_error(output.detach(), expected)


def exported(model: nn.Module, inputs: Inputs, expected: Tensor) -> float:
    """Export the model with torch.export, save it, load it and run it."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.pt2"
        torch.export.save(torch.export.export(model, (), kwargs=inputs), path)
        return largest_error(result(torch.export.load(path).module()(**inputs)), expected)


def through_onnx(model: nn.Module, inputs: Inputs, expected: Tensor) -> float:
    """Write the model as ONNX and run it with onnxruntime."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        # onnxscript's optimizer takes most of the time for large graphs: more than ten minutes for densenet121 over H.
        torch.onnx.export(model, (), path, kwargs=inputs, dynamo=True, optimize=False, verbose=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        arrays = {node.name: inputs[node.name].numpy() for node in session.get_inputs()}
        return largest_error(torch.from_numpy(session.run(None, arrays)[0]), expected)


def made_real(model: nn.Module, inputs: Inputs, expected: Tensor) -> float:
    """Make a plain torch.nn model of the model, and run it."""
    real = to_real(model)
    ours = [name for name, module in real.named_modules() if type(module).__module__.startswith("algebranets")]
    if ours:
        raise ValueError(f"these modules of the real model belong to algebranets: {', '.join(ours)}.")
    with torch.no_grad():
        return largest_error(result(real(**inputs)), expected)


def in_one_line(error: Exception) -> str:
    """The error's type and the beginning of its text."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


if __name__ == "__main__":
    sys.exit(main())
