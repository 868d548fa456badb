"""Readers of multiplication tables, which may be text, LaTeX, lists, dicts and files.

Rows are the left factor (the weight), columns the right factor (the input), entries the product. An entry is one of

- text: a component, ``0``, or a combination such as ``-a``, ``2b``, ``a + b - 3c``;
- a whole number: ``0`` for zero, ``k`` or ``-k`` for plus or minus the k-th component, counted from 1;
- a list of whole numbers: the coefficient of each component.

Files that the package writes have a list of ``(i, j, k, coefficient)`` instead, as in `Algebra.terms`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short_repr
from string import ascii_lowercase
from typing import Any

Products = dict[tuple[int, int], dict[int, int]]

#: The largest number of components that an algebra can have.
MAX_DIM = 256
#: Characters with a meaning in tables, which the name of a component must not contain.
_COMPONENT_MARKS = "+-*|&$\\=:"
#: Characters that the name of an algebra must not contain.
_NAME_MARKS = "|&$\\"


@dataclass(frozen=True)
class Table:
    """A table that was read. The product of a pair that is absent from ``products`` is zero."""

    name: str | None
    components: tuple[str, ...]
    products: Products


def labels(dim: int) -> tuple[str, ...]:
    """Names for ``dim`` components: a, b, c, ... as in the paper, or e0, e1, ... for more than 26."""
    return tuple(ascii_lowercase[:dim]) if dim <= 26 else tuple(f"e{k}" for k in range(dim))


def check_name(name: object) -> None:
    """Raise an error if an algebra of this name could not be read back from its table."""
    is_text = isinstance(name, str) and name and name.isprintable() and name == name.strip()
    if not is_text or {*str(name)} & {*_NAME_MARKS}:
        raise ValueError(
            f"{short_repr(name)} cannot name an algebra: a name must be text in one line that does not begin or end "
            f"with a blank and has none of {' '.join(_NAME_MARKS)}; choose another."
        )


def check_components(components: Sequence[object]) -> None:
    """Raise an error if there are too many components, or names that could not be read back from a table.

    >>> check_components(("1", "e"))
    >>> check_components(("0", "1"))
    Traceback (most recent call last):
    ValueError: '0' cannot name a component: a name must be text that begins with a letter or a symbol, or a whole \
number from 1 on, without blanks and without + - * | & $ \\ = :; choose another.
    """
    check_dim(len(components))
    for label in components:
        if not isinstance(label, str) or not _is_label(label):
            raise ValueError(
                f"{short_repr(label)} cannot name a component: a name must be text that begins with a letter or a "
                f"symbol, or a whole number from 1 on, without blanks and without {' '.join(_COMPONENT_MARKS)}; "
                "choose another."
            )
    repeated = [label for n, label in enumerate(components) if label in components[:n]]
    if repeated:
        raise ValueError(f"component {repeated[0]!r} is named twice: each component needs a name of its own.")


def check_dim(dim: int) -> None:
    """Raise an error if an algebra of ``dim`` components is too large: its table has ``dim`` squared entries."""
    if dim > MAX_DIM:
        raise ValueError(f"an algebra must have at most {MAX_DIM} components; this one would have more.")


def _is_label(label: str) -> bool:
    if not label.isprintable() or " " in label or {*label} & {*_COMPONENT_MARKS}:
        return False
    return re.fullmatch(r"[1-9][0-9]*|[^0-9].*", label) is not None


def read(table: Any) -> Table:
    """Read a table in any of the forms that the module describes.

    A dict has one of these forms:

    - ``{"name": ..., "components": [...], "table": ...}``, the first two optional;
    - ``{"name": ..., "components": [...], "terms": [[i, j, k, coefficient], ...]}``, as `Algebra.to_dict` returns it;
    - ``{"a": {"a": "a", "b": "b"}, "b": {...}}``: left factor, right factor, product.
    """
    if isinstance(table, str):
        return _read_text(table)
    if isinstance(table, Mapping):
        return _read_dict(table)
    if isinstance(table, Sequence) and table:
        return _read_rows(None, labels(len(table)), [(str(n + 1), row) for n, row in enumerate(table)])
    raise ValueError(
        f"a multiplication table must be text, a list of rows or a dict with at least one row; got {short_repr(table)}."
    )


def load(path: Path) -> Any:
    """The contents of a table file, in a form that `read` takes."""
    readers: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads, ".txt": str}
    if path.suffix not in readers:
        raise ValueError(f"{path}: a table file must end in {', '.join(readers)}, not {path.suffix or 'nothing'!r}.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"{path}: cannot be read ({reason}).") from error
    try:
        return readers[path.suffix](text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not valid {path.suffix[1:].upper()}: {error}") from None


def write_combination(combination: Mapping[int, int], components: Sequence[str]) -> str:
    """Write a combination of components as text: ``{0: 1, 2: -3}`` becomes ``a-3c``."""
    text = ""
    for k, c in sorted(combination.items()):
        size = "" if abs(c) == 1 else f"{abs(c)}*" if components[k].isdecimal() else str(abs(c))
        text += ("-" if c < 0 else "+" if text else "") + size + components[k]
    return text or "0"


def _read_dict(table: Mapping[Any, Any]) -> Table:
    form = next((key for key in ("table", "terms") if key in table), None)
    if form is None:
        return _read_nested(table)
    unknown = sorted({*map(str, table)} - {"name", "components", form})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}: a table has the keys 'name', 'components' and {form!r}.")
    name, components, inner = table.get("name"), table.get("components"), table[form]
    if "components" in table and (isinstance(components, str) or not isinstance(components, Sequence)):
        raise ValueError(f"'components' must be a list of names; got {short_repr(components)}.")
    check_components(components or ())
    if form == "terms":
        return Table(name, tuple(components or ()), _read_terms(inner))
    if components is not None and isinstance(inner, list | tuple):
        return _read_rows(name, tuple(components), [(str(n + 1), row) for n, row in enumerate(inner)])
    parsed = _read_nested(inner) if isinstance(inner, Mapping) else read(inner)
    if components is not None and {*parsed.components} != {*components}:
        raise ValueError(
            f"the table names the components {', '.join(parsed.components)}, but 'components' lists "
            f"{', '.join(map(str, components))}: they must be the same, or leave 'components' out."
        )
    return Table(parsed.name if name is None else name, parsed.components, parsed.products)


def _read_nested(table: Mapping[Any, Any]) -> Table:
    components = tuple(map(str, table))
    rows = []
    for label, row in table.items():
        if not isinstance(row, Mapping) or {*map(str, row)} != {*components}:
            raise ValueError(
                f"row {label!r}: must be a dict with a product for each of {', '.join(components)}; "
                f"got {short_repr(row)}."
            )
        rows.append((str(label), [dict(zip(map(str, row), row.values(), strict=True))[c] for c in components]))
    return _read_rows(None, components, rows)


def _read_terms(terms: Any) -> Products:
    """Read a list of terms. `Algebra` checks their values."""
    products: Products = {}
    for term in terms if isinstance(terms, list | tuple) else [terms]:
        if not isinstance(term, list | tuple) or len(term) != 4 or not all(map(_is_whole, term)):
            raise ValueError(f"'terms' must be a list of four whole numbers each; got {short_repr(term)}.")
        i, j, k, c = term
        if k in products.setdefault((i, j), {}):
            raise ValueError(f"'terms' must hold each i, j, k once; it has {i}, {j}, {k} twice.")
        products[i, j][k] = c
    return products


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _read_rows(name: str | None, components: tuple[str, ...], rows: list[tuple[str, Any]]) -> Table:
    """Read the rows of a table. Each row is a name, which errors show, and its entries."""
    check_components(components)
    if len(rows) != len(components):
        raise ValueError(
            f"the table must be square: it has {len(components)} components "
            f"({', '.join(components)}) and {len(rows)} rows."
        )
    products: Products = {}
    for i, (label, row) in enumerate(rows):
        if isinstance(row, str | Mapping) or not isinstance(row, Sequence):
            raise ValueError(f"row {label!r}: must be a list of {len(components)} entries; got {short_repr(row)}.")
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
    if not _is_whole(cell) and not isinstance(cell, list | tuple):
        raise ValueError(f"an entry must be text, a whole number or a list of them; got {short_repr(cell)}.")
    if isinstance(cell, int):
        if abs(cell) > dim:
            raise ValueError(f"{cell} is the number of no component: numbers go from -{dim} to {dim}.")
        return {abs(cell) - 1: 1 if cell > 0 else -1} if cell else {}
    if len(cell) != dim or not all(map(_is_whole, cell)):
        raise ValueError(
            f"a list entry must hold {dim} whole numbers, one per component; got {short_repr(list(cell))}."
        )
    return {k: c for k, c in enumerate(cell) if c}


def _read_combination(text: str, components: tuple[str, ...]) -> dict[int, int]:
    """Read a combination of components: ``a - 3c`` becomes ``{0: 1, 2: -3}``."""
    compact = re.sub(r"\s+", "", text)
    if not compact:
        raise ValueError("the entry is empty; write 0 where there is no product.")
    if compact == "0":
        return {}
    out: dict[int, int] = {}
    for term in re.split(r"(?<=.)(?=[+-])", compact):
        body = term.lstrip("+-")
        factor, label = (1, body) if body in components else _split_factor(body)
        if label not in components or len(term) - len(body) > 1:
            raise ValueError(
                f"{text.strip()!r} is not a combination of {', '.join(components)}; "
                f"write for example -{components[0]} or 0."
            )
        k = components.index(label)
        out[k] = out.get(k, 0) + (-factor if term.startswith("-") else factor)
    return {k: c for k, c in out.items() if c}


def _split_factor(term: str) -> tuple[int, str]:
    """Split ``3c`` or ``3*c`` into ``(3, "c")``. If the name of a component is a number, it needs the ``*``."""
    match = re.fullmatch(r"([0-9]{1,20})(?:\*(.+)|([^0-9*].*))", term)
    return (int(match[1]), match[2] or match[3]) if match else (1, term)


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
    line = re.sub(r"\\(?:mathbb|bm|mathbf|mathrm)\{(.*?)\}", r"\1", line)
    return line.replace("\\", "").strip()  # leaves the names of Greek letters


def _split(line: str) -> tuple[str, list[str]]:
    """Split a line into its label and its cells. These are separated by ``&``, or by blanks after a ``|``."""
    if "&" in line:
        label, *cells = [cell.strip() for cell in line.split("&")]
        return label, cells
    label, bar, rest = line.partition("|")
    if not bar:
        raise ValueError(f"line {line!r}: a row must read 'component | products'; the '|' is missing.")
    return label.strip(), rest.replace("|", " ").split()
