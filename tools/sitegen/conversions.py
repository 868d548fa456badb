"""The tables of converted models, from the rows in ``benchmarks/conversions-cpu.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from adopted import MODELS

from algebranets.lab.report.parts import markdown_table
from sitegen.regions import Make

ROWS = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "conversions-cpu.jsonl"
REAL = "R"
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a file, or none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def ordered(rows: list[Row]) -> list[Row]:
    """The rows in the order of the list of models, the real model first."""
    names = list(MODELS)
    return sorted(rows, key=lambda row: (names.index(row["model"]), row["algebra"] != REAL, row["algebra"]))


def problems(row: Row) -> list[str]:
    """One line for each thing that failed."""
    where = f"{row['model']} over {row['algebra']}"
    if "refused" in row:
        return [f"{where} was refused: {row['refused']}"]
    lines = [f"{where}: torn tuples: {torn}" for torn in row.get("torn", [])]
    failed = {name: row[name]["failure"] for name in CHECKS if "failure" in row.get(name, {})}
    return lines + [f"{where}: {name} failed: {failure}" for name, failure in failed.items()]


#: The checks, with their headings in the table.
CHECKS = {
    "backward": "gradients",
    "to_real": "`to_real`",
    "compile": "`torch.compile`",
    "export": "`torch.export`",
    "onnx": "ONNX",
}


def tables(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """Yield the parts of the page that are made from the rows, with the names of their markers."""
    real = {row["model"]: row for row in rows if row["algebra"] == REAL}
    head = ["model", "over", "layers", "kept real", "torn", "parameters", "multiply-adds", *CHECKS.values()]
    prose = [place for place, heading in enumerate(head) if heading not in ("parameters", "multiply-adds")]
    yield "summary", "\n".join(summary(rows))
    yield "table", markdown_table(head, [cells(row, real.get(row["model"], row)) for row in rows], prose)
    yield "problems", "\n".join(f"- {line}" for row in rows for line in problems(row)) or "Nothing failed."
    yield "kept", "\n".join(kept(rows))
    yield "versions", "\n".join(environments(rows))


def environments(rows: list[Row]) -> Iterator[str]:
    """The machines and the versions of libraries, and the rows that were computed with each."""
    found: dict[str, list[str]] = {}
    for row in rows:
        used = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        found.setdefault(f"{row['machine']}, {used}", []).append(f"{row['model']} over {row['algebra']}")
    most = max(found, key=lambda used: len(found[used]), default="")
    for used, names in sorted(found.items(), key=lambda item: len(item[1])):
        yield f"- {used}: {'all other rows' if used == most and len(found) > 1 else ', '.join(names)}"


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield lines that say how many models were converted, and how many of them passed each check."""
    converted = [row for row in rows if row["algebra"] != REAL and "refused" not in row]
    wanted = sum(row["algebra"] != REAL for row in rows)
    whole = sum(not row["torn"] for row in converted)
    yield f"- {len(converted)} of {wanted} conversions succeeded, {whole} of them without torn tuples."
    for check, title in CHECKS.items():
        counts = [
            f"{sum('error' in row[check] for row in chosen)} of {len(chosen)} {words}"
            for words, chosen in (
                ("converted models", [row for row in converted if check in row]),
                ("real models", [row for row in rows if row["algebra"] == REAL and check in row]),
            )
            if chosen
        ]
        yield f"- {title}: passed by {' and '.join(counts)}."


def cells(row: Row, real: Row) -> list[str]:
    """The cells of one row of the table."""
    name = row["model"] if row["algebra"] == REAL else ""
    if "refused" in row:
        return [name, row["algebra"], "refused", *[""] * (4 + len(CHECKS))]
    counts = [""] * 3
    if row["algebra"] != REAL:
        counts = [str(row["converted"]), str(len(row["kept"])), str(len(row["torn"]))]
    sizes = [amount(row["parameters"], real["parameters"]), amount(row["multiplies"], real["multiplies"])]
    return [name, row["algebra"], *counts, *sizes, *(outcome(check, row) for check in CHECKS)]


def amount(number: int, real: int) -> str:
    """A large number, and its ratio to that of the real model."""
    unit, letter = (10**9, "G") if number >= 10**9 else (10**6, "M")
    share = "" if number == real else f" ({number / real:.0%})"
    return f"{number / unit:.2f} {letter}{share}"


def outcome(check: str, row: Row) -> str:
    """The result of a check: its error, or that it failed."""
    if check not in row:
        return ""
    if "failure" in row[check]:
        return "**failed**"
    return "yes" if check == "backward" else "exact" if row[check]["error"] == 0 else f"{row[check]['error']:.0e}"


def kept(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each model and each reason to keep layers real, with the algebras."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        by_reason: dict[str, list[str]] = {}
        for name, reason in row.get("kept", {}).items():
            by_reason.setdefault(reason, []).append(name)
        for reason, names in by_reason.items():
            shown = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))
            found.setdefault((row["model"], shown, reason), []).append(row["algebra"])
    for (model, shown, reason), algebras in found.items():
        yield f"- {model} over {', '.join(algebras)}: {shown}: {reason}"


@cache
def _parts() -> dict[str, str]:
    return dict(tables(ordered(read(ROWS))))


def _part(name: str) -> str:
    return _parts()[name]


REGIONS: dict[str, Make] = {
    f"conversions-{name}": partial(_part, name) for name in ("summary", "table", "problems", "kept", "versions")
}
