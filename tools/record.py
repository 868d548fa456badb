"""Write src/algebranets/lab/recorded.json: the counts that `algebranets recipes` and `algebranets paper` print.

    python tools/record.py

`account` counts each network anew. Run it after a change of a model, a recipe or the way of counting.
tests/test_recorded.py fails until then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from algebranets import files, models
from algebranets.lab import recipes, recorded
from algebranets.lab.report import paper

#: The algebras over which recipes are recorded: those that `algebranets sweep` trains by default.
ALGEBRAS = ("R", "C", "H", "M2R")


def count_networks() -> dict[str, recorded.Counts]:
    """Count all networks of the paper's tables."""
    counted: dict[str, recorded.Counts] = {}

    def count(model: str, size: int | None, options: dict[str, Any]) -> recorded.Counts:
        name = recorded.network_name(model, size, options)
        if name not in counted:  # several rows of a table may be about one network
            counted[name] = paper.count(model, size, options)
        return counted[name]

    list(paper.tables(count))
    return counted


def count_recipes(algebras: tuple[str, ...] = ALGEBRAS) -> dict[str, recorded.Recipe]:
    """Count all recipes over some algebras."""
    return {
        f"{name} over {algebra}": recipes.describe(name, algebra) for name in recipes.RECIPES for algebra in algebras
    }


def write(
    networks: Mapping[str, recorded.Counts], described: Mapping[str, recorded.Recipe], names: Iterable[str]
) -> None:
    """Write ``recorded.json``, with each count on a line of its own."""
    parts = [f'"{name}": {{\n{_lines(rows)}\n}}' for name, rows in (("networks", networks), ("recipes", described))]
    files.write(recorded.FILE, "{\n" + ",\n".join([*parts, f'"models": {json.dumps(list(names))}']) + "\n}\n")


def _lines(rows: Mapping[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(asdict(row))}" for name, row in rows.items())


if __name__ == "__main__":
    write(count_networks(), count_recipes(), models.MODELS)
