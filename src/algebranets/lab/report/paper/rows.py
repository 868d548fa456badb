"""The paper's row for a trained network, and its statements about variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from algebranets.algebra import CATALOGUE
from algebranets.lab.report.paper import printed

#: Settings that differ between the rows of the paper's tables. A run with any other change has no row there.
SIZES = frozenset(f"model.{name}" for name in ("hidden_size", "num_layers", "d_model", "num_heads", "ff_size"))
ROW_SETTINGS = SIZES | {"model.norm"}


@dataclass(frozen=True)
class PrintedRow:
    """One row of a table, as the paper prints it.

    Args:
        row: The name of the row, such as ``"M2R 512"``.
        quality: The printed accuracy, or bits per character.
        parameters: The printed number of parameters, in millions; empty if the paper prints none.
        note: A remark on the parameters.
    """

    row: str
    quality: str
    parameters: str = ""
    note: str | None = None


def printed_rows(recipe: str) -> dict[tuple[object, ...], PrintedRow]:
    """The paper's rows for a recipe, by the settings in which they differ; empty if the paper has none."""
    if recipe == "cifar10":
        return {
            key: PrintedRow(f"{key[0]} {key[1]}", quality, parameters)
            for key, (parameters, _, quality) in printed.CIFAR.items()
        }
    if recipe == "gru":
        notes = printed.WIKITEXT_NOTES
        return {
            key: PrintedRow(f"{key[0]} {key[1]}", quality, parameters, notes.get((*key, "M parameters")))
            for key, (parameters, _, quality) in printed.WIKITEXT.items()
        }
    if recipe == "transformer_xl":
        return {
            tuple(options[name] for name in ("algebra", "num_layers", "d_model", "num_heads", "ff_size")):
                PrintedRow(row, figures[3], figures[0], notes.get("M parameters"))
            for row, (options, figures, notes) in printed.ENWIK8.items()
        }  # fmt: skip
    return {
        (algebra, width): PrintedRow(f"{algebra} x{width:g}", quality)
        for (network, algebra, width), quality in printed.IMAGENET_TOP1.items()
        if network == recipe
    }


def printed_row(recipe: str, algebra: str, width: float, model: Mapping[str, Any]) -> PrintedRow | None:
    """The paper's row for a network, or None if the paper has none.

    >>> printed_row("cifar10", "H", 1.0, {"norm": "whitening"}).quality
    '94.1'
    >>> printed_row("gru", "M2R", 1.0, {"hidden_size": 2048}).row  # the paper counts tuples
    'M2R 512'

    Args:
        recipe: The recipe's name.
        algebra: The algebra's name.
        width: The width multiplier.
        model: The model's options; sizes are in real numbers.
    """
    key: tuple[object, ...] = (algebra, width)
    if recipe == "cifar10" and width == 1:
        key = (algebra, model.get("norm", "batch"))
    elif recipe == "gru" and algebra in CATALOGUE:  # a language model has sizes instead of a width
        key = (algebra, model.get("hidden_size", 0) / CATALOGUE[algebra].dim)
    elif recipe == "transformer_xl":
        key = (algebra, *(model.get(name) for name in ("num_layers", "d_model", "num_heads", "ff_size")))
    return printed_rows(recipe).get(key)


def ranked_criteria() -> list[str]:
    """The pruning criteria of the paper, best first, by the accuracy lost over all sparsities.

    >>> ranked_criteria()[0]
    'norm'
    """
    lost = {"norm": 0.0}
    for figures in printed.CRITERIA.values():
        for name, figure in figures.items():
            lost[name] = lost.get(name, 0.0) - float(figure)
    return sorted(lost, key=lambda name: lost[name])


def printed_claim(setting: str, value: object) -> str:
    """Return the paper's statement about a variant, or an empty string if it makes none.

    >>> printed_claim("model.activation", "heaviside_mean")
    '−2.97 % (M2R, Heaviside of the mean)'

    Args:
        setting: The changed setting.
        value: Its value.
    """
    name = setting.rpartition(".")[2]
    return next((text for (key, word), text in printed.CLAIMS.items() if key == name and word in str(value)), "")
