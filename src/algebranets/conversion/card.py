"""`model_card`, the README.md of a pretrained folder, made from a run's result and from counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from algebranets.conversion.sources import library

#: For each metric of the lab's results: its full name, unit, number of decimals, and the hub's name of the task.
_METRICS = {
    "accuracy": ("top-1 accuracy", " %", 2, "image-classification"),
    "bpc": ("bits per character", "", 3, "text-generation"),
}
#: The rows of the training table: the name in the card, and the path in a result.
_SETTINGS = (
    ("recipe", "recipe"), ("algebra", "algebra"), ("width", "width"), ("steps", "steps"), ("seed", "seed"),
    ("seconds, with evaluations", "seconds"), ("commit", "environment.commit"), ("device", "environment.device"),
    ("torch", "environment.torch"),
)  # fmt: skip
#: The end of the name of a commit in a result if the source had uncommitted changes.
_DIRTY = "-dirty"
_PAPER = "Hoffmann et al., AlgebraNets, 2020"


@dataclass(frozen=True)
class Costs:
    """The size of a model and of the real network. None means that a number was not counted.

    Args:
        parameters: The number of parameters.
        multiplies: The number of multiply-adds for one input.
        real_parameters: The number of parameters of the real network.
        real_multiplies: The number of multiply-adds of the real network for the same input.
        per: What the multiply-adds are counted for, such as "image" or "token".
        nonzero: The number of parameters that are not zero.
    """

    parameters: int
    multiplies: int | None = None
    real_parameters: int | None = None
    real_multiplies: int | None = None
    per: str = "input"
    nonzero: int | None = None


def model_card(
    config: Mapping[str, Any],
    algebras: Sequence[str],
    costs: Costs,
    *,
    result: Mapping[str, Any] | None = None,
    report: str = "",
    license: str | None = None,
    repository: str = "",
    loading: str = "",
    inputs: str = "",
) -> Any:
    """Return the model card of a pretrained folder, a `huggingface_hub.ModelCard`.

    Every number in the card comes from ``costs``, ``result`` or ``report``. The card names what was not measured.

    Args:
        config: The folder's config.json. The card uses "source", "plan" and "class".
        algebras: The names of the algebras of the model's layers.
        costs: The counts of the model and of the real network.
        result: The result of training, as plain data. For a run of the lab, it is `dataclasses.asdict` of the
            `algebranets.lab.train.results.Result`. For other training, "metric" and "value" are required, and
            "data_set", "task" (the hub's name of the task), "recipe", "steps", "seed", "seconds", "command" and
            "measured_on" (a phrase that says which weights were measured) are optional.
        report: The conversion report as text.
        license: The identifier of the license, such as "apache-2.0". By default the card names none.
        repository: The name of the repository or folder that users load the model from.
        loading: The Python code that loads the model, if it is not `PretrainedModel.from_pretrained`.
        inputs: A description of the model's inputs.

    >>> config = {"source": "algebranets:gru_lm", "options": {"algebra": "H"}, "plan": None, "class": "GRU"}
    >>> card = model_card(config, ["H"], Costs(1000), license="apache-2.0")
    >>> card.data.library_name, card.data.license
    ('algebranets', 'apache-2.0')
    >>> "The quality of the model was not measured" in card.text
    True
    """
    hub = library("huggingface_hub", "A model card")
    name = _name(config, algebras)
    if not algebras:  # the model is the real network
        costs = replace(costs, real_parameters=None, real_multiplies=None)
    data = hub.ModelCardData(
        library_name="algebranets",
        license=license,
        tags=["algebranets", *([] if loading else ["pytorch_model_hub_mixin", "model_hub_mixin"]), *algebras],
        **_measured(hub, name, result),
    )
    parts = [
        f"# {name}",
        _introduction(config, algebras),
        "## How to load it\n\n" + (_fenced(loading, "python") if loading else _loading(config, repository)),
        *(["## Inputs\n\n" + inputs] if inputs else []),
        "## Size\n\n" + _size(costs),
        "## Quality\n\n" + _quality(result),
        *(["## Training\n\n" + _training(result)] if result else []),
        "## What was not measured\n\n" + _lines(_not_measured(costs, result, is_real=not algebras)),
        *(["## Conversion\n\n" + _fenced(report, "text")] if report else []),
    ]
    return hub.ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n")


def _measured(hub: Any, name: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
    """The quality, for the header of the card, if the task and the data set are known and the value is finite."""
    if result is None:
        return {}
    words, unit, decimals, task = _metric(result)
    data = _data_set(result)
    if not (task and data and math.isfinite(result["value"])):
        return {}
    measured = hub.EvalResult(
        task_type=task,
        dataset_type=data,
        dataset_name=data,
        metric_type=result["metric"],
        metric_name=words + (" in percent" if unit else ""),
        metric_value=round(result["value"], decimals),
    )
    return {"model_name": name, "eval_results": [measured]}


def _name(config: Mapping[str, Any], algebras: Sequence[str]) -> str:
    network = config["source"].partition(":")[2] if config["source"] else config["class"]
    return f"{network} over {', '.join(algebras) or 'R'}"


def _introduction(config: Mapping[str, Any], algebras: Sequence[str]) -> str:
    made_by = f"`{config['source']}`" if config["source"] else f"the model class `{config['class']}` of its author"
    if not algebras:
        return f"This is {made_by}, over the real numbers. It was saved with AlgebraNets ({_PAPER})."
    names = ("the algebra " if len(algebras) == 1 else "the algebras ") + ", ".join(f"`{name}`" for name in algebras)
    text = (
        f"This is {made_by} with weights that are tuples from {names} instead of real numbers. It was made with the "
        f"library AlgebraNets ({_PAPER})."
    )
    if config["plan"]:
        text += " The real model was converted; its forward code is unchanged."
    return text


def _loading(config: Mapping[str, Any], repository: str) -> str:
    repository = repository or "FOLDER-OR-REPOSITORY"
    lines = ["from algebranets.conversion import PretrainedModel"]
    if config["source"]:
        lines.append(f'model = PretrainedModel.from_pretrained("{repository}")')
    else:
        real = f"{config['class']}(...)"
        lines.append(f'model = PretrainedModel.from_pretrained("{repository}", model={real})  # the real model')
    lines.append("output = model(inputs)")
    return _fenced("\n".join(lines), "python")


def _size(costs: Costs) -> str:
    rows: list[tuple[str, int, int | None]] = [("parameters", costs.parameters, costs.real_parameters)]
    if costs.nonzero is not None and costs.nonzero < costs.parameters:
        rows.append(("parameters that are not zero", costs.nonzero, None))
    if costs.multiplies is not None:
        rows.append((f"multiply-adds for one {costs.per}", costs.multiplies, costs.real_multiplies))
    if all(real is None for _, _, real in rows):
        return _table(("", "this model"), [(name, f"{own:,}") for name, own, _ in rows])
    table = [(name, f"{own:,}", "" if real is None else f"{real:,}", _share(own, real)) for name, own, real in rows]
    return _table(("", "this model", "real network", "share"), table)


def _quality(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "The quality of the model was not measured."
    words, unit, decimals, _ = _metric(result)
    if not math.isfinite(result["value"]):
        return f"The {words} of the model is not a finite number: training diverged."
    row = {"measure": words, "value": f"{result['value']:.{decimals}f}{unit}"}
    if _data_set(result):
        held_out = ", held out from training" if "experiment" in result else ""  # the lab always evaluates so
        row["data set"] = f"`{_data_set(result)}`{held_out}"
    judged = result.get("experiment", {}).get("judged_over")
    if "measured_on" in result:
        row["measured on"] = result["measured_on"]
    elif judged is not None:
        part = f"the best evaluation in the last {100 * judged:g} % of training"
        row["measured at"] = part if judged else "the last evaluation"
    return _table(list(row), [list(row.values())])


def _training(result: Mapping[str, Any]) -> str:
    rows = [(words, _show(value)) for words, path in _SETTINGS if (value := _find(result, path)) not in (None, "")]
    rows += [("changed setting", f"`{name}={value}`") for name, value in sorted(result.get("changes", {}).items())]
    parts = [_table(("setting", "value"), rows)] if rows else []
    parts += [_fenced(result["command"], "bash")] if result.get("command") else []
    return "\n\n".join(parts) or "The settings of training were not recorded."


def _not_measured(costs: Costs, result: Mapping[str, Any] | None, *, is_real: bool) -> list[str]:
    missing = []
    if costs.real_parameters is None and not is_real:
        missing.append("The size of the real network.")
    if costs.multiplies is None:
        missing.append("Multiply-adds.")
    elif costs.real_parameters is not None and costs.real_multiplies is None:
        missing.append("The multiply-adds of the real network.")
    if result is None:
        return [*missing, "Quality, on any data set.", "Speed and memory."]
    if not is_real:
        missing.append("The quality of the real network with the same training. It is not part of this run's result.")
    if result.get("seed") is not None:
        missing.append(f"Other seeds than {result['seed']}: the value is that of a single run.")
    if _data_set(result):
        missing.append(f"Other data sets than `{_data_set(result)}`.")
    return [*missing, "Speed and memory."]


def _metric(result: Mapping[str, Any]) -> tuple[str, str, int, str]:
    for name in ("metric", "value"):
        if name not in result:
            raise ValueError(f"a result for a model card must have {name!r}; it has {', '.join(map(repr, result))}.")
    words, unit, decimals, task = _METRICS.get(result["metric"], (result["metric"], "", 4, ""))
    return words, unit, decimals, result.get("task", task)


def _data_set(result: Mapping[str, Any]) -> str:
    return str(result.get("data_set") or _find(result, "experiment.data.name") or "")


def _find(result: Mapping[str, Any], path: str) -> Any:
    found: Any = result
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _show(value: Any) -> str:
    if isinstance(value, str) and value.endswith(_DIRTY):
        return f"`{value.removesuffix(_DIRTY)}`, with uncommitted changes"
    return f"`{value:,.6g}`" if isinstance(value, float) else f"`{value}`"


def _share(own: int, real: int | None) -> str:
    return f"{100 * own / real:.1f} %" if real else ""


def _lines(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
