"""Rows of measurements, and their files in JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from algebranets import files
from algebranets.lab.bench.timing import Run, limits
from algebranets.lab.train.environment import commit, device_name


@dataclass(frozen=True)
class Row:
    """One measured comparison. Ratios are medians over rounds. Older files may lack fields that have a default."""

    op: str
    shape: str
    algebra: str
    dtype: str
    device: str
    lowering: str
    #: The time of the real layer of the same width over ours, and the middle half of its values.
    speedup: float
    spread: tuple[float, float]
    #: Our parameters as a share of the real layer's.
    parameters: float
    #: The difference from the reference: largest difference over largest value. Layers in half precision have Frobenius
    #: norms instead.
    error: float
    torch: str
    commit: str
    #: The layer or library that ours is compared with in ``speedup``.
    against: str = "torch.nn"
    #: The time of the real layer with as many parameters over ours, and that of the paper's example loop over ours.
    speedup_same_parameters: float | None = None
    speedup_over_loop: float | None = None
    #: Our median time.
    milliseconds: float | None = None
    #: Images, characters or tokens that our network processes per second; None for a single layer.
    per_second: float | None = None
    #: The bytes that must be moved, and the multiply-adds by the algebra's table. Then both per second, as shares of
    #: the device's measured `Limits`.
    bytes: int | None = None
    multiply_adds: int | None = None
    bandwidth: float | None = None
    compute: float | None = None
    #: The largest possible ``speedup`` if only multiply-adds take time, or only moving bytes (`Case.bound`).
    limit: float | None = None
    captured: bool = False
    rounds: int | None = None
    #: The number of layers that were timed as one.
    chain: int = 1
    #: For sparse layers only: the share of tuples that are zero, and two times over ours: that of the dense layer of
    #: the same algebra, and that of a real matrix with as many nonzeros in torch's CSR format.
    sparsity: float | None = None
    speedup_over_dense: float | None = None
    speedup_over_csr: float | None = None


#: The field of `Row` for the time of each further layer over ours.
_FURTHER = {
    "smaller": "speedup_same_parameters",
    "loop": "speedup_over_loop",
    "dense": "speedup_over_dense",
    "csr": "speedup_over_csr",
}


@dataclass(frozen=True)
class Cost:
    """The bytes and multiply-adds that a step needs at least."""

    bytes: int
    multiply_adds: int


def make_row(
    run: Run,
    times: dict[str, list[float]],
    captured: bool,
    cost: Cost | None = None,
    examples: int | None = None,
    **facts: Any,
) -> Row:
    """Make a row from measured times.

    Args:
        run: The run that took the times.
        times: Seconds by round of "ours" and "real", and of "smaller", "loop", "dense" and "csr" if they were timed.
        captured: Whether the steps were timed as CUDA graphs.
        cost: The minimum cost of our step, if known.
        examples: The number of images, characters or tokens in one step.
        facts: Further fields of `Row`.
    """
    ratios = {name: [t / o for t, o in zip(seconds, times["ours"], strict=True)] for name, seconds in times.items()}
    low, _, high = quantiles(ratios["real"], n=4, method="inclusive") if run.rounds > 1 else ratios["real"] * 3
    seconds = median(times["ours"])
    further: dict[str, Any] = {field: median(ratios[name]) for name, field in _FURTHER.items() if name in ratios}
    shares: dict[str, Any] = {}
    if cost is not None:
        most = limits(run.device, run.dtype)
        shares = {
            "bytes": cost.bytes,
            "multiply_adds": cost.multiply_adds,
            "bandwidth": cost.bytes / seconds / most.bandwidth,
            "compute": cost.multiply_adds / seconds / most.multiply_adds,
        }
    return Row(
        dtype=str(run.dtype).removeprefix("torch."),
        device=device_name(run.device),
        speedup=median(ratios["real"]),
        spread=(low, high),
        torch=torch.__version__,
        commit=commit(),
        **further,
        milliseconds=1000 * seconds,
        per_second=None if examples is None else examples / seconds,
        captured=captured,
        rounds=run.rounds,
        **shares,
        **facts,
    )


def save(rows: Iterable[Any], path: Path) -> None:
    """Write rows (dataclasses) to a file, as JSON lines. If writing fails, the old file stays."""
    files.write(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def load(path: Path) -> list[Row]:
    """Read the rows of a file that `save` wrote. Rows without a speed-up are left out. Older rows may lack fields."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        where, advice = f"{path}, line {number}", "It must have rows that algebranets bench --save wrote."
        said = files.parse(line, where, advice)
        if not isinstance(said, dict):
            raise ValueError(f"{where} is not a row. {advice}")
        if "speedup" in said:
            wrong = [field.name for field in fields(Row) if not _is_right(field, said)]
            if wrong:
                raise ValueError(f"{where}: {', '.join(wrong)} is missing or of the wrong type. {advice}")
            found.append(Row(**{field.name: said[field.name] for field in fields(Row) if field.name in said}))
    return found


def _is_right(field: Field[Any], row: dict[str, Any]) -> bool:
    """Whether a field has a value of its type; a field with a default may be missing."""
    if field.name not in row:
        return field.default is not MISSING
    kind, value = str(field.type), row[field.name]
    if kind.endswith(" | None") and value is None:
        return True
    if kind.startswith("tuple"):
        return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
    if kind.startswith(("float", "int")):
        return _is_number(value)
    return isinstance(value, {"str": str, "bool": bool}[kind])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e18  # and no NaN
