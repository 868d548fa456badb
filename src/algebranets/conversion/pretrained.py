"""Reads and writes the folders of pretrained models, in which config.json describes the model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_model
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from algebranets import files
from algebranets.accounting import account
from algebranets.algebra import CATALOGUE, Algebra
from algebranets.conversion import sources
from algebranets.conversion.card import Costs
from algebranets.conversion.convert import apply_plan
from algebranets.conversion.scaled import Scaled

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
#: The version of config.json. Folders of a later version are refused.
FORMAT = 1

_SAVE_AGAIN = "Save the model again."
#: The entries of config.json and their types.
_ENTRIES = {"source": str | None, "options": dict, "plan": dict | None, "algebras": dict, "class": str, "costs": dict}


def describe(source: str | None, options: Mapping[str, Any] | None, plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries of config.json that say how to build a model, as plain data.

    Args:
        source: The source of the real model, for `sources.create`, or None for a model of the user's own class.
        options: The options of `sources.create`. An algebra may be an `Algebra`.
        plan: The plan from ``model.conversion.plan()``, or None for a model that is not converted.
    """
    return {
        "library": "algebranets",
        "format": FORMAT,
        "source": source,
        "options": _plain_options(source, options),
        **_fold_plan(sources.plain("plan", plan)),
    }


def read_config(folder: Path) -> dict[str, Any]:
    """Read and check the config.json of a pretrained folder.

    Args:
        folder: The folder that `PretrainedModel.save_pretrained` wrote.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"it has no {name}, which PretrainedModel.save_pretrained writes.")
    config = files.parse((folder / CONFIG).read_bytes(), CONFIG, _SAVE_AGAIN)
    if not isinstance(config, dict) or config.get("library") != "algebranets":
        raise ValueError(f"its {CONFIG} is not of algebranets: load the folder with the library that wrote it.")
    if not isinstance(config["format"], int) or config["format"] > FORMAT:
        raise ValueError(f"its format is {config['format']!r:.20}, and this version of algebranets reads {FORMAT}.")
    for name, kind in _ENTRIES.items():
        if not isinstance(config[name], kind):
            raise ValueError(f"{name!r} in its {CONFIG} is {config[name]!r:.80}. {_SAVE_AGAIN}")
    return config


def build(config: Mapping[str, Any], model: nn.Module | None = None) -> nn.Module:
    """Build a model with random weights: create it from its source, then convert it by its plan.

    Args:
        config: The description, from `describe`.
        model: The real model, to use instead of the one that the source names. It is converted in place.
    """
    if model is None and config["source"] is None:
        raise ValueError(
            f"it holds a {config['class']}, which algebranets cannot create by itself: pass the real model, as in "
            f"PretrainedModel.from_pretrained(folder, model={config['class']}(...))."
        )
    made = sources.create(config["source"], **config["options"]) if model is None else model
    plan = unfold_plan(config)
    return made if plan is None else apply_plan(made, plan)


def check_same_weights(model: nn.Module, config: Mapping[str, Any]) -> None:
    """Raise an error if the model that ``config`` describes has weights of other names or shapes than ``model``.

    Args:
        model: The model.
        config: The description, from `describe`.
    """
    with torch.random.fork_rng(devices=[]):
        built = build(config)
    given, wanted = ({n: tuple(t.shape) for n, t in m.state_dict().items()} for m in (model, built))
    for name in [*given, *wanted]:
        if given.get(name) != wanted.get(name):
            shapes = [f"has {name!r} of shape {s[name]}" if name in s else f"has no {name!r}" for s in (given, wanted)]
            raise ValueError(
                f"the model must be the one that {config['source']} makes with these options, so that it can be loaded "
                f"again: the model {shapes[0]}, and the one that is made {shapes[1]}. Give the options that the model "
                "was made with, or leave out the source."
            )


def check_converted(model: nn.Module, plan: Mapping[str, Any]) -> None:
    """Raise an error if a layer was changed after the conversion, so that it has other weights than the plan gives it.

    Args:
        model: The converted model.
        plan: Its plan.
    """
    for name in plan:
        for module in model.get_submodule(name).modules():
            change = "folded" if isinstance(module, Scaled) else "parametrized" if is_parametrized(module) else ""
            if change:
                raise ValueError(
                    f"{name!r} was {change} after the conversion, so the folder could not be loaded again: save the "
                    f"model before it is {change}."
                )


def check_target(folder: Path) -> None:
    """Raise an error if saving to ``folder`` would overwrite a config.json that algebranets did not write.

    Args:
        folder: The folder to write, which need not exist.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give a folder, which need not exist yet.")
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(config, dict) or config.get("library") != "algebranets":
        raise ValueError(
            f"{folder} has a {CONFIG} of something else, such as a run or a model of another library, which would be "
            "overwritten: choose another folder."
        )


def save_weights(model: nn.Module, file: Path, config: Mapping[str, Any]) -> None:
    """Write a model's weights, with its description in the same file. Shared weights are written once.

    Args:
        model: The model.
        file: The file to write.
        config: The description, from `describe`.
    """
    with files.replacing(file) as partial:
        save_model(model, str(partial), {"format": "pt", "algebranets": json.dumps(config, sort_keys=True)})


def load_weights(model: nn.Module, file: Path, config: Mapping[str, Any], device: str) -> None:
    """Load weights that `save_weights` wrote. They must fit exactly, and the model gets their precision.

    Args:
        model: The model, as `build` makes it.
        file: The file.
        config: The description of the model. It must equal the one in the file.
        device: The device of the model.
    """
    with safe_open(file, "pt") as opened:
        described = files.parse((opened.metadata() or {})["algebranets"].encode(), WEIGHTS, _SAVE_AGAIN)
    if described != config:
        raise ValueError(f"its {CONFIG} and {WEIGHTS} are of two different models. {_SAVE_AGAIN}")
    model.to(device)
    own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    for name, saved in load_file(file).items():
        if name in own and saved.is_floating_point() and own[name].is_floating_point():
            own[name].data = own[name].data.to(saved.dtype)
    load_model(model, file, strict=True, device=device)


def count(model: nn.Module, config: Mapping[str, Any]) -> Costs:
    """Return the parameters and multiply-adds of a model, from its conversion report or for its example inputs.

    Multiply-adds are only known for converted models and for models of `algebranets.models`.

    Args:
        model: The model.
        config: The description, from `describe`.
    """
    report = getattr(model, "conversion", None)
    if report is not None:
        (real, own), (real_multiplies, multiplies) = report.parameters, report.multiplies
        return Costs(own, multiplies, real, real_multiplies, f"call with the input {report.inputs}")
    own, source = sum(parameter.numel() for parameter in model.parameters()), str(config["source"])
    if not source.startswith("algebranets:") or config["plan"] is not None:
        return Costs(own)
    with torch.device("meta"):  # counting needs no weights
        made, over_reals = (
            sources.create(source, **{**config["options"], **other}) for other in ({}, {"algebra": "R"})
        )
        cost, real_cost = account(made), account(over_reals)
    return Costs(own, cost.multiplies, real_cost.parameters, real_cost.multiplies, "call with its example inputs")


@contextmanager
def replacing(folder: Path, names: list[str]) -> Iterator[Path]:
    """Yield an empty folder to write to. At the end, its files replace those of ``folder``.

    A new folder appears with all of its files. In an existing folder, each file is replaced as a whole, and other files
    stay. If the process is killed between two files, the remaining ones are in the folder "<name>.<process>.partial".

    Args:
        folder: The folder, which need not exist.
        names: The files to replace in an existing folder, in the order of replacement.
    """
    check_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        yield partial
        for file in partial.iterdir():
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if folder.exists():
        for name in names:
            (partial / name).replace(folder / name)
        shutil.rmtree(partial)
    else:
        partial.rename(folder)


def unfold_plan(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the plan of a config.json as `apply_plan` takes it, or None for a model that is not converted.

    Args:
        config: The description, from `describe`.
    """
    if config["plan"] is None:
        return None
    return {layer: {**data, "algebra": config["algebras"][data["algebra"]]} for layer, data in config["plan"].items()}


def _fold_plan(plan: dict[str, Any] | None) -> dict[str, Any]:
    """The plan for config.json. The table of each algebra is written once, and the layers refer to its name."""
    tables: dict[str, Any] = {}
    layers = {}
    for layer, data in (plan or {}).items():
        table, number = data["algebra"], 1
        name = table["name"]
        while tables.setdefault(name, table) != table:  # another table has this name
            number += 1
            name = f"{table['name']} ({number})"
        layers[layer] = {**data, "algebra": name}
    return {"plan": None if plan is None else layers, "algebras": tables}


def _plain_options(source: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(options or {})
    if isinstance(given.get("algebra"), Mapping):
        given["algebra"] = Algebra.from_table(given["algebra"])
    if isinstance(given.get("algebra"), Algebra):  # an algebra of the catalogue is saved by its name
        algebra = given["algebra"]
        given["algebra"] = algebra.name if CATALOGUE.get(algebra.name) == algebra else algebra.to_dict()
    return {name: sources.plain(f"{source}'s option {name!r}", value) for name, value in given.items()}
