"""Write src/algebranets/lab/recorded.json: the counts that `algebranets recipes` and `algebranets paper` print.

    python tools/record.py

`account` counts each network anew. Run it after a change of a model, a recipe or the way of counting.
tests/test_recorded.py fails until then.
"""

from __future__ import annotations

from typing import Any

from algebranets import models
from algebranets.lab import recipes, recorded
from algebranets.lab.cli.recipes import count as count_recipe
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
    return {f"{name} over {algebra}": count_recipe(name, algebra) for name in recipes.RECIPES for algebra in algebras}


if __name__ == "__main__":
    recorded.write(count_networks(), count_recipes(), models.MODELS)
