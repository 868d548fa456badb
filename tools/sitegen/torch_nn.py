"""The tables of torch.nn's classes: those that work as they are, have a version over an algebra, or are refused."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable

import torch.nn.functional as F
from torch import nn as tnn

from algebranets import nn
from algebranets.lab.report.parts import markdown_table
from algebranets.nn import functional, untouched
from algebranets.nn.refused import REFUSED
from sitegen.regions import Make

CLASSES = {name: getattr(tnn, name) for name in dir(tnn) if inspect.isclass(getattr(tnn, name))}
OURS = [name for name in nn.__all__ if name in CLASSES and name not in untouched.__all__]
PASSED = [name for name in untouched.__all__ if name in CLASSES]
ROOMS = {name: kind.__module__.rpartition(".")[2] for name, kind in CLASSES.items()}
#: The rows of the table: a title for each file of torch.nn.modules.
TITLES = {
    "container": "Containers",
    "linear": "Linear layers",
    "conv": "Convolutions",
    "rnn": "Recurrent layers",
    "transformer": "Transformers",
    "sparse": "Embeddings",
    "activation": "Activations and attention",
    "batchnorm": "Batch norms",
    "instancenorm": "Instance norms",
    "normalization": "Other norms",
    "dropout": "Dropout",
    "pooling": "Pooling",
    "padding": "Padding",
    "upsampling": "Upsampling",
    "pixelshuffle": "Pixel shuffles",
    "channelshuffle": "Channel shuffles",
    "fold": "Sliding windows",
    "flatten": "Flattening",
    "distance": "Distances",
    "loss": "Losses",
    "adaptive": "Adaptive softmax",
    "parameter": "Parameters",
    "data_parallel": "Parallel",
}
SAME_ROW = {"module": "container"}
#: The row for torch's functions on a channel axis, one text for each column.
TORCH_FUNCTIONS = (
    "torch.add, mul, exp, ... (number by number); torch.stack; torch.mean, sum, ... over other axes",
    "torch.cat: `an.cat`; torch.chunk: `an.chunk`; torch.split: `an.split`; x.view(..., heads, d): `an.split_heads` "
    "and `an.join_heads`; x.reshape that splits channels: `an.tuples` and `an.from_tuples`",
    "torch.roll, torch.sort, torch.topk, indexing along the channels: use `an.tuples` first",
)


def _folded(names: Iterable[str]) -> str:
    """The names as code, with 1d, 2d and 3d in one word, such as AvgPool1d/2d/3d."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    for name in names:
        stem, ends = re.fullmatch(r"(.*?)(\dd)?", name).groups()  # type: ignore[union-attr]
        found.setdefault((stem.lower(), stem, ends is None), []).append(ends or "")
    return ", ".join(f"`{stem}{'/'.join(ends)}`" for (_, stem, _), ends in sorted(found.items()))


def table() -> str:
    """Every class of torch.nn in one of three columns, one row for each file of torch.nn.modules."""
    homes = {name: SAME_ROW.get(room, room) for name, room in ROOMS.items()}
    homes |= {"LinearCrossEntropyLoss": "loss", "LinearCrossEntropyOptions": "loss"}  # not in torch 2.11
    refused = [name for name in REFUSED if name in homes]
    unknown = sorted(set(homes.values()) - set(TITLES))
    if unknown:
        raise ValueError(
            f"each file of torch.nn.modules must have a title in TITLES; these have none: {', '.join(unknown)}."
        )
    columns = (PASSED, OURS, refused)
    rows = [
        [title, *(_folded(name for name in names if homes[name] == room) for names in columns)]
        for room, title in TITLES.items()
    ]
    own = [name for name in functional.__all__ if name not in functional.untouched.__all__]
    others = [name for name in dir(F) if name in functional.REFUSED or name == "linear_cross_entropy"]
    rows.append(["`nn.functional`", "all other functions", _folded(own), _folded(sorted({*others}))])
    rows.append(["`torch`, along the channels", *TORCH_FUNCTIONS])
    return markdown_table(["", "works as it is", "use ours", "cannot work"], rows, prose=range(4))


def reasons() -> str:
    """One line for each `Layer.reason`, with the names that share it."""
    names: dict[str, list[str]] = {}
    for name in OURS:
        names.setdefault(getattr(getattr(nn, name), "reason", ""), []).append(name)
    del names[""]
    lines = (f"- {_folded(sharing)}: {reason}" for reason, sharing in names.items())
    return "\n".join(textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False) for line in lines)


REGIONS: dict[str, Make] = {"torch_nn-table": table, "torch_nn-reasons": reasons}
