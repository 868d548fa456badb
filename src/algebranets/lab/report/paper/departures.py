"""Titles of the recipes, and notes on how each recipe differs from the paper."""

from __future__ import annotations

from algebranets.lab.report.paper.printed import CIFAR_NOTES, ENWIK8_NOTES

#: The title of a recipe's section in a report.
TITLES = {
    "cifar10": "CIFAR-10",
    "cifar10-pruned": "CIFAR-10, pruned",
    "resnet50": "ResNet-50 on ImageNet",
    "resnet50-pruned": "ResNet-50 on ImageNet, pruned",
    "mobilenet_v1": "MobileNet-v1 on ImageNet",
    "transformer_xl": "Transformer-XL on Enwik8",
    "transformer_xl-short": "Transformer-XL on Enwik8, in minutes",
    "transformer_xl-small": "Small Transformer-XLs on Enwik8",
    "gru": "GRU on WikiText-103 characters",
    "gru-short": "Small GRUs on WikiText characters",
    "cifar100": "CIFAR-100",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "tiny-imagenet-resnet50": "ResNet-50 on Tiny ImageNet",
    "tiny-imagenet-mobilenet": "MobileNet-v1 on Tiny ImageNet",
    "text8-transformer_xl": "Transformer-XL on text8",
    "wikitext-2-gru": "Small GRUs on WikiText-2",
    "digits": "Handwritten digits",
    "char-lm": "A character model",
    "char-lm-small": "A small character model",
}

_ONE_FIGURE = "The paper prints one figure per row and does not say how many runs it is from."
_RATE = (
    "The printed learning rate, 2.5 for batches of 256, seems to belong to a much larger batch. Our settings are below."
)
_NO_SUCH = "The paper has no such network. It is small so that anyone can train it."
#: Points that the paper leaves open, that we do differently, or that are likely wrong in the paper, by recipe.
DEPARTURES = {
    "cifar10": (
        "The 128, 256 and 512 channels in the text cannot be meant literally: networks of these sizes are far larger "
        "than the printed ones. We use the network of Gaudet and Maida that the text refers to, with 32, 64 and 128.",
        "The printed parameters include moving statistics; ours do not.",
        CIFAR_NOTES[-1],
        "The paper does not say how these networks were trained, except for crops of 24 x 24 in training and whole "
        "images in testing.",
        "The paper used algebra-specific initialization for these networks and says that it has no substantial effect.",
        _ONE_FIGURE,
    ),
    "cifar10-pruned": (
        "The paper prunes ResNet-50 on ImageNet and has no such network. Figure 3 has no numbers, and Tables 4 and 5 "
        "are top-1 accuracies on ImageNet, so only signs and orders can be compared.",
    ),
    "resnet50": ("Figures 1 and 2 have no numbers. The text prints the accuracy of one network, H at width 1.", _RATE),
    "resnet50-pruned": ("Figure 3 has no numbers, so there is no printed accuracy to compare with.", _RATE),
    "mobilenet_v1": ("Figures 1 and 2 have no numbers, so there is no printed accuracy to compare with.", _RATE),
    "transformer_xl": (
        *ENWIK8_NOTES,
        "Layer norms come first, and every hundredth batch starts without a memory. The paper mentions neither.",
        _ONE_FIGURE,
    ),
    "transformer_xl-short": (
        "The networks are the paper's, with layer norms first. Window, dropout, learning rate and schedule are chosen "
        "for minutes of training, and every hundredth batch starts without a memory.",
    ),
    "transformer_xl-small": (_NO_SUCH,),
    "gru": (_ONE_FIGURE,),
    "gru-short": (
        "The networks are the paper's at half the width. They are trained on the text of WikiText-2, not WikiText-103.",
    ),
    "digits": (_NO_SUCH,),
    "char-lm": (_NO_SUCH,),
    "char-lm-small": (_NO_SUCH,),
}
