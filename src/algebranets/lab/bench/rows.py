"""What a measurement says, and the files it is kept in: JSON lines."""

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
    """A measured case. Ratios are medians of what was timed in turn; fields with a default came later than others."""

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
    #: How far from the reference: the largest difference as a share of the largest value, in half precision that of
    #: Frobenius norms.
    error: float
    torch: str
    commit: str
    #: What ``speedup`` compares with.
    against: str = "torch.nn"
    #: Of the real layer that has as many parameters as ours, and the paper's example loop: their times over ours.
    speedup_same_parameters: float | None = None
    speedup_over_loop: float | None = None
    #: Our median.
    milliseconds: float | None = None
    #: Of a network: images, characters or tokens that ours takes a second.
    per_second: float | None = None
    #: What must be moved at least and multiplied by the table; the latter two as shares of what the device can do.
    bytes: int | None = None
    multiply_adds: int | None = None
    bandwidth: float | None = None
    compute: float | None = None
    #: What ``speedup`` can be at most, if what binds is the only cost: multiply-adds by the table, or bytes moved.
    limit: float | None = None
    captured: bool = False
    rounds: int | None = None
    #: Layers of the chain that was timed as one.
    chain: int = 1
    #: Of a sparse layer: the share of its tuples that is zero, and over the dense layer of the same algebra and a real
    #: sparse matrix with as many numbers, in torch's CSR format: their times over ours.
    sparsity: float | None = None
    speedup_over_dense: float | None = None
    speedup_over_csr: float | None = None


#: What else is timed, and the field for its time over ours.
_FURTHER = {
    "smaller": "speedup_same_parameters",
    "loop": "speedup_over_loop",
    "dense": "speedup_over_dense",
    "csr": "speedup_over_csr",
}


@dataclass(frozen=True)
class Cost:
    """What a step moves and multiplies at least."""

    bytes: int
    multiply_adds: int


def make(
    run: Run,
    times: dict[str, list[float]],
    captured: bool,
    cost: Cost | None = None,
    examples: int | None = None,
    **facts: Any,
) -> Row:
    """A row from the ``times`` of "ours", "real", and of "smaller", "loop", "dense", "csr" where there are any.

    ``examples`` is how many images, characters or tokens are worked on in such a time.
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
    """Write the rows, dataclasses, as JSON lines, whole or not at all."""
    files.write(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def load(path: Path) -> list[Row]:
    """The rows of a file; those of older versions lack fields, and what is no speed is left out."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        where, advice = f"{path}, line {number}", "It must hold rows that algebranets bench --save wrote."
        said = files.parse(line, where, advice)
        if not isinstance(said, dict):
            raise ValueError(f"{where} is no row. {advice}")
        if "speedup" in said:
            wrong = [field.name for field in fields(Row) if not _is_right(field, said)]
            if wrong:
                raise ValueError(f"{where}: {', '.join(wrong)} must be there, and of the right type. {advice}")
            found.append(Row(**{field.name: said[field.name] for field in fields(Row) if field.name in said}))
    return found


def _is_right(field: Field[Any], row: dict[str, Any]) -> bool:
    """Whether the field's value is of its type; one that has a default may be missing."""
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
    return isinstance(value, int | float) and abs(value) < 1e18  # so no NaN either
