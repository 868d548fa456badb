"""Reading and writing multiplication tables: text as the paper prints it, LaTeX, nested lists, dicts, files.

Rows are the left factor (the weight), columns the right one (the input), entries the product. An entry may be

- text: a component, ``0``, or a combination such as ``-a``, ``2b``, ``a + b - 3c``;
- a whole number: ``0`` for nothing, ``k`` or ``-k`` for plus or minus the k-th component, counted from 1;
- a list of whole numbers: the coefficient of each component.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

Products = dict[tuple[int, int], dict[int, int]]


@dataclass(frozen=True)
class Table:
    """What was read: absent pairs of ``products`` give zero."""

    name: str | None
    components: tuple[str, ...]
    products: Products


def labels(dim: int) -> tuple[str, ...]:
    """Names for ``dim`` components: a, b, c, ... as in the paper, or e0, e1, ... where the letters run out."""
    return tuple(ascii_lowercase[:dim]) if dim <= 26 else tuple(f"e{k}" for k in range(dim))


def read(table: Any) -> Table:
    """The table in any of the forms above.

    A dict is either ``{"name": ..., "components": [...], "table": ...}``, the first two optional, or
    ``{"a": {"a": "a", "b": "b"}, "b": {...}}``: left factor, right factor, product.
    """
    if isinstance(table, str):
        return _read_text(table)
    if isinstance(table, Mapping):
        return _read_dict(table)
    if isinstance(table, Sequence) and table:
        return _read_rows(None, labels(len(table)), [(str(n + 1), row) for n, row in enumerate(table)])
    raise ValueError(
        f"a multiplication table must be text, a list of rows or a dict with at least one row; got {table!r:.80}."
    )


def load(path: Path) -> Any:
    """What a table file holds, in a form `read` takes."""
    readers: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads, ".txt": str}
    if path.suffix not in readers:
        raise ValueError(f"{path}: a table file must end in {', '.join(readers)}, not {path.suffix or 'nothing'!r}.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ValueError(f"{path}: cannot be read ({reason}).") from error
    try:
        return readers[path.suffix](text)
    except ValueError as error:
        raise ValueError(f"{path}: is not valid {path.suffix[1:].upper()}: {error}") from error


def write_combination(combination: Mapping[int, int], components: Sequence[str]) -> str:
    """``{0: 1, 2: -3}`` as ``a-3c``."""
    text = ""
    for k, c in sorted(combination.items()):
        size = "" if abs(c) == 1 else f"{abs(c)}*" if components[k][0].isdigit() else str(abs(c))
        text += ("-" if c < 0 else "+" if text else "") + size + components[k]
    return text or "0"


def _read_dict(table: Mapping[Any, Any]) -> Table:
    if "table" in table:
        unknown = sorted(set(table) - {"name", "components", "table"})
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r}: a table has the keys 'name', 'components' and 'table'.")
        inner, name = table["table"], table.get("name")
        if "components" not in table:
            parsed = read(inner)
            return Table(name or parsed.name, parsed.components, parsed.products)
        components = tuple(map(str, table["components"]))
        if isinstance(inner, list | tuple):
            return _read_rows(name, components, [(str(n + 1), row) for n, row in enumerate(inner)])
        parsed = read(inner)
        if set(parsed.components) != set(components):
            raise ValueError(
                f"the table names the components {', '.join(parsed.components)}, "
                f"but 'components' lists {', '.join(components)}: they must be the same, or leave 'components' out."
            )
        return Table(name or parsed.name, parsed.components, parsed.products)
    components = tuple(map(str, table))
    rows = []
    for label, row in table.items():
        if not isinstance(row, Mapping) or {*map(str, row)} != {*components}:
            raise ValueError(
                f"row {label!r}: must be a dict with a product for each of {', '.join(components)}; got {row!r:.80}."
            )
        rows.append((str(label), [dict(zip(map(str, row), row.values(), strict=True))[c] for c in components]))
    return _read_rows(None, components, rows)


def _read_rows(name: str | None, components: tuple[str, ...], rows: list[tuple[str, Any]]) -> Table:
    """``rows``: what to call a row in an error, and its entries."""
    repeated = [c for n, c in enumerate(components) if c in components[:n]]
    if repeated:
        raise ValueError(f"component {repeated[0]!r} is named twice: each component needs a name of its own.")
    if len(rows) != len(components):
        raise ValueError(
            f"the table must be square: it has {len(components)} components "
            f"({', '.join(components)}) and {len(rows)} rows."
        )
    products: Products = {}
    for i, (label, row) in enumerate(rows):
        if isinstance(row, str | Mapping) or not isinstance(row, Sequence):
            raise ValueError(f"row {label!r}: must be a list of {len(components)} entries; got {row!r:.80}.")
        if len(row) != len(components):
            raise ValueError(
                f"row {label!r}: has {len(row)} entries; the table must be square, and it has {len(rows)} rows."
            )
        for j, cell in enumerate(row):
            try:
                products[i, j] = _read_cell(cell, components)
            except ValueError as error:
                raise ValueError(f"row {label!r}, column {components[j]!r}: {error}") from None
    return Table(name, components, {pair: out for pair, out in products.items() if out})


def _read_cell(cell: Any, components: tuple[str, ...]) -> dict[int, int]:
    dim = len(components)
    if isinstance(cell, str):
        return _read_combination(cell, components)
    if isinstance(cell, bool) or not isinstance(cell, int | list | tuple):
        raise ValueError(f"an entry must be text, a whole number or a list of them; got {cell!r}.")
    if isinstance(cell, int):
        if abs(cell) > dim:
            raise ValueError(f"{cell} names no component: numbers go from -{dim} to {dim}.")
        return {abs(cell) - 1: 1 if cell > 0 else -1} if cell else {}
    if len(cell) != dim or not all(isinstance(c, int) and not isinstance(c, bool) for c in cell):
        raise ValueError(f"a list entry must hold {dim} whole numbers, one per component; got {list(cell)!r:.80}.")
    return {k: c for k, c in enumerate(cell) if c}


def _read_combination(text: str, components: tuple[str, ...]) -> dict[int, int]:
    """``a - 3c`` as ``{0: 1, 2: -3}``."""
    compact = re.sub(r"\s+", "", text)
    if not compact:
        raise ValueError("the entry is empty; write 0 where there is no product.")
    if compact == "0" and "0" not in components:
        return {}
    out: dict[int, int] = {}
    for term in re.split(r"(?<=.)(?=[+-])", compact):
        body = term.lstrip("+-")
        factor, label = (1, body) if body in components else _split_factor(body)
        if label not in components or len(term) - len(body) > 1:
            raise ValueError(
                f"{text.strip()!r} is no combination of {', '.join(components)}; "
                f"write for instance -{components[0]} or 0."
            )
        k = components.index(label)
        out[k] = out.get(k, 0) + (-factor if term.startswith("-") else factor)
    return {k: c for k, c in out.items() if c}


def _split_factor(term: str) -> tuple[int, str]:
    """``3c`` or ``3*c`` as ``(3, "c")``."""
    match = re.fullmatch(r"(\d+)\*?(.+)", term)
    return (int(match[1]), match[2]) if match else (1, term)


def _read_text(text: str) -> Table:
    lines = [line for raw in text.splitlines() if (line := _without_latex(raw))]
    lines = [line for line in lines if not re.fullmatch(r"[-+=|:\s]+", line)]
    if not lines:
        raise ValueError("the table is empty: it needs a line with the components and one row for each of them.")
    header, *body = [_split(line) for line in lines]
    name, components = header[0], tuple(header[1])
    rows = []
    for label, row in body:
        if label not in components:
            raise ValueError(f"row {label!r}: must be named after one of the columns {', '.join(components)}.")
        rows.append((label, row))
    if len(rows) == len(components):
        missing = [c for c in components if c not in {label for label, _ in rows}]
        if missing:
            raise ValueError(f"row {missing[0]!r} is missing: each component needs a row, once.")
        rows.sort(key=lambda row: components.index(row[0]))
    return _read_rows(name or None, components, rows)


def _without_latex(line: str) -> str:
    line = re.sub(r"\\(begin|end)\{.*", "", line)
    line = re.sub(r"\\(midrule|toprule|bottomrule|hline|renewcommand.*|setlength.*|vspace\{.*?\})", "", line)
    line = line.replace("\\\\", "").replace("$", "")
    return re.sub(r"\\(?:mathbb|bm|mathbf|mathrm)\{(.*?)\}", r"\1", line).strip()


def _split(line: str) -> tuple[str, list[str]]:
    """A line's label and its cells: cells between ``&``, or behind ``|`` between blanks."""
    if "&" in line:
        label, *cells = [cell.strip() for cell in line.split("&")]
        return label, cells
    label, bar, rest = line.partition("|")
    if not bar:
        raise ValueError(f"line {line!r}: a row must read 'component | products'; the '|' is missing.")
    return label.strip(), rest.replace("|", " ").split()
