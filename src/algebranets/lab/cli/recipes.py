"""The command ``recipes``."""

from __future__ import annotations

from typing import Annotated

import typer

from algebranets import algebra as known
from algebranets.lab import recorded
from algebranets.lab.cli import completion
from algebranets.lab.cli.terminal import console, new_table, short, show, split_names


def list_recipes(
    algebras: Annotated[
        str,
        typer.Option(
            help="The algebras whose costs are printed, separated by commas.", autocompletion=completion.algebra_lists
        ),
    ] = "R,M2R",
) -> None:
    """List the recipes, with the parameters and multiply-adds of their models."""
    names = split_names(algebras)
    table = new_table("Recipes: the cost of one image or token")
    table.add_column("\nrecipe")
    table.add_column("\ndata set\ntraining", no_wrap=True)
    for name in names:
        table.add_column(f"{name}\nparameters\nmultiply-adds", justify="right", no_wrap=True)
    sides: set[int] = set()
    for recipe in recorded.recipe_names():
        costs = [look_up(recipe, name) for name in names]
        cells = [f"{short(cost.parameters)}\n{short(cost.multiplies)}" for cost in costs]
        table.add_row(recipe, f"{costs[0].data}\n{costs[0].length}", *cells)
        sides |= set() if costs[0].side is None else {costs[0].side}
    show(table)
    *most, last = map(str, sorted(sides, reverse=True))
    console.print(f"Images are {', '.join(most)} or {last} pixels high. Tokens are counted with a full window.")
    console.print("Train one with `algebranets train RECIPE --algebra M2R`.")


def look_up(recipe: str, algebra: str) -> recorded.Recipe:
    """Describe a recipe over an algebra, from the recorded recipes if they have it, else with `recipes.describe`.

    Args:
        recipe: The name of the recipe.
        algebra: The name of the algebra, a constructor, or the path of a table file.

    >>> look_up("digits", "quaternions").parameters == look_up("digits", "H").parameters
    True
    """
    value = known.get(algebra)
    found = recorded.recipes().get(f"{recipe} over {value.name}")
    if found is not None and known.CATALOGUE.get(value.name) == value:  # a file may give another algebra that name
        return found
    from algebranets.lab import recipes  # imports torch

    return recipes.describe(recipe, algebra)
