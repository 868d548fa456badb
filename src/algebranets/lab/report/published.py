"""What the paper has beside a trained network: the printed row, the claim about a variant, and what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from algebranets.algebra import CATALOGUE
from algebranets.lab.report import paper

#: Settings that tell the rows of the paper's tables apart; any other change makes a run none of them.
SIZES = frozenset(f"model.{name}" for name in ("hidden_size", "num_layers", "d_model", "num_heads", "ff_size"))
ROW_SETTINGS = SIZES | {"model.norm"}

#: What a recipe is, for people.
TITLES = {
    "cifar10": "CIFAR-10",
    "cifar10-pruned": "CIFAR-10, pruned",
    "resnet50": "ResNet-50 on ImageNet",
    "resnet50-pruned": "ResNet-50 on ImageNet, pruned",
    "mobilenet_v1": "MobileNet-v1 on ImageNet",
    "transformer_xl": "Transformer-XL on Enwik8",
    "transformer_xl-short": "Transformer-XL on Enwik8, within minutes",
    "transformer_xl-small": "Small Transformer-XLs on Enwik8",
    "gru": "GRU on WikiText-103 characters",
    "gru-short": "Small GRUs on WikiText characters",
    "digits": "Handwritten digits",
    "char-lm": "A character model",
}

_ONE_FIGURE = "The paper prints one figure a row and does not say how many runs stand behind it."
_RATE = (
    "The printed learning rate, 2.5 for batches of 256, looks like that of a far larger batch: see the settings below."
)
_NO_SUCH = "The paper has no such network; it is small, so that anyone can train it, and has no printed figures."
#: What the paper leaves open, does otherwise or likely got wrong, by recipe.
OPEN = {
    "cifar10": (
        "The text's 128, 256 and 512 channels cannot be literal: they make networks far larger than the printed ones. "
        "Here it is the network of Gaudet and Maida that the text refers to, with 32, 64 and 128.",
        "The printed parameters count moving statistics, those here do not.",
        paper.CIFAR_NOTES[-1],
        "The paper does not say how it trained these networks, but for 24 x 24 crops, and whole images when tested.",
        "The paper initialised them by their algebra and says that this has no substantial effect.",
        _ONE_FIGURE,
    ),
    "cifar10-pruned": (
        "The paper prunes ResNet-50 on ImageNet and has no such network. Figure 3 carries no numbers, and Tables 4 and "
        "5 are top-1 on ImageNet: only signs and orders can be compared.",
    ),
    "resnet50": ("Figures 1 and 2 carry no numbers: the text prints the accuracy of one network, H at width 1.", _RATE),
    "resnet50-pruned": ("Figure 3 carries no numbers, so there is no printed accuracy to stand beside ours.", _RATE),
    "mobilenet_v1": ("Figures 1 and 2 carry no numbers, so there is no printed accuracy to stand beside ours.", _RATE),
    "transformer_xl": (
        *paper.ENWIK8_NOTES,
        "Layer norms come first, and every hundredth batch begins without a memory: the paper says neither.",
        _ONE_FIGURE,
    ),
    "transformer_xl-short": (
        "The networks are the paper's, with layer norms first; window, dropout, rate and schedule are made for minutes "
        "of training, where every hundredth batch begins without a memory.",
    ),
    "transformer_xl-small": (_NO_SUCH,),
    "gru": (_ONE_FIGURE,),
    "gru-short": (
        "The networks are the paper's at half the width, and are trained on WikiText-2's text, not WikiText-103's.",
    ),
    "digits": (_NO_SUCH,),
    "char-lm": (_NO_SUCH,),
}


@dataclass(frozen=True)
class Printed:
    """A row as the paper prints it; ``parameters`` in millions, empty where it gives none."""

    row: str
    quality: str
    parameters: str = ""
    note: str | None = None


def rows(recipe: str) -> dict[tuple[object, ...], Printed]:
    """The paper's rows of this recipe's network, by what tells them apart; none for what is not in the paper."""
    if recipe == "cifar10":
        return {
            key: Printed(f"{key[0]} {key[1]}", quality, parameters)
            for key, (parameters, _, quality) in paper.CIFAR.items()
        }
    if recipe == "gru":
        return {
            key: Printed(f"{key[0]} {key[1]}", quality, parameters, paper.WIKITEXT_NOTES.get((*key, "M parameters")))
            for key, (parameters, _, quality) in paper.WIKITEXT.items()
        }
    if recipe == "transformer_xl":
        return {
            tuple(options[name] for name in ("algebra", "num_layers", "d_model", "num_heads", "ff_size")):
                Printed(row, figures[3], figures[0], notes.get("M parameters"))
            for row, (options, figures, notes) in paper.ENWIK8.items()
        }  # fmt: skip
    return {
        (algebra, width): Printed(f"{algebra} x{width:g}", quality)
        for (network, algebra, width), quality in paper.IMAGENET_TOP1.items()
        if network == recipe
    }


def printed(recipe: str, algebra: str, width: float, model: Mapping[str, Any]) -> Printed | None:
    """The paper's row of this network, if it has one; ``model`` holds the model's options.

    >>> printed("cifar10", "H", 1.0, {"norm": "whitening"}).quality
    '94.1'
    >>> printed("gru", "M2R", 1.0, {"hidden_size": 2048}).row  # in tuples, as printed
    'M2R 512'
    """
    key: tuple[object, ...] = (algebra, width)
    if recipe == "cifar10" and width == 1:
        key = (algebra, model.get("norm", "batch"))
    elif recipe == "gru" and algebra in CATALOGUE:  # a language model's sizes say its width
        key = (algebra, model.get("hidden_size", 0) / CATALOGUE[algebra].dim)
    elif recipe == "transformer_xl":
        key = (algebra, *(model.get(name) for name in ("num_layers", "d_model", "num_heads", "ff_size")))
    return rows(recipe).get(key)


def criteria() -> list[str]:
    """What the paper ranks tuples by, best first, by how much is lost over all sparsities.

    >>> criteria()[0]
    'norm'
    """
    lost = {"norm": 0.0}
    for figures in paper.CRITERIA.values():
        for name, figure in figures.items():
            lost[name] = lost.get(name, 0.0) - float(figure)
    return sorted(lost, key=lambda name: lost[name])


def claim(setting: str, value: object) -> str:
    """What the paper says of a variant, empty if nothing.

    >>> claim("model.activation", "heaviside_mean")
    '−2.97 % (M2R, Heaviside of the mean)'
    """
    name = setting.rpartition(".")[2]
    return next((text for (key, word), text in paper.CLAIMS.items() if key == name and word in str(value)), "")
